"""A larger tier in words and as Markdown, task by task, as far as it is run."""

from __future__ import annotations

from collections.abc import Sequence

from mabrfl.arena.arena_records import Records
from mabrfl.arena.leaderboard import (
    OURS,
    LeaderboardFigure,
    Pair,
    clients,
    explanations,
    figures,
    made_with,
    measure_text,
    paragraphs,
    percent,
    place_text,
    shortcomings,
    table_row,
)
from mabrfl.arena.scenarios import NOBODY, first_entrants
from mabrfl.arena.scoring import SMALLEST, Score
from mabrfl.arena.task_scoring import TaskScore, duels, of_task, paired, task_scores


def task_counts(records: Records) -> str:
    """Return in a sentence what the tier has, and how much of it is done."""
    tier = records.tier
    done = sum(run.error is None for column in records.columns for run in column.runs.values())
    begun = sum(bool(column.runs) for column in records.columns)
    each = 1 + len(tier.attacks) * len(tier.shares)
    how_far = f"{done:,} run{'' if done == 1 else 's'} of {begun} defenses" if done else "no run"
    return (
        f"Arena version {tier.version}, tier `{tier.name}`: {len(tier.attacks)} attacks by "
        f"{', '.join(percent(share) for share in tier.shares)} of {clients(records)} clients on "
        f"{', '.join(task.label for task in tier.tasks)}, with seeds {', '.join(map(str, tier.seeds))}. Each defense "
        f"has {each} runs on a task with a seed. So far {how_far} {'is' if done <= 1 else 'are'} done; what is missing "
        "is shown as missing."
    )


def task_legend() -> list[str]:
    """Return how a tier is scored task by task, in sentences."""
    return [
        "Each task is scored on its own, by the same figures as above. A place on a task needs all of its runs with at "
        "least one seed, and only such defenses are compared by place. The last column names these seeds. Two defenses "
        "are compared on the seeds that both have.",
        "A figure at a share of attackers is the mean over those seeds of which all runs at that share are done. "
        "— (3/51) means that 3 of 51 runs are done, and with no seed all of them. A figure without ± is of one seed.",
        "Runs that were taken over from other sweeps have no time of the defense.",
        f"While {OURS} was tuned, runs of some of these scenarios were looked at: on MNIST model-replacement "
        "with seeds 1 and 2, and layer-choosing and agr-mab-rfl by 44 % with seed 1; on CIFAR-10 nobody attacking with "
        "seed 1.",
    ]


def task_opening(records: Records, known: Sequence[TaskScore], label: str = OURS) -> list[str]:
    """Return what is said first about a task: where our own entry is not the best, as far as it can be compared."""
    task, scores = records.tier.tasks[0].label, [one.score for one in known]
    ours = next((score for score in scores if score.label == label), None)
    if ours is None:
        return [f"`{label}` has no run on {task} yet."]
    placed = sum(score.place is not None for score in scores)
    if ours.place is None:
        lines = [f"`{label}` has no place on {task} yet: {ours.done} of {ours.total} runs are done."]
    elif placed == 1:
        lines = [f"`{label}` alone has all runs on {task} with a seed: there is no place to compare it by yet."]
    else:
        lines = [f"`{label}`, our own entry, has place {place_text(ours)} of {placed} on {task}."]
    return [*lines, *_compared(records, known, ours), *_duels(records, label), *_hardest(records, scores, label)]


def _compared(records: Records, known: Sequence[TaskScore], ours: Score) -> list[str]:
    shares, by_label = records.tier.shares, {one.label: one for one in known}

    def pair(figure: LeaderboardFigure, one: Score, other: Score) -> Pair:
        return paired(figure.of, by_label[one.label], by_label[other.label])

    scores = [one.score for one in known]
    lost = shortcomings(scores, shares, ours.label, pair)
    others = [score for score in scores if score is not ours]
    common = sum(any(pair(figure, ours, other) is not None for other in others) for figure in figures(shares))
    if not common:
        return []
    if not lost:
        return [f"No other defense is better by more than chance in a figure that both have ({common} so far)."]
    return [
        f"It is not the best in {len(lost)} of the {common} figures that others have too:",
        *(f"- {line}" for line in lost),
    ]


def _duels(records: Records, label: str) -> list[str]:
    found = duels(records, label)
    if not found.met:
        return ["No other defense has run a scenario that it has run."]
    start = (
        f"Run by run: in {len(found.lost)} of the {found.met} scenarios that others have run too, another defense "
        f"loses less by more than {SMALLEST:g} point."
    )
    if not found.lost:
        return [start]
    one, own, other, least = found.lost[0]
    where = "with nobody attacking" if one.attack == NOBODY else f"under `{one.attack}` at {percent(one.share)}"
    return [
        f"{start} The largest difference is {where}, seed {one.seed}: it loses "
        f"{own:.1f} points, and `{other}` {least:.1f}."
    ]


def _hardest(records: Records, scores: Sequence[Score], label: str) -> list[str]:
    why = explanations(records, scores, label)
    return ["What it loses most to:", *(f"- {line}" for line in why)] if why else []


def figure_text(one: TaskScore, figure: LeaderboardFigure) -> str:
    """Return a figure; if it is missing at a share, how many of how many runs are done there."""
    measure = figure.of(one.score)
    if measure is None and figure.share is not None:
        return f"— ({one.done[figure.share]}/{one.total})"
    return measure_text(measure, figure.digits)


def not_begun(records: Records, known: Sequence[TaskScore]) -> list[str]:
    """Return the first defenses of the tier that have no run on a task, in the order in which they run."""
    begun = {one.label for one in known}
    return [label for label in first_entrants(records.tier.name) if label not in begun]


def task_section(records: Records) -> list[str]:
    """Return the lines on a larger tier for the page in Markdown; the same records give the same lines."""
    tier, columns = records.tier, figures(records.tier.shares)
    lines = [f"## Tier {tier.name}", "", task_counts(records), ""]
    if not any(column.runs for column in records.columns):
        return lines
    lines += [*(f"- {line}" for line in task_legend()), ""]
    head = ["place", "defense", *(column.title for column in columns), "runs"]
    for task in tier.tasks:
        part = of_task(records, task.label)
        known = task_scores(part)
        lines += [f"### {task.label}", "", *paragraphs(task_opening(part, known)), ""]
        if known:
            lines += [table_row(head), table_row(["--:", ":--", *["--:"] * (len(head) - 2)])]
        for one in known:
            values = [figure_text(one, column) for column in columns]
            lines.append(table_row([place_text(one.score), one.label, *values, runs_text(one)]))
        waiting = not_begun(part, known)
        lines += [""] if known else []
        lines += [f"No run is done yet of: {', '.join(waiting)}.", ""] if waiting else []
    return [*lines, f"Made with {made_with(records)}", ""]


def runs_text(one: TaskScore) -> str:
    """Return how many runs of a defense on a task are done, and with which seeds all of them."""
    seeds = one.score.seeds
    whole = f"; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
    return f"{one.score.done} of {one.score.total}{whole}"
