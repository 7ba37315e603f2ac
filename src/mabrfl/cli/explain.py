"""``mabrfl explain``: why a client was rejected, accepted or not invited, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from mabrfl.errors import ConfigError, StateError, suggest

if TYPE_CHECKING:
    from mabrfl.recording.stories import RunStory
    from mabrfl.sweeps.results import Cell

_MOST = 12
"""Cells that are named where one has to be chosen."""


def explain(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="The folder of a run, a sweep's folder, a packed file, or a Flower strategy's state_dir.",
        ),
    ],
    client: Annotated[
        str | None, typer.Option(help="Only this client; for the hash of a key, its beginning is enough.")
    ] = None,
    round_number: Annotated[int | None, typer.Option("--round", min=1, help="Only this round.")] = None,
    cell: Annotated[
        str | None, typer.Option(help="Of a sweep or a packed file: which run, by the beginning of its key.")
    ] = None,
) -> None:
    """Say why clients were rejected, accepted or not invited, in sentences with the numbers.

    Without options: every client in one line. With --client: its whole story over the rounds. With --round: what
    happened to each client in that round. With both: one answer.
    """
    from mabrfl.recording.audit import safe_text

    console = Console()
    for heading, text in _lines(place, client, round_number, cell):
        line = Text(f"{safe_text(heading)}: " if heading else "", style="bold")
        line.append(safe_text(text, 10_000), style="not bold")
        console.print(line, soft_wrap=not console.is_terminal)


def _lines(place: Path, client: str | None, number: int | None, cell: str | None) -> Iterator[tuple[str, str]]:
    story = _story(place, cell)
    if story is None:
        yield from _counts(_chosen_cell(place, cell), client, number)
        return
    if not story.records:
        raise StateError(f"{place}: no round is recorded there yet")
    if client is None and number is None:
        yield from (("", story.summary(each)) for each in story.clients)
        yield "", "With --client ID: the story of a client. With --round N: why each client was accepted or rejected."
        yield "", "What the numbers mean: docs/explain.md."
    elif client is None:
        assert number is not None
        record = story.record(number)
        yield "", f"Round {number}: {len(record.selected)} clients were invited. Events: {_events(record.events)}."
        yield from ((f"client {each}", story.sentence(each, number)) for each in story.clients)
    elif number is None:
        found = story.find(client)
        yield "", story.summary(found)
        yield from story.chapters(found)
    else:
        found = story.find(client)
        yield f"client {found}, round {number}", story.sentence(found, number)


def _events(events: Sequence[str]) -> str:
    return ", ".join(events) or "none"


def _story(place: Path, cell: str | None) -> RunStory | None:
    """Return the story of a run, or of a Flower federation; None if there are only totals."""
    from mabrfl.recording.audit import AUDIT
    from mabrfl.recording.folder import ROUNDS
    from mabrfl.recording.ownership import PLAN
    from mabrfl.recording.stories import story_of_run

    if (place / AUDIT).is_file() or place.name == AUDIT:
        return _of_audit(place if place.name == AUDIT else place / AUDIT)
    if (place / PLAN).is_file():
        from mabrfl.sweeps.results import CELLS, KEY_LENGTH

        place = place / CELLS / _chosen_cell(place, cell).key[:KEY_LENGTH]
    return story_of_run(place) if (place / ROUNDS).is_file() else None


def _of_audit(file: Path) -> RunStory:
    from mabrfl.recording.audit import read_audit
    from mabrfl.recording.audit_records import records_of_audit
    from mabrfl.recording.stories import RunStory

    rows: list[dict[str, Any]] = []
    try:
        rows.extend(read_audit(file))
    except StateError as error:
        # A running strategy may be writing the last line; mabrfl audit verify tells damage from that.
        typer.secho(f"note: {error}; the lines before it are explained", fg="yellow", err=True)
    return RunStory(records_of_audit(rows), truth=False)


def _chosen_cell(place: Path, cell: str | None) -> Cell:
    """Return the cell of a sweep or a packed file whose key begins so, or the only one."""
    from mabrfl.sweeps.cells import label_of
    from mabrfl.sweeps.results import load_results

    cells = load_results(place, rounds=not place.is_dir()).cells
    found = [each for each in cells if cell is None or each.key.startswith(cell)]
    if len(found) == 1:
        return found[0]
    known = [f"--cell {each.key[:8]} ({label_of(each.axes) or each.config['defense']})" for each in (found or cells)]
    more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    what = "which run? " if found else f"no key begins with '{cell}'{suggest(str(cell), [])}; "
    raise ConfigError(f"{what}{', '.join(known[:_MOST])}{more}".replace("; known: none", ""))


def _counts(cell: Cell, client: str | None, number: int | None) -> Iterator[tuple[str, str]]:
    """Yield the totals of each client: packed results have no verdicts."""
    if number is not None:
        raise ConfigError("packed results have no single verdicts; --round needs the folder of the run")
    names = [str(each) for each in cell.clients.get("id", ())]
    if client is not None and client not in names:
        raise ConfigError(f"unknown client '{client}'{suggest(client, names[:20])}")
    for k, name in enumerate(names):
        if client in (None, name):
            yield "", _totals(cell, k, name)
    yield "", "Packed results have totals only. The folder of the run has every verdict with its numbers."


def _totals(cell: Cell, k: int, name: str) -> str:
    of = {column: values[k] for column, values in cell.clients.items()}
    role = "in truth an attacker" if of.get("attacker") else "in truth honest"
    ends = []
    for column, word in (("last_selected", "last invited"), ("last_accepted", "last accepted")):
        ends.append(f"{word} in round {of[column]}" if of.get(column) else f"never {word.removeprefix('last ')}")
    return (
        f"Client {name}, {role}, was invited in {of.get('selected', 0)} of {cell.rounds_done} rounds and rejected in "
        f"{of.get('rejected', 0)}; {' and '.join(ends)}."
    )
