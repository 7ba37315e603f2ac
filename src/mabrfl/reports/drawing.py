"""Shared by all pictures: colours, a clean style whatever the user's own is, and files with the same bytes each time.

Nothing here touches pyplot's global state.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from mabrfl.errors import OutputError, extra_needed

with extra_needed("a picture"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette, safe for all common kinds of colour blindness; every line also has its own dashes.
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("solid", "dashed", "dashdot", "dotted")
ATTACKER = "#B00020"
HONEST = "#4D4D4D"
GRID = "#DDDDDD"

Ending = Literal["png", "svg"]
ENDINGS: tuple[Ending, ...] = ("png", "svg")
_DPI = 150
# The version of Matplotlib and the date would make other bytes of the same picture.
_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


@contextlib.contextmanager
def clean_style() -> Iterator[None]:
    """Draw in Matplotlib's own style, whatever the user's configuration says; element ids come from a fixed salt."""
    with mpl.rc_context():
        # Not matplotlib.rcdefaults(), which also reads all of Matplotlib's style sheets: a sixth of a second.
        mpl.rcParams.update({name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"})
        mpl.rcParams["svg.hashsalt"] = "mabrfl"
        yield


def whole_rounds(most: int) -> MaxNLocator:
    """Return ticks at whole numbers, at most about this many."""
    return MaxNLocator(nbins=max(most, 1), steps=[1, 2, 5, 10], integer=True, min_n_ticks=1)


def bare_axes(axes: Axes) -> None:
    """Remove the lines that carry no data, and draw a pale grid."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def percent_axis(axes: Axes, label: str) -> None:
    """Have percentages from 0 to 100 on the vertical axis."""
    axes.set_ylabel(label)
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 10))


def render(figure: Figure, ending: Ending) -> bytes:
    """Return a figure as the bytes of a file; the same figure gives the same bytes."""
    picture = io.BytesIO()
    with clean_style():
        figure.savefig(picture, format=ending, dpi=_DPI, metadata=_METADATA[ending])
    return picture.getvalue()


def save(figure: Figure, path: Path | str, endings: Sequence[Ending] = ENDINGS) -> list[Path]:
    """Save a figure as PNG and SVG beside each other; return the paths.

    Parameters
    ----------
    figure
        What to save.
    path
        Without ending, or with either of the two.
    endings
        Which of the two to save.
    """
    stem = Path(path).with_suffix("") if Path(path).suffix in (".png", ".svg") else Path(path)
    saved = []
    for ending in endings:
        picture = render(figure, ending)
        saved.append(stem.with_name(f"{stem.name}.{ending}"))
        try:
            saved[-1].write_bytes(picture)
        except OSError as error:
            raise OutputError(f"cannot write picture {str(saved[-1])!r}: {error.strerror}") from error
    return saved
