"""Shared by all pictures: colours, a clean style whatever the user's own is, and files with the same bytes each time.

Nothing here touches pyplot's global state.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from mabrfl.errors import ConfigError, OutputError, extra_needed, suggest

with extra_needed("a picture"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager
    from matplotlib.text import Text
    from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette, safe for all common kinds of colour blindness; every line also has its own dashes.
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("solid", "dashed", "dashdot", "dotted")
ATTACKER = "#B00020"
HONEST = "#4D4D4D"
GRID = "#DDDDDD"

Ending = Literal["png", "svg", "pdf"]
ENDINGS: tuple[Ending, ...] = ("png", "svg")
"""The files of a picture unless others are asked for."""
_DPI = 150
# The version of Matplotlib and the date would make other bytes of the same picture.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def clean_style() -> Iterator[None]:
    """Draw in Matplotlib's own style, whatever the user's configuration says; element ids come from a fixed salt."""
    with mpl.rc_context():
        # Not matplotlib.rcdefaults(), which also reads all of Matplotlib's style sheets: a sixth of a second.
        mpl.rcParams.update({name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"})
        mpl.rcParams["svg.hashsalt"] = "mabrfl"
        mpl.rcParams["pdf.fonttype"] = 42  # TrueType, which publishers ask for
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


def for_paper(
    figure: Figure,
    *,
    width: float | None = None,
    title: bool = True,
    font: str | None = None,
    font_size: float | None = None,
) -> None:
    """Change a figure for a page: its width in inches, with the legend below the panels; without a title if asked to.

    Parameters
    ----------
    figure
        The figure; it is changed.
    width
        In inches. Sizes of letters stay as they are, so that figures of one width have letters of one size.
    title
        Whether to keep the title.
    font
        Of all letters: serif, sans-serif, monospace, or the name of an installed font.
    font_size
        Of all letters, in points.

    Raises
    ------
    ConfigError
        If there is no such font.
    """
    if not title:
        figure.suptitle("")
    _fit(figure, width, font_size or _POINTS)
    if font is not None:
        _check_font(font)
    for text in figure.findobj(Text):
        if font is not None:
            text.set_fontfamily(font)
        if font_size is not None:
            text.set_fontsize(font_size)
    for axes in figure.axes if font is not None or font_size is not None else ():
        # Labels of ticks are made anew when the figure is drawn.
        axes.tick_params(labelfontfamily=font, labelsize=font_size or axes.xaxis.get_tick_params().get("labelsize"))


def _check_font(name: str) -> None:
    families = ("serif", "sans-serif", "monospace")
    known = {entry.name for entry in fontManager.ttflist}
    if name not in families and name not in known:
        raise ConfigError(f"no font '{name}' is installed{suggest(name, [*families, *sorted(known)])}")


def _fit(figure: Figure, width: float | None, points: float) -> None:
    """Give a figure a width, with the legend below the panels."""
    if width is None:
        return
    before, height = figure.get_size_inches()
    lines = 0
    if figure.legends:
        handles = [handle for handle in figure.legends[0].legend_handles if handle is not None]
        longest = max((len(str(handle.get_label())) for handle in handles), default=1)
        column = (_HANDLE + _CHARACTER * longest) * points / _POINTS
        columns = max(1, min(len(handles), int(width / column)))
        lines = -(-len(handles) // columns)
        figure.legends[0].remove()
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=columns,
            columnspacing=1.0,
            frameon=False,
            fontsize=_POINTS,
        )
    panels = max(before - _SIDE_LEGEND, before / 2)
    figure.set_size_inches(width, max(height * width / panels, _LOWEST) + _LINE * lines * points / _POINTS)


_POINTS = 8.0
"""Of the letters of a legend below the panels."""
_CHARACTER, _HANDLE, _LINE, _SIDE_LEGEND, _LOWEST = 0.065, 0.45, 0.18, 1.6, 1.8
"""Inches: of a character, the handle and a line of such a legend, of a legend at the side, and of the lowest panels."""


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
