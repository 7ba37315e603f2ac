"""The keys of runs: what changes one, and what does not. Every committed key is checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mabrfl
from mabrfl import catalog
from mabrfl.config import RunConfig, config_hash, resolve
from mabrfl.config import identity as identity_module
from mabrfl.config.identity import completed, identity
from mabrfl.config.model import ResolvedConfig, ResolvedPartition, ResolvedTraining
from mabrfl.mab.presets import PRESETS
from mabrfl.sweeps.results import Cell, load_results

ROOT = Path(__file__).parent.parent
PACKAGE = Path(mabrfl.__file__).parent
RECORDED = ROOT / "tests" / "neutral_values.json"
PACKED = sorted((ROOT / "results").glob("*.json.gz"))

OPTIONS_CLASS = re.compile(r'(?s)(@dataclass\(frozen=True, kw_only=True\)\nclass \w+[^\n]*:\n    """.*?"""\n)')
"""Rules, selectors and attacks: their fields are their options."""

KEYS_IN_A_NEW_PROCESS = """
import json, sys
from mabrfl.config import RunConfig, config_hash
print(json.dumps([config_hash(RunConfig(**config)) for config in json.load(sys.stdin)]))
"""


@cache
def committed() -> tuple[Cell, ...]:
    cells = {cell.key: cell for packed in PACKED for cell in load_results(packed, rounds=False).cells}
    if not cells:
        pytest.skip("NOTHING IS CHECKED: there are no results/*.json.gz in this checkout")
    return tuple(cells.values())


@cache
def committed_runs() -> dict[str, ResolvedConfig]:
    return {cell.key: resolve(RunConfig(**cell.config)) for cell in committed()}


def missing() -> set[str]:
    """The committed runs that would have to be run again."""
    return {key for key, run in committed_runs().items() if config_hash(run) != key}


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(old, text), f"{path.name} has no {old}"
    path.write_text(re.sub(old, new, text, count=1), encoding="utf-8")


def everywhere(package: Path, old: str, new: str) -> None:
    for path in package.rglob("*.py"):
        path.write_text(re.sub(old, new, path.read_text(encoding="utf-8")), encoding="utf-8")


def neutral_settings(package: Path) -> None:
    """Give the run, its sections and every class of options a new setting."""
    for section in ("TrainingConfig", "PartitionConfig", "RunConfig"):
        edited(
            package / "config" / "model.py",
            rf'(?s)(class {section}\(Section\):\n    """.*?"""\n)',
            r'\1\n    brand_new: Literal["off", "on"] = "off"\n',
        )
    for path, options in (("mab/presets.py", "MabRflOptions"), ("mab/hardened/hardened_options.py", "HardenedOptions")):
        edited(package / path, rf'(?s)(class {options}:\n    """.*?"""\n)', r"\1\n    brand_new: bool = False\n")
    for path in (path for room in ("aggregation", "attacks", "selection") for path in (package / room).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        path.write_text(OPTIONS_CLASS.sub(r"\1\n    brand_new: int = 7\n", text), encoding="utf-8")


def moved_modules(package: Path) -> None:
    """Move a module, move a folder, rename two classes."""
    (package / "aggregation" / "distance.py").rename(package / "aggregation" / "moved.py")
    (package / "attacks").rename(package / "lies")
    everywhere(package, r"mabrfl\.aggregation\.distance", "mabrfl.aggregation.moved")
    everywhere(package, r"mabrfl\.attacks\b(?=[. :\"])", "mabrfl.lies")
    everywhere(package, r"\bKrum\b", "KrumRule")
    everywhere(package, r"\bHardenedOptions\b", "OptionsOfTheHardenedRule")


@pytest.mark.parametrize("change", [neutral_settings, moved_modules])
def test_a_neutral_setting_or_a_moved_module_changes_no_committed_key(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    copy = tmp_path / "src" / "mabrfl"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    change(copy)
    run = subprocess.run(
        [sys.executable, "-c", KEYS_IN_A_NEW_PROCESS],
        input=json.dumps([cell.config for cell in committed()]),
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [cell.key for cell in committed()]


def test_every_committed_run_has_the_key_of_its_settings() -> None:
    assert missing() == set()


REVISED: list[tuple[catalog.Kind, str, Callable[[dict[str, Any]], bool]]] = [
    ("attacks", "lie", lambda config: "lie" in (config["attack"], config["attack_options"].get("inner"))),
    ("defenses", "krum", lambda config: config["defense"] == "krum"),
    ("defenses", "mab-rfl", lambda config: config["defense"] == "mab-rfl"),
    ("presets", "hardened", lambda config: config["defense"] == "mab-rfl" and config["preset"] == "hardened"),
    ("selectors", "uniform", lambda config: config["selector"] == "uniform"),
    ("models", "vgg-tiny", lambda config: config["model"] == "vgg-tiny"),
    ("datasets", "digits", lambda config: config["dataset"] == "digits"),
]


@pytest.mark.parametrize(("kind", "name", "concerned"), REVISED, ids=[f"{kind}-{name}" for kind, name, _ in REVISED])
def test_a_raised_revision_makes_exactly_the_runs_that_use_it_missing(
    kind: catalog.Kind, name: str, concerned: Callable[[dict[str, Any]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = catalog.entry

    def revised(some: catalog.Kind, which: str) -> catalog.Entry:
        entry = known(some, which)
        return replace(entry, revision=entry.revision + 1) if (some, which) == (kind, name) else entry

    monkeypatch.setattr(catalog, "entry", revised)
    expected = {cell.key for cell in committed() if concerned(cell.config)}
    assert expected
    assert missing() == expected


def test_a_revised_training_loop_makes_every_run_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "REVISIONS", {**identity_module.REVISIONS, "training": 2})
    assert missing() == {cell.key for cell in committed()}


@pytest.mark.parametrize(
    "changed",
    [
        {"workers": 3},
        {"device": "cuda"},
        {"allow_majority": True},
        {"attackers": 6},
        {"preset": "paper"},
        {"assumed_malicious": 6},
        {"training": {"epochs": 3}},
        {"attack": "agrt"},
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_key(changed: dict[str, Any]) -> None:
    base = {"defense": "krum", "attack": "agr-krum", "attackers": 0.3}
    assert config_hash(RunConfig(**{**base, **changed})) == config_hash(RunConfig(**base))


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"rounds": 31},
        {"attackers": 5},
        {"assumed_malicious": 5},
        {"preset": "reference"},
        {"training": {"epochs": 4}},
        {"training": {"precision": "bf16"}},
        {"partition": {"q": 0.25}},
        {"selector": "acs"},
        {"defense_options": {"neighbours": "n-f-1"}},
        {"defense": "mab-rfl"},
        {"defense": "mab-rfl", "preset": "paper"},
    ],
)
def test_what_changes_the_result_changes_the_key(changed: dict[str, Any]) -> None:
    base = {"defense": "krum", "attack": "agr-krum", "attackers": 0.3}
    assert config_hash(RunConfig(**{**base, **changed})) != config_hash(RunConfig(**base))


def test_an_option_of_a_preset_is_part_of_the_key_only_if_it_is_not_neutral() -> None:
    usual = identity(resolve(RunConfig(preset="hardened")))
    other = identity(resolve(RunConfig(preset="hardened", defense_options={"clip": 3.0})))
    assert usual["defense_options"] == {"separation_first": 0.6}  # its default has changed, its neutral value has not
    assert other["defense_options"] == {"separation_first": 0.6, "clip": 3.0}


def test_a_recorded_configuration_gets_the_settings_that_it_is_too_old_to_have() -> None:
    whole = resolve(RunConfig(attack="lie", attackers=0.3)).model_dump(mode="json", exclude={"workers", "device"})
    old = json.loads(json.dumps(whole))
    del old["attackers_chosen"], old["training"]["init"], old["defense_options"]["clip"]
    del old["attack_options"][next(iter(old["attack_options"]))]
    assert completed(old) == whole


def test_a_recorded_configuration_of_a_users_own_module_imports_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "intruder.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = {**resolve(RunConfig()).model_dump(mode="json"), "defense": "intruder:Rule", "defense_options": {"a": 1}}
    assert completed(config)["defense_options"] == {"a": 1}
    assert "intruder" not in sys.modules


def neutral_values() -> dict[str, Any]:
    """Every neutral value there is, by place; an option of a name has its revision in the place."""
    values: dict[str, Any] = {}
    for section in (ResolvedConfig, ResolvedTraining, ResolvedPartition):
        for name, field in section.model_fields.items():
            value = identity_module.neutral_of(field)
            if isinstance(value, str | int | float):
                values[f"{section.__name__}.{name}"] = value
    for preset in PRESETS:
        options = identity_module.neutral_options("defenses", "mab-rfl", preset, {})
        values |= {f"{type(PRESETS[preset]).__name__}.{name}": value for name, value in options.items()}
    for kind in ("defenses", "selectors", "attacks", "preaggregators"):
        for name in (name for name, entry in catalog.BUILT_IN[kind].items() if not entry.presets):
            place = f"{kind}/{name}, revision {catalog.entry(kind, name).revision}"
            options = identity_module.neutral_options(kind, name, "", {})
            values |= {f"{place}: {option}": value for option, value in options.items()}
    return values


def test_no_neutral_value_changes() -> None:
    """A changed default would give new runs the keys of old ones, so the old value stays the neutral one.

    Write ``Annotated[..., Neutral(old)]`` for a setting and ``metadata={"neutral": old}`` for an option of a preset;
    raise the revision for an option of a rule, selector or attack. New ones: ``python tests/test_identity.py``.
    """
    recorded, now = json.loads(RECORDED.read_text(encoding="utf-8")), neutral_values()
    assert {place: value for place, value in recorded.items() if now.get(place, value) != value} == {}
    assert now.keys() - recorded.keys() == set(), "write them down: python tests/test_identity.py"


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(neutral_values(), indent=1) + "\n", encoding="utf-8")
