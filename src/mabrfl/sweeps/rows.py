"""Results as rows: plain dictionaries for CSV files and data frames. One row per run, round, client or verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mabrfl.catalog import effective_preset
from mabrfl.config.differences import flat
from mabrfl.errors import StateError, extra_needed
from mabrfl.recording import RoundRecord, read_rounds
from mabrfl.recording.folder import ROUNDS

if TYPE_CHECKING:
    from mabrfl.sweeps.results import Cell

_NAMES = ("dataset", "model", "defense", "preset", "selector", "attack")
_KEY = 16


class Rows(list[dict[str, Any]]):
    """Rows of results: a list of dictionaries with plain values.

    Examples
    --------
    >>> rows = Rows([{"round": 1, "accuracy": 50.0}, {"round": 2, "accuracy": 75.0, "loss": 0.5}])
    >>> print(rows.csv(), end="")
    round,accuracy,loss
    1,50.0,
    2,75.0,0.5
    """

    @property
    def columns(self) -> list[str]:
        """Every key, in the order in which they first occur."""
        return list(dict.fromkeys(key for row in self for key in row))

    def csv(self) -> str:
        """Return the rows as CSV with one header; a value that a row does not have is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self)
        return text.getvalue()

    def frame(self) -> Any:
        """Return the rows as a ``pandas.DataFrame`` (extra ``mabrfl[frames]``)."""
        with extra_needed("a data frame"):
            pandas = import_module("pandas")
        return pandas.DataFrame(list(self), columns=self.columns)


def run_rows(cells: Iterable[Cell]) -> Rows:
    """Return one row per run: its settings, whether it is done, and the numbers of its summary."""
    return Rows(
        {
            **_names(cell),
            **{f"axis.{key}": value for key, value in cell.axes.items()},
            **_options(cell.config),
            "status": cell.status,
            **_numbers(cell.summary or {}),
        }
        for cell in cells
    )


def round_rows(cells: Iterable[Cell]) -> Rows:
    """Return one row per round of each run: accuracy, loss, counts, and every number among the facts."""
    return Rows(
        {**_names(cell), **dict(zip(cell.series, values, strict=True))}
        for cell in cells
        for values in zip(*cell.series.values(), strict=True)
    )


def client_rows(cells: Iterable[Cell]) -> Rows:
    """Return one row per client of each run: in truth an attacker or not, and how often selected and rejected."""
    return Rows(
        {**_names(cell), **dict(zip(("client", *list(cell.clients)[1:]), values, strict=True))}
        for cell in cells
        for values in zip(*cell.clients.values(), strict=True)
    )


def verdict_rows(cells: Iterable[Cell]) -> Rows:
    """Return one row per verdict of each run, with the evidence and the reputation after the round.

    Raises
    ------
    StateError
        If a finished run has no verdicts: it is from a packed file, or was adopted from one.
    """
    return Rows(row for cell in cells for row in _verdicts(cell))


def _verdicts(cell: Cell) -> Iterator[dict[str, Any]]:
    if cell.folder is None or not (cell.folder / ROUNDS).is_file():
        if cell.status in ("done", "running") and cell.series:
            raise StateError("packed results have no verdicts; read the folder of the run, or of the sweep")
        return
    for record in read_rounds(cell.folder).records:
        yield from ({**_names(cell), **row} for row in rows_of_record(record))


def rows_of_record(record: RoundRecord) -> Iterator[dict[str, Any]]:
    """Yield the verdicts of one round as rows."""
    for client, verdict in record.verdicts.items():
        good, bad = record.reputation.get(client, (None, None))
        yield {
            "round": record.round,
            "client": client,
            "attacker": client in record.attackers,
            "accepted": verdict.accepted,
            "reason": verdict.reason,
            "credit": verdict.credit,
            "benign": good,
            "malicious": bad,
            **{f"evidence.{name}": value for name, value in verdict.evidence.items()},
        }


def _names(cell: Cell) -> dict[str, Any]:
    """Return the columns that say which run a row belongs to."""
    return {
        "key": cell.key[:_KEY],
        **{name: cell.config[name] for name in _NAMES},
        "preset": effective_preset(cell.config["defense"], cell.config["preset"]),
        "attackers": cell.num_attackers,
        "attackers_percent": cell.percent,
        "clients": cell.config["clients"],
        "seed": cell.config["seed"],
    }


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are in tables of their own, by dotted key."""
    tables = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    return {key: str(value) if isinstance(value, list) else value for key, value in flat(tables).items()}


def _numbers(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a summary, without what the other columns have and without lists."""
    known = {*_NAMES, "attackers", "clients", "seed", "config_hash", "interrupted", "detection"}
    return {key: value for key, value in summary.items() if key not in known and not isinstance(value, list | dict)}
