"""What is committed under ``results/`` is what the commands make of it.

``results/NAME.json.gz`` is made by ``mabrfl pack``; beside it, ``results/NAME/`` holds what is made from it:

- ``table.md`` by ``mabrfl table results/NAME.json.gz --ranks --out results/NAME/table.md``
  (``table.tex`` and ``table.csv``, if there, by the same with ``--format latex`` and ``--format csv``),
- pictures by ``mabrfl plot results/NAME.json.gz --compare --out results/NAME`` (any of them, as PNG, SVG or both).
"""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from mabrfl.drawing import render
from mabrfl.experiments.figures import draw
from mabrfl.experiments.results import PACKED_ENDING, Results, load_results
from mabrfl.experiments.table_formats import as_csv, latex, markdown
from mabrfl.experiments.tables import tabulate

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PACKED = sorted(RESULTS.glob(f"*{PACKED_ENDING}"))
WRITERS = {"table.md": markdown, "table.tex": latex, "table.csv": as_csv}

pytestmark = pytest.mark.skipif(
    not PACKED, reason="NOTHING IS CHECKED: there are no results/*.json.gz in this checkout yet"
)


def made_from(packed: Path) -> list[Path]:
    return sorted(packed.with_name(packed.name.removesuffix(PACKED_ENDING)).glob("*"))


TABLES = [(packed, path) for packed in PACKED for path in made_from(packed) if path.name in WRITERS]
PICTURES = [(packed, path) for packed in PACKED for path in made_from(packed) if path.suffix in (".png", ".svg")]


def named(value: object) -> str | None:
    return str(value.relative_to(RESULTS)) if isinstance(value, Path) else None


@cache
def loaded(packed: Path) -> Results:
    return load_results(packed)


@cache
def drawn(packed: Path) -> dict[str, Figure]:
    return draw(loaded(packed).cells, compare=True)


@pytest.mark.parametrize("packed", PACKED, ids=named)
def test_every_packed_file_can_be_read_and_has_its_table(packed: Path) -> None:
    assert loaded(packed).count("done") > 0
    names = {path.name for path in made_from(packed)}
    assert "table.md" in names
    pictures = {path.name for _, path in PICTURES}
    assert names <= {*WRITERS, *pictures}, "a file there is made by none of the commands above"


@pytest.mark.parametrize(("packed", "path"), TABLES, ids=named)
def test_a_committed_table_is_what_the_command_gives(packed: Path, path: Path) -> None:
    assert path.read_text(encoding="utf-8") == WRITERS[path.name](tabulate(loaded(packed).cells), ranks=True)


@pytest.mark.parametrize(("packed", "path"), PICTURES, ids=named)
def test_a_committed_picture_is_what_the_command_gives(packed: Path, path: Path) -> None:
    pinned = re.search(r"^matplotlib==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    if mpl.__version__ != pinned[1]:
        pytest.skip(f"NOT CHECKED: pictures are committed as Matplotlib {pinned[1]} draws them, not {mpl.__version__}")
    assert path.stem in drawn(packed), "no figure of these results has this name any more"
    if path.suffix == ".svg":
        assert render(drawn(packed)[path.stem], "svg") == path.read_bytes()
    else:
        # Compressed bytes depend on the machine's zlib; what they unpack to does not.
        again = imread(io.BytesIO(render(drawn(packed)[path.stem], "png")))
        np.testing.assert_array_equal(again, imread(path))


def test_no_folder_is_left_of_results_that_are_gone() -> None:
    folders = {path.name for path in RESULTS.iterdir() if path.is_dir()}
    assert folders == {path.name.removesuffix(PACKED_ENDING) for path in PACKED}
