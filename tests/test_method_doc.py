"""docs/method.md names only things that exist, and misses no audited point."""

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest

from mabrfl.config import RunConfig
from mabrfl.mab.presets import PRESETS, MabRflOptions

TEXT = (Path(__file__).parent.parent / "docs" / "method.md").read_text()


def audited():
    table = TEXT.split("## Every audited point")[1]
    rows = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and cells[1].isdigit():
            rows[int(cells[1])] = cells[2:6]
    return rows


def test_all_48_points_are_there():
    assert sorted(audited()) == list(range(1, 49))


def test_every_option_of_mab_rfl_is_documented():
    documented = set(re.findall(r"`(\w+)`", " ".join(row[1] for row in audited().values())))
    assert {field.name for field in fields(MabRflOptions)} - documented == {"history"}


@pytest.mark.parametrize("number", [n for n in range(1, 24) if n != 7])
def test_presets_have_the_values_of_the_table(number):
    _, option, *columns = audited()[number]
    name = re.findall(r"`(\w+)`", option)[0]
    for preset, cell in zip(("paper", "reference"), columns, strict=True):
        stated = re.findall(r"`([\w-]+)`|([-\d.]+)", cell)
        if cell == "the same":
            continue
        value = getattr(PRESETS[preset], name)
        first = stated[0][0] or stated[0][1]
        assert str(value) == first or float(first) == value, (number, preset)


def attribute(path):
    """Resolve `module.Name.attribute` inside the package."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["mabrfl", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(path)


PATHS = sorted(
    set(
        re.findall(
            r"`((?:selection|reputation|defense|simulation|mab|screening|vectors|aggregation|attacks|recording|"
            r"global_model)\.[\w.]+)",
            re.sub(r"config: .*?\||vectors\.py", "|", TEXT),
        )
    )
)


@pytest.mark.parametrize("path", PATHS)
def test_every_function_named_exists(path):
    assert attribute(path.rstrip(".")) is not None


def test_every_config_key_named_exists():
    keys = re.findall(r"`([\w.]+)`", " ".join(re.findall(r"config: (.*?)\|", TEXT)))
    assert len(keys) > 10
    for key in keys:
        model = RunConfig
        for part in key.split("."):
            field = model.model_fields[part]
            model = field.annotation


@pytest.mark.parametrize(
    ("number", "where"),
    [
        (n, where)
        for n, row in audited().items()
        for where in re.findall(r"of `((?:attacks|aggregation)\.\w+)`", row[1])
    ],
)
def test_options_of_attacks_and_rules_exist(number, where):
    names = re.findall(r"`(\w+)`", audited()[number][1].split(f" of `{where}`")[0].split(";")[-1])
    assert names
    for name in names:
        assert name in {field.name for field in fields(attribute(where))} or hasattr(attribute(where), name), name
