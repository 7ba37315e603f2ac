"""The files that are made of packed results and kept beside them: one list for the command, the docs and the tests.

``NAME.json.gz`` has the folder ``NAME``. It holds the tables in every format, ranks included; the table of detection
where there is anything to detect; and figures as SVG with the paper's own values. An ablation has its own table and
that of detection, and nothing else. The folder's ``README.md`` is written by hand and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from pathlib import Path

from mabrfl.errors import ConfigError, StateError
from mabrfl.recording.files import write_whole
from mabrfl.recording.folder import shown
from mabrfl.reports.ablation import ABLATION_FORMATS, AblationTable, ablation_table, has_ablation
from mabrfl.reports.detection import DetectionTable, detection_table, has_detection
from mabrfl.reports.detection_formats import detection_csv, detection_markdown
from mabrfl.reports.drawing import render
from mabrfl.reports.figures import draw
from mabrfl.reports.table_formats import as_csv, latex, markdown
from mabrfl.reports.tables import tabulate
from mabrfl.sweeps.results import PACKED_ENDING, Results, load_results

TABLES: Mapping[str, Callable[..., str]] = {
    "table.md": partial(markdown, ranks=True),
    "table.tex": partial(latex, ranks=True),
    "table.csv": partial(as_csv, ranks=True),
}
"""By the names of their files; figures have names of their own, with :data:`PICTURE` at their end."""
DETECTION: Mapping[str, Callable[[DetectionTable], str]] = {
    "detection.md": detection_markdown,
    "detection.csv": detection_csv,
}
"""The same of the table of detection."""
ABLATION: Mapping[str, Callable[[AblationTable], str]] = {
    "ablation.md": ABLATION_FORMATS["markdown"],
    "ablation.tex": ABLATION_FORMATS["latex"],
    "ablation.csv": ABLATION_FORMATS["csv"],
}
"""The same of the table of an ablation."""
PICTURE = ".svg"
BY_HAND = "README.md"
"""The one file of a folder that is not made of the results: what came of them, in words."""


def folder_beside(packed: Path | str) -> Path:
    """Return the folder for the files made of a packed file.

    Raises
    ------
    ConfigError
        If its name is not that of a packed file.
    """
    path = Path(packed)
    if not path.name.endswith(PACKED_ENDING) or path.name == PACKED_ENDING:
        raise ConfigError(f"packed results are called NAME{PACKED_ENDING}; got {shown(path)}")
    return path.with_name(path.name.removesuffix(PACKED_ENDING))


def rendered(results: Results, figures: Container[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of every file that is made of results; the same results give the same bytes.

    Parameters
    ----------
    results
        Of a packed file.
    figures
        The stems of the figures to draw; all by default.
    """
    if has_detection(results.cells):
        detection = detection_table(results.cells)
        for name, write_detection in DETECTION.items():
            yield name, write_detection(detection).encode("utf-8")
    if has_ablation(results.cells):
        # One defense in many variants: a column and a line for each would be hard to read.
        ablation = ablation_table(results.cells)
        for name, write_ablation in ABLATION.items():
            yield name, write_ablation(ablation).encode("utf-8")
        return
    tables = tabulate(results.cells)
    for name, write in TABLES.items():
        yield name, write(tables).encode("utf-8")
    try:
        drawn = draw(results.cells, compare=True, only=figures)
    except StateError:
        # Nothing is done yet; the tables say so.
        return
    for stem, figure in drawn.items():
        yield stem + PICTURE, render(figure, "svg")


def write_rendered(packed: Path | str, *, all_figures: bool = False) -> tuple[list[Path], list[Path]]:
    """Write the files of a packed file into its folder; return them, and the folder's other files but ``README.md``.

    Parameters
    ----------
    packed
        The packed file.
    all_figures
        Whether to draw every figure that the results have. Otherwise only those that the folder has are drawn again.

    Raises
    ------
    StateError
        If the packed file cannot be read.
    OutputError
        If a file cannot be written.
    """
    folder, written = folder_beside(packed), []
    figures = None if all_figures else {path.stem for path in folder.glob(f"*{PICTURE}")}
    for name, data in rendered(load_results(packed), figures):
        write_whole(folder / name, data)
        written.append(folder / name)
    return written, sorted(set(folder.iterdir()) - {*written, folder / BY_HAND})
