"""All figures of results: their list, their captions, and drawing and saving them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from mabrfl.errors import ConfigError, StateError, extra_needed, suggest
from mabrfl.recording.files import write_whole
from mabrfl.reports.accuracy_figures import Drawing, Named, accuracy, attackers, sampling, similarity, success
from mabrfl.reports.arrangement import Grid, arrange
from mabrfl.reports.defense_figures import detection, isolation, reputation, selection
from mabrfl.reports.drawing import ENDINGS, Ending, clean_style, render
from mabrfl.reports.labels import SAMPLING_AXIS
from mabrfl.reports.seed_figures import seeds
from mabrfl.sweeps.results import Cell

with extra_needed("a picture"):
    from matplotlib.figure import Figure

Maker = Callable[[Sequence[Grid]], Named]

FIGURES: Mapping[str, Maker] = {
    "sampling": sampling,
    "similarity": similarity,
    "attackers": attackers,
    "accuracy": accuracy,
    "success": success,
    "seeds": seeds,
    "detection": detection,
    "selection": selection,
    "reputation": reputation,
    "isolation": isolation,
}
"""By the name that the command line has for them."""
ALL = "all"

CAPTIONS: Mapping[str, tuple[str, str]] = {
    "sampling": ("Ways of sampling clients", "Accuracy over the rounds by the way of sampling (the paper's Fig. 1a)."),
    "similarity": (
        "Similarity of honest updates",
        "Largest cosine between two updates without attackers and, where it was recorded, the largest Euclidean "
        "distance of updates as they were sent. With IID data and clients of one size this is the paper's Fig. 1b.",
    ),
    "attackers": (
        "Accuracy against the share of attackers",
        "Accuracy of the final model (the paper's Figs. 3 to 5); a gap is a missing run; a share that was not run "
        "at all is left out.",
    ),
    "accuracy": (
        "Accuracy over the rounds",
        "Mean over the seeds; bands are the standard deviation where there are several.",
    ),
    "success": (
        "Attack success over the rounds",
        "Share of the examples of the attack's goal that the model classifies as the attack wants; lower is better. "
        "Mean over the seeds; bands are the standard deviation where there are several.",
    ),
    "seeds": (
        "Every single run",
        "Accuracy of the final model of every run, a point per seed. A run has collapsed if it ends below half of the "
        "highest accuracy in the figure; below the points stands how many did.",
    ),
    "detection": (
        "Detection over the rounds",
        "Precision: the share of rejected updates that were an attacker's. Recall: the share of attackers' updates "
        "that were rejected. Counted over windows of five rounds.",
    ),
    "selection": (
        "Selected clients",
        "Share of the honest clients and of the attackers that were selected, over windows of five rounds.",
    ),
    "reputation": (
        "Reputation over the rounds",
        "Mean belief B/(B+M) in honest clients and in attackers; bands go from the 10th to the 90th percentile.",
    ),
    "isolation": (
        "Rounds until an attacker is isolated",
        "Share of the attackers that, after a round, are never selected again (or never accepted again) until the end "
        "of the run. Attackers selected in the last round count as not isolated. Towards the end the lines also rise "
        "by chance: a client that is selected with probability 1/2 misses the last three rounds with probability 1/8.",
    ),
}
"""The title of each, and its caption."""


def drawings(cells: Iterable[Cell], figure: str = ALL, *, compare: bool = False) -> dict[str, Drawing]:
    """Return functions that draw the figures of results, by the stem of their file's name. See :func:`draw`."""
    if figure != ALL and figure not in FIGURES:
        raise ConfigError(f"unknown figure '{figure}'{suggest(figure, [*FIGURES, ALL])}")
    makers: dict[str, Maker] = {**FIGURES, "attackers": partial(attackers, compare=compare)}
    grids = arrange(cells)
    named: dict[str, Drawing] = {}
    for name in makers if figure == ALL else (figure,):
        for stem, drawing in makers[name](grids):
            named[_free(stem, named)] = drawing
    if not named:
        raise StateError(_why_not(figure))
    return named


def draw(
    cells: Iterable[Cell], figure: str = ALL, *, compare: bool = False, only: Container[str] | None = None
) -> dict[str, Figure]:
    """Draw figures from results.

    Parameters
    ----------
    cells
        Of one or several results; only finished ones are drawn.
    figure
        A name of :data:`FIGURES`, or ``"all"`` for those that the results have.
    compare
        Whether the paper's own values are drawn too, where there are some.
    only
        The stems of the figures to draw; all by default.

    Returns
    -------
    dict
        Figures by the stem of their file's name.

    Raises
    ------
    StateError
        If the results lack what the figure needs.
    """
    with clean_style():
        return {
            stem: drawing()
            for stem, drawing in drawings(cells, figure, compare=compare).items()
            if only is None or stem in only
        }


def _why_not(figure: str) -> str:
    wants = {
        ALL: "runs that are done",
        "sampling": f"runs that are done, of a sweep with an axis '{SAMPLING_AXIS}'",
        "similarity": "runs that are done without attackers, with the fact 'largest_cosine' (as mab-rfl has)",
        "attackers": "runs that are done with at least two shares of attackers",
        "accuracy": "runs that are done",
        "success": "runs that are done, of an attack with a goal, such as the backdoor",
        "seeds": "runs that are done with attackers, of at least three seeds",
        "detection": "runs that are done with attackers, of a defense that rejects clients",
        "selection": "runs that are done with attackers, of a selector other than 'all'",
    }
    needed = wants.get(figure, "runs that are done with attackers, of a selector that learns, such as 'acs'")
    return f"nothing to draw: figure '{figure}' needs {needed}"


def save_figures(figures: Mapping[str, Figure], folder: Path, endings: Sequence[Ending] = ENDINGS) -> list[Path]:
    """Save figures into a folder, which is made if need be; the same figures give the same bytes."""
    saved = []
    for stem, figure in figures.items():
        for ending in endings:
            saved.append(folder / f"{stem}.{ending}")
            write_whole(saved[-1], render(figure, ending))
    return saved


def _free(stem: str, taken: Container[str]) -> str:
    """Return a stem that is not taken: two titles may differ only in characters that a file name leaves out."""
    number = 2
    free = stem
    while free in taken:
        free, number = f"{stem}-{number}", number + 1
    return free
