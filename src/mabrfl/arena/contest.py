"""What a user asks of the arena: a place for a defense, which defenses fall to an attack, or everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mabrfl.arena.arena_records import DefenseColumn, Records, collect, committed, write_records
from mabrfl.arena.leaderboard import markdown
from mabrfl.arena.scenarios import BASELINE, Named, Tier, entrants, named
from mabrfl.arena.scoring import baseline, loss_of
from mabrfl.arena.task_board import task_section
from mabrfl.errors import StateError
from mabrfl.recording.files import write_whole
from mabrfl.reports.arrangement import slug

RunColumns = Callable[..., bool]
""":func:`~mabrfl.arena.running.run_columns` with its settings of the machine."""
FALLS = 10.0
"""A defense falls to an attack if it loses more points than this, at any share."""


def run_everything(tier: Tier, out: Path, run: RunColumns) -> Records:
    """Run all columns of a tier, and return what is done."""
    columns = entrants(tier.name)
    run(tier, columns, out)
    return collect(tier, columns, out)


def place_defenses(tier: Tier, columns: Sequence[Named], out: Path, run: RunColumns) -> Records:
    """Run the columns of some defenses, and return them among the records that come with the package."""
    known = committed(tier)
    if BASELINE not in [column.label for column in columns]:
        known = _with_baseline(known, out, run)
    run(tier, columns, out)
    return known.with_columns(collect(tier, columns, out).columns)


def try_attacks(tier: Tier, attacks: Sequence[Named], columns: Sequence[Named], out: Path, run: RunColumns) -> Records:
    """Run attacks against defenses, and return them among the records that come with the package."""
    known = _with_baseline(committed(tier), out, run)
    extended = tier.with_attacks([*(one for one in tier.attacks if one not in attacks), *attacks])
    added = []
    for attack in attacks:
        only, folder = tier.with_attacks([attack]), attack_folder(out, attack)
        run(only, columns, folder, clean=False)
        added.append(collect(only, columns, folder, clean=False))
    merged = [_merged([one.column(column.label) for one in (known, *added)]) for column in columns]
    return replace(known.with_columns(merged), tier=extended)


def attack_folder(out: Path, attack: Named) -> Path:
    """Return the folder with the columns of an attack."""
    return out / f"attack-{slug(attack.label)}"


def baseline_folder(out: Path) -> Path:
    """Return the folder with FedAvg and nobody attacking, if only these runs of it are needed."""
    return out / "baseline"


def _merged(parts: Sequence[DefenseColumn | None]) -> DefenseColumn:
    found = [part for part in parts if part is not None]
    runs = {scenario: run for part in found for scenario, run in part.runs.items()}
    return replace(found[-1], runs=runs)


def _with_baseline(known: Records, out: Path, run: RunColumns) -> Records:
    """Return records with FedAvg and nobody attacking, which all losses are measured by."""
    tier = known.tier
    if set(baseline(known)) >= {(task.label, seed) for task in tier.tasks for seed in tier.seeds}:
        return known
    alone, measure = replace(tier, attacks=()), named("defense", BASELINE)
    run(alone, [measure], baseline_folder(out))
    measured = collect(alone, [measure], baseline_folder(out)).columns[0]
    return known.with_columns([_merged([known.column(BASELINE), measured])])


def write_pages(
    records: Records, out: Path, *, larger: Records | None = None, own: Sequence[str] = (), pictures: str = ""
) -> list[Path]:
    """Write the leaderboard into a folder, as Markdown, HTML and a picture, and return the files.

    Parameters
    ----------
    records
        Of the arena.
    out
        The folder.
    larger
        Records of a larger tier, which is shown task by task as far as it is run.
    own
        Labels to be marked.
    pictures
        The folder of the picture, below ``out``; ``images`` for the documentation.

    Raises
    ------
    StateError
        If no run is finished.
    """
    if not any(column.runs for column in records.columns):
        raise StateError(f"the arena has no finished run of the tier '{records.tier.name}' to show yet")
    # Matplotlib and Jinja2 are an extra, which planning and running do without.
    from mabrfl.arena.arena_page import page  # noqa: PLC0415
    from mabrfl.arena.heatmap import heatmap  # noqa: PLC0415
    from mabrfl.reports.drawing import render  # noqa: PLC0415

    figure = heatmap(records, own=own)
    text = markdown(records, () if larger is None else task_section(larger))
    files = {
        out / "leaderboard.md": (text if pictures else text.replace("](images/", "](")).encode(),
        out / "leaderboard-runs.html": page(records, larger, own=own).encode(),
        out / pictures / "leaderboard.svg": render(figure, "svg"),
    }
    if not pictures:
        files[out / "leaderboard.png"] = render(figure, "png")
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


def write_result(records: Records, out: Path, *, own: Sequence[str] = ()) -> list[Path]:
    """Write records and pages into the folder of the arena, and return the files."""
    write_records(records, out / "records.json.gz")
    return [*write_pages(records, out, own=own), out / "records.json.gz"]


@dataclass(frozen=True)
class Fall:
    """What a defense loses to an attack, by share: the largest over tasks of the mean over seeds; and its success."""

    defense: str
    losses: dict[float, float]
    success: float | None

    @property
    def falls(self) -> bool:
        """Whether the defense falls."""
        return max(self.losses.values()) > FALLS


def falls(records: Records, attack: str) -> list[Fall]:
    """Return what every defense with runs of an attack loses to it, the largest loss first."""
    clean, found = baseline(records), []
    for column in records.columns:
        lost: dict[float, dict[str, list[float]]] = {}
        reached: list[float] = []
        for one, run in column.runs.items():
            loss = loss_of(run, one, clean) if one.attack == attack else None
            if loss is not None:
                lost.setdefault(one.share, {}).setdefault(one.task, []).append(loss)
                reached += [] if run.success is None else [run.success]
        if lost:
            worst = {share: max(sum(some) / len(some) for some in tasks.values()) for share, tasks in lost.items()}
            found.append(Fall(column.label, dict(sorted(worst.items())), max(reached, default=None)))
    return sorted(found, key=lambda fall: (-max(fall.losses.values()), fall.defense))
