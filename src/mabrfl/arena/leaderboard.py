"""The leaderboard in words and as Markdown: who stands where, and where our own entry is not the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from mabrfl.arena.arena_records import Records
from mabrfl.arena.scoring import ERRORS, SMALLEST, Measure, Score, better, scores

OURS = "mab-rfl hardened"
"""Our own entry, which is judged like the others; where it is not the best, the page says so first."""


_CAPTION = "Points lost by each defense under each attack, and its worst case at the side."
_ORIGIN = (
    "This page is generated: `mabrfl arena --render docs` writes it from the committed records. "
    "[leaderboard-runs.html](leaderboard-runs.html) is the same to sort, with the runs of each defense under each "
    "attack and the commands that repeat them. [arena.md](arena.md) says how scenarios are chosen, and how to enter."
)
_LARGER = "Results on larger data, as far as they are run: [tier `laptop`](#tier-laptop)."


@dataclass(frozen=True)
class LeaderboardFigure:
    """One column of the leaderboard: the smaller the better. ``share``: the one that a worst case is at."""

    title: str
    words: str
    of: Callable[[Score], Measure | None]
    digits: int = 1
    unit: str = " points"
    share: float | None = None


def figures(shares: Sequence[float]) -> list[LeaderboardFigure]:
    """Return the columns of the leaderboard, in order."""

    def at(share: float, kind: str) -> Callable[[Score], Measure | None]:
        return lambda score: (getattr(score, kind) or {}).get(share)

    return [
        LeaderboardFigure("worst", "worst case over the shares", lambda score: score.overall_worst),
        *(
            LeaderboardFigure(
                f"worst {percent(share)}", f"worst case at {percent(share)}", at(share, "worst"), share=share
            )
            for share in shares
        ),
        LeaderboardFigure("mean", "mean loss over the shares", lambda score: score.overall_mean),
        *(
            LeaderboardFigure(f"mean {percent(share)}", f"mean loss at {percent(share)}", at(share, "mean"))
            for share in shares
        ),
        LeaderboardFigure("clean", "loss with nobody attacking", lambda score: score.clean),
        LeaderboardFigure("goal", "mean success of attacks with a goal", lambda score: score.success, unit=" %"),
        LeaderboardFigure(
            "goal, worst", "worst success of attacks with a goal", lambda score: score.worst_success, unit=" %"
        ),
        LeaderboardFigure("honest rejected", "honest updates rejected", lambda score: score.rejected, unit=" %"),
        LeaderboardFigure("ms a round", "time of the defense in a round", lambda score: score.milliseconds, unit=" ms"),
    ]


def percent(share: float) -> str:
    """Return a share as people write it.

    Examples
    --------
    >>> percent(0.44)
    '44 %'
    """
    return f"{100 * share:.3g} %"


def place_text(score: Score) -> str:
    """Return a place; others have the same one if an equals sign follows."""
    return "—" if score.place is None else f"{score.place}{'=' if score.tied else ''}"


def measure_text(measure: Measure | None, digits: int = 1) -> str:
    """Return a measure: its mean, and its deviation over the seeds if there are several.

    Examples
    --------
    >>> measure_text(Measure(3.14, None, 1)), measure_text(Measure(3.14, 0.52, 3))
    ('3.1', '3.1 ± 0.5')
    """
    if measure is None:
        return "—"
    mean = f"{measure.mean:.{digits}f}"
    mean = mean.removeprefix("-") if float(mean) == 0 else mean
    return mean if measure.deviation is None else f"{mean} ± {measure.deviation:.{digits}f}"


Pair = tuple[Measure, Measure] | None
"""A figure of two defenses; None if one does not have it."""


def _pair(figure: LeaderboardFigure, ours: Score, other: Score) -> Pair:
    own, theirs = figure.of(ours), figure.of(other)
    return None if own is None or theirs is None else (own, theirs)


def shortcomings(
    known: Sequence[Score],
    shares: Sequence[float],
    label: str = OURS,
    pair: Callable[[LeaderboardFigure, Score, Score], Pair] = _pair,
) -> list[str]:
    """Return one sentence for each figure in which a defense is not the best, by more than chance.

    FedAvg and others that reject nobody cannot be beaten in what a defense costs: the best is whoever has the least.
    Figures that a defense does not have are not compared.

    Parameters
    ----------
    known
        The scores of all defenses.
    shares
        The tier's.
    label
        The defense.
    pair
        Returns a figure of this defense and another one as they are to be compared.
    """
    ours = next((score for score in known if score.label == label), None)
    if ours is None:
        return []
    sentences = []
    for figure in figures(shares):
        pairs = [(pair(figure, ours, score), score) for score in known if score is not ours]
        ahead = [(*both, score) for both, score in pairs if both is not None and better(both[1], both[0])]
        if not ahead:
            continue
        own, best, leader = min(ahead, key=lambda one: (one[1].mean - one[0].mean, one[2].label))
        count = f"{len(ahead)} defense{'' if len(ahead) == 1 else 's'}" if len(ahead) > 1 else "one defense"
        sentences.append(
            f"{figure.words}: {measure_text(own, figure.digits)}{figure.unit}, and {count} "
            f"{'have' if len(ahead) > 1 else 'has'} less; the least has `{leader.label}` with "
            f"{measure_text(best, figure.digits)}{figure.unit}"
        )
    return sentences


def explanations(records: Records, known: Sequence[Score], label: str = OURS) -> list[str]:
    """Return in which scenario a defense loses most, for each share, and whom it rejected there: why it loses."""
    ours, column = next((score for score in known if score.label == label), None), records.column(label)
    if ours is None or column is None or ours.hardest is None or ours.worst is None:
        return []
    lines = []
    for share, (task, attack) in ours.hardest.items():
        place = (task, share, attack)
        runs = [run for one, run in column.runs.items() if (one.task, one.share, one.attack) == place]
        lines.append(
            f"at {percent(share)} it loses most, {measure_text(ours.worst[share])} points, to `{attack}` on {task}, "
            f"where it rejected {_mean_text([run.rejected for run in runs])} of the honest updates and "
            f"{_mean_text([run.caught for run in runs])} of the attackers'"
        )
    return lines


def _mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.0f} %" if known else "none"


def opening(records: Records, known: Sequence[Score], label: str = OURS) -> list[str]:
    """Return what is said first: where our own entry is not the best, and what it loses most to; nothing without it."""
    ours, shares = next((score for score in known if score.label == label), None), records.tier.shares
    if records.column(label) is None:
        return []
    if ours is None or ours.place is None:
        return [f"`{label}` has no place: its runs are not complete."]
    placed = sum(score.place is not None for score in known)
    lost, why = shortcomings(known, shares, label), explanations(records, known, label)
    waiting = len(known) - placed
    others = f"; {waiting} other{'s have' if waiting > 1 else ' has'} no place yet" if waiting else ""
    lines = [f"`{label}`, our own entry, has place {place_text(ours)} of {placed}{others}."]
    lines += [f"It is not the best in {len(lost)} of {len(figures(shares))} figures:"] if lost else []
    return [*lines, *(f"- {line}" for line in lost), "What it loses most to:", *(f"- {line}" for line in why)]


def counts(records: Records) -> str:
    """Return in a sentence how many runs there are, and of what."""
    tier, seeds = records.tier, records.seeds()
    wanted = [one for one in tier.scenarios() if one.seed in seeds]
    done = sum(run.error is None for column in records.columns for run in column.runs.values())
    failed = sum(run.error is not None for column in records.columns for run in column.runs.values())
    total = len(wanted) * len(records.columns)
    drawn = "" if tier.drawn_from is None else f", scenarios drawn from the seed {tier.drawn_from}"
    seeds_text = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else "no seed yet"
    return (
        f"Arena version {tier.version}, tier `{tier.name}`{drawn}: {len(records.columns)} defenses against "
        f"{len(tier.attacks)} attacks by {', '.join(percent(share) for share in tier.shares)} of "
        f"{clients(records)} clients on {' and '.join(task.label for task in tier.tasks)}; {seeds_text} of "
        f"{', '.join(map(str, tier.seeds))}. {done:,} of {total:,} runs are done"
        f"{f', {failed} failed' if failed else ''}; what is missing is shown as missing."
    )


def clients(records: Records) -> str:
    """Return how many clients the tasks have."""
    tier = records.tier
    numbers = dict.fromkeys(
        str(task.settings.get("clients", tier.settings.get("clients", "the"))) for task in tier.tasks
    )
    return " or ".join(numbers)


def legend() -> list[str]:
    """Return what the figures mean, in sentences."""
    return [
        "Lost accuracy is that of FedAvg with nobody attacking, same task and seed, minus that of the run, in points. "
        "The worst case is the largest loss over all attacks and tasks, the mean is over all of them.",
        "The place is by the worst case, averaged over the shares of attackers. Two defenses are tied (=) if they "
        f"differ by at most {SMALLEST:g} point or {ERRORS:g} standard errors over the seeds; ± is the deviation over "
        "seeds.",
        "Goal: how often a backdoor succeeds. That is no loss of accuracy, so that it does not count for the place.",
        "Rules that need the number of attackers are told the true one, as their papers assume; the others are not. "
        "Times are those of a machine whose load changed between defenses: they are no comparison of speed.",
    ]


def markdown(records: Records, larger: Sequence[str] = ()) -> str:
    """Return the leaderboard as a page in Markdown; the same records give the same text.

    Parameters
    ----------
    records
        Of the arena.
    larger
        Lines on a larger tier (:func:`~mabrfl.arena.task_board.task_section`), which stand at the end.
    """
    known, shares = scores(records), records.tier.shares
    columns = figures(shares)
    lines = ["# Leaderboard", "", counts(records), "", _ORIGIN]
    lines += ["", _LARGER] if larger else []
    if first := opening(records, known):
        lines += ["", f"## Where `{OURS}` is not the best", "", *paragraphs(first)]
    lines += ["", "## Table", "", *(f"- {line}" for line in legend()), ""]
    head = ["place", "defense", *(column.title for column in columns), "seeds"]
    lines += [table_row(head), table_row(["--:", ":--", *["--:"] * (len(head) - 2)])]
    placed = [score for score in known if score.place is not None]
    for score in placed:
        values = [measure_text(column.of(score), column.digits) for column in columns]
        lines.append(table_row([place_text(score), score.label, *values, str(len(score.seeds))]))
    lines += ["", f"![{_CAPTION}](images/leaderboard.svg)"]
    lines += ["", "## What each defense loses most to", ""]
    lines += [table_row(["defense", *(percent(share) for share in shares)]), table_row([":--", *[":--"] * len(shares)])]
    for score in placed:
        assert score.hardest is not None  # it has a place
        lines.append(table_row([score.label, *(f"{attack} ({task})" for task, attack in score.hardest.values())]))
    lines += ["", *_missing(known)]
    lines += ["", "## Made with", "", made_with(records), ""]
    return "\n".join([*lines, *larger])


def paragraphs(lines: Sequence[str]) -> list[str]:
    """Put an empty line between sentences and lists."""
    result: list[str] = []
    for line in lines:
        if result and line.startswith("-") != result[-1].startswith("-"):
            result.append("")
        result.append(line)
    return result


def table_row(values: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(values)} |"


def _missing(known: Sequence[Score]) -> list[str]:
    waiting = [score for score in known if score.place is None]
    if not waiting:
        return ["Nothing is missing."]
    begun = ", ".join(f"{score.label} ({score.done} of {score.total})" for score in waiting if score.done)
    others = ", ".join(score.label for score in waiting if not score.done)
    lines = [f"Without a place, because not all of their runs are done: {begun}."] if begun else []
    return ["## Missing", "", *lines, *([f"No run is done yet of: {others}."] if others else [])]


def made_with(records: Records) -> str:
    """Return the versions of what made the runs."""
    kinds = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in column.made_with.items()) for column in records.columns
    )
    return "; ".join(kind for kind in kinds if kind) + "." if any(kinds) else "Nothing yet."
