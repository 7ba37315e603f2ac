"""Finished cells that were made with other code of the user's own than that of today."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mabrfl.catalog import CodeCheck, check_code
from mabrfl.recording.folder import ROUNDS, SUMMARY, explained
from mabrfl.recording.ownership import SERIES
from mabrfl.sweeps.results import Cell, Results


def code_notes(checks: Iterable[CodeCheck]) -> list[str]:
    """Return in one line each what is to be said about the code of finished cells: by name, and how many cells.

    Examples
    --------
    >>> code_notes([CodeCheck(changed=("mine:Rule",)), CodeCheck()])
    ["1 finished cell of 'mine:Rule' was made with other code; mabrfl sweep --rerun stale runs it again"]
    """
    changed: Counter[str] = Counter()
    not_found: Counter[str] = Counter()
    not_recorded: Counter[str] = Counter()
    for check in checks:
        changed.update(check.changed)
        not_found.update(check.not_found)
        not_recorded.update(check.not_recorded)
    unknown = "whether it has changed is unknown"
    return [
        *(
            f"{_cells(number, name)} {'was' if number == 1 else 'were'} made with other code; "
            f"mabrfl sweep --rerun stale runs {'it' if number == 1 else 'them'} again"
            for name, number in changed.items()
        ),
        *(f"{_cells(number, name)}: its source is not found here; {unknown}" for name, number in not_found.items()),
        *(f"{_cells(number, name)}: its code was not recorded; {unknown}" for name, number in not_recorded.items()),
    ]


def _cells(number: int, name: str) -> str:
    return f"{number} finished cell{'' if number == 1 else 's'} of '{name}'"


def notes_on_results(results: Iterable[Results]) -> list[str]:
    """Return what is to be said about the code of the finished cells of results, see :func:`code_notes`."""
    done = (cell for one in results for cell in one.cells if cell.status == "done")
    return code_notes(_check(cell) for cell in done)


def _check(cell: Cell) -> CodeCheck:
    return check_code(cell.config, cell.manifest.get("code"))


def forget_results(folder: Path) -> None:
    """Remove what makes a cell done, and its rounds, so that it can be run again.

    The summary goes first: from then on the cell is to be run, whatever happens to the sweep.
    """
    with explained(folder):
        for name in (SUMMARY, SERIES, ROUNDS):
            (folder / name).unlink(missing_ok=True)
