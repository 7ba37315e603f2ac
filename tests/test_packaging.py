"""The package, its papers and its set-up agree with each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import mabrfl

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CORE = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
EXTRAS = {
    name: [Requirement(line) for line in lines] for name, lines in PROJECT["project"]["optional-dependencies"].items()
}
SEPARATE = ("tensorboard", "mlflow", "wandb", "nvflare", "hf", "flwr-datasets", "torchvision")
"""Extras that only people who use them install; they are not pinned."""
PINNED = [needed for name, needed in EXTRAS.items() if name not in SEPARATE]
NEEDED = [*CORE, *(one for needed in PINNED for one in needed if one.name != "mabrfl")]

PLACES_ON_A_MACHINE = re.compile(
    r"(?<![\w.*{$])(?:/(?:work|root|home|Users|farm|opt|tmp)/(?!x\b|foo\b)\w|[A-Z]:\\\\?(?!evil)\w|\.\./shared|file:///(?!etc\b)\w)"
)
PACKAGE_SERVERS = re.compile(
    r"https?://[\w.-]*(?:registry|artifactory|nexus|pythonhosted|jfrog)|/simple/?\b(?=\s|$|\")|(?:index-url|find-links)"
)


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), f"constraints.txt pins with == only: {pairs}"
    return {canonicalize_name(name): version for name, version in pairs}


def makefile_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, flags=re.MULTILINE))


def code_in(markdown: str) -> str:
    """What is set as code, be it a fenced block or a span."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", markdown, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", rest)])


def text_files() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_installed_version_is_the_version_in_the_source():
    try:
        installed = metadata.version("mabrfl")
    except metadata.PackageNotFoundError:
        pytest.skip("mabrfl is imported from a folder, not installed")
    assert installed == mabrfl.__version__


def test_citation_names_the_version_of_the_package():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (\S+)$", text, flags=re.MULTILINE) == [mabrfl.__version__]


def test_changelog_has_a_place_for_the_next_change():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:] == sorted(headings[1:], key=Version, reverse=True)


def test_package_says_that_it_is_typed():
    assert (Path(mabrfl.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("needed", NEEDED, ids=lambda needed: needed.name)
def test_every_dependency_is_pinned_within_its_range(needed):
    pinned = pins().get(canonicalize_name(needed.name))
    assert pinned is not None, f"{needed.name} is in pyproject.toml but not in constraints.txt"
    assert needed.specifier.contains(pinned), f"{needed.name}=={pinned} is outside {needed.specifier}"


def with_their_own(needed, done):
    """Add the names of these requirements to ``done``, and of all that these in turn require."""
    for one in needed:
        name = canonicalize_name(one.name)
        if name == "mabrfl":
            for extra in one.extras:
                with_their_own(EXTRAS[extra], done)
        elif (name, *one.extras) not in done:
            done.add((name, *one.extras))
            environments = [{"extra": extra} for extra in ("", *one.extras)]
            lines = map(Requirement, metadata.requires(name) or ())
            with_their_own([n for n in lines if n.marker is None or any(map(n.marker.evaluate, environments))], done)
    return {name for name, *_ in done}


def test_every_package_that_make_installs_is_pinned_and_nothing_else():
    try:
        assert with_their_own([*CORE, *EXTRAS["dev"]], set()) == set(pins())
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed, so its own requirements are not known")


def test_the_core_requires_nothing_of_the_simulator():
    assert {one.name for one in CORE} & {"torch", "scikit-learn", "matplotlib", "jinja2", "flwr"} == set()


def test_development_has_every_extra():
    assert [set(one.extras) for one in EXTRAS["dev"] if one.name == "mabrfl"] == [{"all", "docs"}]
    assert [set(one.extras) for one in EXTRAS["all"]] == [set(EXTRAS) - {"all", "dev", "docs", *SEPARATE}]


def test_pins_name_public_versions_only():
    assert {name: version for name, version in pins().items() if Version(version).local is not None} == {}


@pytest.mark.parametrize("needed", [need for need in NEEDED if need.name in {"rich", "typer"}], ids=lambda n: n.name)
def test_ranges_leave_room_for_flower(needed):
    limit = {"rich": "15", "typer": "0.21"}[needed.name]
    assert not needed.specifier.contains(limit), f"Flower wants {needed.name}<{limit}"


@pytest.mark.parametrize(
    "target", ["demo", "test", "test-slow", "test-busy", "bench", "lint", "format", "clean", "help"]
)
def test_makefile_has_the_promised_target(target):
    assert target in makefile_targets()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_make_commands_in_the_text_exist(name):
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not written yet")
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", code_in(path.read_text(encoding="utf-8"))))
    assert named, f"{name} shows no make command"
    assert named <= makefile_targets(), f"{name} names targets that the Makefile does not have"


def test_ci_gate_can_be_executed_and_runs_lint_and_tests():
    gate = ROOT / ".ci" / "run"
    assert gate.stat().st_mode & 0o111
    assert re.findall(r"^make (\S+)$", gate.read_text(encoding="utf-8"), flags=re.MULTILINE) == ["lint", "test"]


def test_no_file_names_a_place_on_a_machine_or_a_package_server():
    # The CI gate looks for data in a folder beside the checkout; this file holds the examples below.
    excused = {ROOT / ".ci" / "run", Path(__file__).resolve()}
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        if path.resolve() not in excused
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PLACES_ON_A_MACHINE.search(line) or PACKAGE_SERVERS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("line", ["see /home/ann/mabrfl", '"/Users/ann"', "file:///srv/wheels", "C:\\data"])
def test_a_place_on_a_machine_is_found(line):
    assert PLACES_ON_A_MACHINE.search(line)


@pytest.mark.parametrize("line", ["https://example.org/home/data", "network/opt/x", "$HOME/opt/x", "ratio a/b", "d:\\"])
def test_ordinary_text_is_no_place_on_a_machine(line):
    assert PLACES_ON_A_MACHINE.search(line) is None


@pytest.mark.parametrize("line", ["https://my-registry.example/x", "--extra-index-url x", "https://h/simple"])
def test_a_package_server_is_found(line):
    assert PACKAGE_SERVERS.search(line)


def test_a_plain_word_is_no_package_server():
    assert PACKAGE_SERVERS.search("a registry of simple rules, https://example.org/a/simple-rule") is None


def make_sweeps(place, ends, *settings):
    """Run ``make sweeps`` with a program that says what it was asked for, and ends as these lines of a case say."""
    (place / "bin").mkdir()
    command = place / "bin" / "mabrfl"
    command.write_text(f'#!/bin/sh\necho "$@"\ncase "$*" in {ends} esac\n', encoding="utf-8")
    command.chmod(0o755)
    for name in (".made", ".installed"):
        (place / name).touch()
    call = ["make", "-s", "sweeps", f"VENV={place}", "SWEEPS=figure1a selection figure1b", "BUDGET=5m", *settings]
    # The tests may run below another make, whose options are not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_sweeps_names_what_could_not_be_packed_after_all_others_ran(tmp_path):
    made = make_sweeps(tmp_path, "pack*figure1a*) exit 6;;", "PACK_FLAGS=--force")
    lines = made.stdout.splitlines()
    assert [line for line in lines if line.startswith(("pack", "render"))] == [
        "pack --force runs/figure1a results/figure1a.json.gz",
        "pack --force runs/selection results/selection.json.gz",
        "render results/selection.json.gz",
        "pack --force runs/figure1b results/figure1b.json.gz",
        "render results/figure1b.json.gz",
    ]
    assert "Not packed or rendered, see above: figure1a. What ran is in runs/." in made.stderr
    assert made.returncode != 0


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_sweeps_goes_on_past_failed_cells_and_packs_nothing_after_an_error(tmp_path):
    made = make_sweeps(tmp_path, "*sweep*figure1a*) exit 9;; *sweep*selection*) exit 4;;", "ARGS=--jobs 1")
    packed = [f"results/{name}.json.gz" for name in ("figure1a", "selection", "table1-mnist-laptop")]
    adopted = [f"--from {path} " if (ROOT / path).exists() else "" for path in packed]
    assert made.stdout.splitlines() == [
        f"sweep experiments/figure1a.toml {adopted[0]}--time-budget 5m --jobs 1",
        f"pack runs/figure1a {packed[0]}",
        f"render {packed[0]}",
        f"sweep experiments/selection.toml {adopted[1]}{adopted[2]}--time-budget 5m --jobs 1",
    ]
    assert made.returncode != 0
