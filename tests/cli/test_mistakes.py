from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("fake", "without_pictures")
USAGE, CONFIG, OUTPUT = 2, 3, 6

MISTAKES: dict[str, tuple[list[str], int, str]] = {
    "unknown command": (["rnu"], USAGE, "No such command 'rnu'"),
    "unknown option": (["run", "--round", "3"], USAGE, "No such option"),
    "missing value": (["run", "--rounds"], USAGE, "requires an argument"),
    "repeated option": (["run", "--rounds", "3", "--rounds", "4"], USAGE, "'--rounds' was given 2 times"),
    "two files": (["run", "a.toml", "b.toml"], USAGE, "unexpected extra argument"),
    "no rounds": (["run", "--rounds", "0"], CONFIG, "rounds must be greater than or equal to 1; got 0"),
    "negative rounds": (["run", "--rounds", "-1"], CONFIG, "rounds must be greater than or equal to 1; got -1"),
    "rounds as a float": (["run", "--rounds", "1e9"], USAGE, "'1e9' is not a whole number"),
    "too many rounds": (["run", "--rounds", "1000000000"], CONFIG, "rounds must be less than or equal to 1000000"),
    "rounds in words": (["run", "--rounds", "abc"], USAGE, "'--rounds': 'abc' is not a whole number"),
    "rounds in Arabic digits": (["run", "--rounds", "\u0663"], USAGE, "is not a whole number"),
    "no clients": (["run", "--clients", "0"], CONFIG, "clients must be greater than or equal to 1; got 0"),
    "only attackers": (["run", "--attack", "lie", "--attackers", "20"], CONFIG, "fewer than the clients; got 20 of 20"),
    "half attackers": (["run", "--attack", "lie", "--attackers", "50%"], CONFIG, "fewer than half of the clients"),
    "attackers in words": (["run", "--attackers", "some"], USAGE, "neither a share (0.3, 30%) nor a count (15)"),
    "negative attackers": (["run", "--attackers", "-1"], CONFIG, "attackers must not be negative; got -1"),
    "negative seed": (["run", "--seed", "-1"], CONFIG, "seed must be greater than or equal to 0; got -1"),
    "huge seed": (["run", "--seed", str(2**64)], CONFIG, "seed must be less than"),
    "seed in words": (["run", "--seed", "none"], USAGE, "'none' is not a whole number"),
    "no workers": (["run", "--workers", "0"], CONFIG, "workers must be greater than or equal to 1; got 0"),
    "unknown device": (["run", "--device", "tpu"], CONFIG, "device must match pattern"),
    "unknown data set": (["run", "--dataset", "mnits"], CONFIG, "unknown data set 'mnits'; did you mean 'mnist'?"),
    "unknown defense": (["run", "--defense", "krumm"], CONFIG, "unknown defense 'krumm'; did you mean 'krum'?"),
    "unknown attack": (["run", "--attack", "lies"], CONFIG, "unknown attack 'lies'; did you mean 'lie'?"),
    "unknown preset": (["run", "--preset", "papr"], CONFIG, "unknown preset 'papr'; did you mean 'paper'?"),
    "empty name": (["run", "--dataset", ""], CONFIG, "dataset must be a name; got ''"),
    "no such module": (["run", "--attack", "nowhere:X"], CONFIG, "cannot import 'nowhere'"),
    "missing file": (["run", "no.toml"], CONFIG, "config file 'no.toml' does not exist"),
    "a folder": (["run", "."], CONFIG, "config file '.' is a folder"),
    "set without value": (["run", "--set", "rounds"], USAGE, "--set takes KEY=VALUE"),
    "set without key": (["run", "--set", "=3"], USAGE, "--set takes KEY=VALUE"),
    "set twice": (["run", "--rounds", "3", "--set", "rounds=4"], USAGE, "'rounds' is set twice"),
    "set no TOML": (["run", "--set", "rounds=[1"], CONFIG, "--set rounds: '[1' is not a TOML value"),
    "set two values": (["run", "--set", "rounds=1\nseed=2"], CONFIG, "is more than one value"),
    "set unknown key": (["run", "--set", "training.epoch=1"], CONFIG, "'epoch' in [training]; did you mean 'epochs'?"),
    "set unknown option": (["run", "--set", "defense_options.sepration=1"], CONFIG, "did you mean 'separation_last'?"),
    "set a mistyped value": (["run", "--set", 'rounds="3"'], CONFIG, "rounds must be an integer; got '3'"),
    "unknown kind": (["list", "atacks"], USAGE, "unknown kind or name 'atacks'; did you mean 'attacks'?"),
    "unknown kind of a name": (["list", "atacks", "lie"], USAGE, "unknown kind 'atacks'; did you mean 'attacks'?"),
    "unknown name": (["list", "attacks", "lies"], CONFIG, "unknown attack 'lies'; did you mean 'lie'?"),
    "no audit": (["audit", "show", "nothing"], 5, "there is no audit at 'nothing'"),
    "output is a file": (["run", "--out", "file"], OUTPUT, "output folder 'file' is a file"),
    "output in use": (["run", "--out", "used"], OUTPUT, "output folder 'used' is not empty"),
    "output below a file": (["run", "--out", "file/below"], OUTPUT, "file/below"),
    "output with a line break": (["run", "--out", "file/a\nb"], OUTPUT, r"output folder 'file/a\nb'"),
    "demo in use": (["demo", "--out", "used"], OUTPUT, "output folder 'used' is not empty"),
    "demo without rounds": (["demo", "--rounds", "0"], CONFIG, "rounds must be greater than or equal to 1"),
}


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_on_stderr_and_changes_nothing(
    mabrfl: Callable[..., Any], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").touch()
    done = mabrfl(*arguments)
    assert done.code == code
    assert message in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert done.out.strip() == ""
    assert sorted(os.listdir(tmp_path)) == ["file", "used"]
    assert os.listdir(tmp_path / "used") == ["notes.txt"]


def test_the_file_of_a_sweep_the_folder_of_a_sweep_and_that_of_a_run_say_what_to_type(
    mabrfl: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "sweep.toml").write_text('name = "tiny"\n[axes]\nseed = [0, 1]\n')
    (tmp_path / "cells.json").write_text("[]")
    refused = mabrfl("run", "sweep.toml")
    assert refused.code == CONFIG
    assert refused.err.endswith("is the file of a sweep, not of a run; try: mabrfl sweep sweep.toml\n")
    refused = mabrfl("run", "--force", "--out", ".")
    assert (refused.code, refused.err) == (
        OUTPUT,
        "error: output folder '.' is that of a sweep; choose another with --out\n",
    )
    assert mabrfl("run", "--rounds", "1", "--out", "r").code == 0
    refused = mabrfl("audit", "show", "r")
    assert (refused.code, refused.out) == (5, "")
    assert "is the folder of a run, which has no audit; try: mabrfl explain r" in refused.err


def test_no_arguments_show_the_help_and_are_a_mistake(mabrfl: Callable[..., Any]) -> None:
    done = mabrfl()
    assert done.code == USAGE
    assert "Usage: mabrfl" in done.out + done.err


def test_help_and_version_are_no_mistakes(mabrfl: Callable[..., Any]) -> None:
    from mabrfl._version import __version__

    assert mabrfl("--version").out == f"mabrfl {__version__}\n"
    for command in ((), ("run",), ("demo",), ("list",), ("data",)):
        done = mabrfl(*command, "--help")
        assert (done.code, done.err) == (0, "")
        assert "Usage: mabrfl" in done.out


def test_a_configuration_comes_from_standard_input_too(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    text = b"rounds = 2\nattack = 'lie'\nattackers = 5\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert "lie by 5 of 20 clients" in mabrfl("run", "-").out


def test_list_shows_everything_or_one_kind(mabrfl: Callable[..., Any]) -> None:
    everything = mabrfl("list").out
    for word in ("mab-rfl", "thompson-top", "agr-krum", "vgg-lite", "fashion-mnist", "reference", "dirichlet"):
        assert word in everything
    attacks = mabrfl("list", "attack").out
    assert attacks == mabrfl("list", "attacks").out
    assert "label-flip" in attacks
    assert "multi-krum" not in attacks


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("run", "'-' reads standard input"),
        ("sweep", "settings of all runs, and what varies"),
        ("table", "several are taken together"),
        ("pack", "Packed file to write"),
        ("render", "Files of mabrfl pack"),
        ("list", "Only these: defenses"),
        ("data fetch", "see: mabrfl data list"),
        ("data check", "default: all"),
    ],
)
def test_the_help_of_a_command_explains_its_arguments(
    mabrfl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, command: str, sentence: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = mabrfl(*command.split(), "--help").out
    panel = shown.partition("Arguments")[2].partition("Options")[0]
    assert sentence in panel
