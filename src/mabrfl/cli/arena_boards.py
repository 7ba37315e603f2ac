"""The tables that ``mabrfl arena`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl.arena.arena_records import Records
from mabrfl.arena.contest import FALLS, Fall
from mabrfl.arena.leaderboard import counts, measure_text, percent, place_text
from mabrfl.arena.scoring import Score, scores
from mabrfl.cli.live import say

_NAME_WIDTH = 17


def show_board(console: Console, records: Records, own: Sequence[str]) -> None:
    """Print the leaderboard."""
    known, shares = scores(records), records.tier.shares
    table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("place", justify="right")
    table.add_column("defense", overflow="fold", min_width=_NAME_WIDTH)
    heads = ["worst", *(percent(share) for share in shares), "mean", "clean", "goal", "rejected"]
    for head in heads:
        table.add_column(head, justify="right")
    for score in known:
        if score.place is not None:
            style = "bold cyan" if score.label in own else ""
            table.add_row(place_text(score), Text(score.label), *_numbers(score, shares), style=style)
    if any(score.place is not None for score in known):
        console.print(table)
        say(
            console,
            "Points lost: in the worst case (mean of the shares, and each share), on the mean, with nobody attacking.",
        )
        say(console, "In percent: success of attacks with a goal, honest updates rejected.")
    say(console, counts(records).replace("`", ""))
    for score in known:
        if score.label in own:
            say(console, _sentence(score, known), "bold")


def _numbers(score: Score, shares: Sequence[float]) -> list[str]:
    worst = score.worst or {}
    measures = [score.overall_worst, *(worst.get(share) for share in shares), score.overall_mean, score.clean]
    return [measure_text(measure) for measure in (*measures, score.success, score.rejected)]


def _sentence(score: Score, known: Sequence[Score]) -> str:
    placed = sum(one.place is not None for one in known)
    if score.place is None or score.hardest is None:
        return f"{score.label} has no place: {score.done} of {score.total} runs are done"
    hardest = "; ".join(f"{percent(share)}: {attack} on {task}" for share, (task, attack) in score.hardest.items())
    return f"{score.label} has place {place_text(score)} of {placed}. It loses most at {hardest}."


def show_falls(console: Console, found: Sequence[Fall], label: str) -> None:
    """Print which defenses fall to an attack."""
    shares = sorted({share for fall in found for share in fall.losses})
    table = Table(header_style="bold", title=Text(f"points lost to {label}"))
    table.add_column("defense", overflow="fold")
    for head in (*(percent(share) for share in shares), "goal, %"):
        table.add_column(head, justify="right")
    for fall in found:
        losses = [f"{fall.losses[share]:.1f}" if share in fall.losses else "—" for share in shares]
        success = "—" if fall.success is None else f"{fall.success:.0f}"
        table.add_row(Text(fall.defense), *losses, success, style="red" if fall.falls else "")
    console.print(table)
    fallen = [fall.defense for fall in found if fall.falls]
    names = f": {', '.join(fallen)}" if fallen else ""
    say(
        console,
        f"{len(fallen)} of {len(found)} defenses fall to {label} (lose more than {FALLS:g} points){names}",
        "bold",
    )
