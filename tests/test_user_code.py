"""Fingerprints of a user's own code: what changes them, and what does not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mabrfl.catalog import check_code, code_of
from mabrfl.catalog.user_code import fingerprint

RULE = '''
"""My rule."""
import numpy as np
from beside import scale
import near.inner


class Rule:
    """Averages."""

    def __call__(self, cohort):
        """Decide."""
        # All the same.
        return scale(np.ones(len(cohort)))
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a rule and the modules that it imports."""
    files = {
        "mine.py": RULE,
        "beside.py": "from further import FACTOR\ndef scale(rows):\n    return FACTOR * rows\n",
        "further.py": "FACTOR = 2.0\n",
        "unrelated.py": "NUMBER = 1\n",
        "near/__init__.py": "",
        "near/inner.py": "from . import other\nfrom .other import VALUE\n",
        "near/other.py": "VALUE = 1\n",
        "near/unused.py": "VALUE = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def now(target: str = "mine:Rule") -> str | None:
    importlib.invalidate_caches()
    return fingerprint([target])


def test_finding_a_fingerprint_imports_nothing(place: Path) -> None:
    (place / "mine.py").write_text("raise RuntimeError('it was run')\n")
    before = set(sys.modules)
    assert now() is not None
    assert not {"mine", "beside", "near"} & (set(sys.modules) - before)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "np.ones", "np.zeros"),
        ("mine.py", "class Rule:", "class Rule(object):"),
        ("beside.py", "FACTOR * rows", "rows * FACTOR"),
        ("further.py", "2.0", "2.5"),
        ("near/__init__.py", "", "import os\n"),
        ("near/inner.py", "VALUE", "VALUE as v"),
        ("near/other.py", "1", "2"),
    ],
)
def test_a_change_of_the_code_or_of_what_it_imports_beside_it_is_another_fingerprint(
    place: Path, file: str, old: str, new: str
) -> None:
    before = now()
    text = (place / file).read_text()
    (place / file).write_text(text.replace(old, new) if old else new)
    assert now() != before
    (place / file).write_text(text)
    assert now() == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("mine.py", "# All the same.", "# Every row\n        # counts the same."),
        ("mine.py", '"""Averages."""', '"""Takes the mean."""'),
        ("mine.py", '        """Decide."""\n', ""),
        ("mine.py", '"""My rule."""', "\n\n"),
        ("mine.py", "scale(np.ones(len(cohort)))", "scale(\n            np.ones(len(cohort)),\n        )"),
        ("further.py", "2.0", "2.00"),
        ("unrelated.py", "1", "2"),
        ("near/unused.py", "1", "2"),
    ],
)
def test_comments_docstrings_formatting_and_unrelated_files_do_not_count(
    place: Path, file: str, old: str, new: str
) -> None:
    before = now()
    text = (place / file).read_text()
    assert old in text
    (place / file).write_text(text.replace(old, new))
    assert now() == before


def test_a_string_that_is_no_docstring_counts(place: Path) -> None:
    (place / "further.py").write_text("FACTOR = 2.0\nNAME = 'a'\n")
    before = now()
    (place / "further.py").write_text("FACTOR = 2.0\nNAME = 'b'\n")
    assert now() != before


def test_modules_that_import_each_other_have_a_fingerprint(place: Path) -> None:
    (place / "further.py").write_text("import beside\nFACTOR = 2.0\n")
    before = now()
    assert before is not None
    (place / "further.py").write_text("import beside\nFACTOR = 3.0\n")
    assert now() != before


def test_a_module_in_a_package_includes_its_packages_and_not_its_neighbours(place: Path) -> None:
    before = now("near.inner:f")
    (place / "near" / "unused.py").write_text("VALUE = 3\n")
    assert now("near.inner:f") == before
    (place / "near" / "__init__.py").write_text("FLAG = True\n")
    assert now("near.inner:f") != before


def test_a_package_without_init_is_followed(place: Path) -> None:
    (place / "loose").mkdir()
    (place / "loose" / "rule.py").write_text("from loose.helper import x\nfrom ..beside import y\n")
    (place / "loose" / "helper.py").write_text("x = 1\n")
    before = now("loose.rule:f")
    assert before is not None
    (place / "loose" / "helper.py").write_text("x = 2\n")
    assert now("loose.rule:f") != before


def test_other_installed_packages_do_not_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = place / "site-packages"
    for name, text in (("plugin", "import library\nfrom plugin import part"), ("library", "x = 1")):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(text + "\n")
    (site / "plugin" / "part.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(site)
    before = now("plugin:f")
    assert before is not None
    (site / "library" / "__init__.py").write_text("x = 2\n")
    assert now("plugin:f") == before
    (site / "plugin" / "part.py").write_text("x = 2\n")
    assert now("plugin:f") != before


def test_a_file_that_is_not_python_counts_by_its_bytes(place: Path) -> None:
    (place / "mine.py").write_text("def :\n")
    before = now()
    (place / "mine.py").write_text("def  :\n")
    assert before is not None
    assert now() not in (None, before)


def test_a_source_that_cannot_be_found_has_no_fingerprint(place: Path) -> None:
    for target in ("nowhere:f", "mine.nothing:f", "sys:exit", ""):
        assert now(target) is None


def test_only_the_users_own_names_of_a_run_have_a_fingerprint(place: Path) -> None:
    settings = {
        "dataset": "digits",
        "model": "mlp",
        "defense": "mine:Rule",
        "selector": "mabrfl.selection.uniform:All",
        "attack": "sleeper",
        "attack_options": {"inner": "beside:attack", "rounds": 3},
    }
    code = code_of(settings)
    assert code == {"mine:Rule": now("mine:Rule"), "beside:attack": now("beside:attack")}
    assert None not in code.values()
    assert code_of({"defense": "krum", "attack": "agrt"}) == {}


def test_a_plugin_is_its_users_own_and_a_removed_one_is_not_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(target: str) -> None:
        folder = place / target.replace(":", "-") / "plugin-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[mabrfl.defenses]\nours = {target}\n")
        monkeypatch.syspath_prepend(folder.parent)

    installed("mine:Rule")
    before = code_of({"defense": "ours", "attack": "mine"})
    assert before == {"ours": now("mine:Rule"), "mine": None}
    installed("mine:Other")
    assert code_of({"defense": "ours"})["ours"] not in (None, before["ours"])


def test_a_check_tells_changed_from_unknown(place: Path) -> None:
    settings = {"defense": "mine:Rule", "attack": "gone:Attack", "model": "further:net"}
    today = code_of(settings)
    recorded = {"mine:Rule": "0" * 64, "gone:Attack": "1" * 64, "further:net": today["further:net"]}
    check = check_code(settings, recorded)
    assert (check.changed, check.not_found, check.not_recorded) == (("mine:Rule",), ("gone:Attack",), ())
    for nothing in (None, {}, "damaged", {"mine:Rule": None}):
        check = check_code(settings, nothing)
        assert (check.changed, check.not_found) == ((), ("gone:Attack",))
        assert sorted(check.not_recorded) == ["further:net", "mine:Rule"]
