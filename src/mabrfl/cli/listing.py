"""``mabrfl list``: every name, with one line each; or one name, with its description and options."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Annotated, cast

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mabrfl import catalog
from mabrfl.catalog.kinds import SINGULAR, Kind
from mabrfl.cli.completion import listed_names, one_of_these
from mabrfl.errors import ConfigError, suggest

PARTITIONS = [
    ("dominant-label", "The paper's: a share q of each client's data has the client's dominant label."),
    ("iid", "Every client draws from all data with equal probability."),
    ("dirichlet", "Each client's label proportions are drawn from a Dirichlet distribution."),
    ("shards", "Pathological: all data, sorted by label and cut into shards; each client gets a few."),
    ("quantity-skew", "All data, IID, in quantities that are drawn from a Dirichlet distribution."),
    ("gamma-similarity", "All data: a share gamma is dealt out at random, the rest sorted by label."),
]
"""Kinds of partitions, with a line each."""
_KINDS = (*catalog.KINDS, "preaggregators", "partitions", "observers")


_SECTIONS: dict[Kind, str] = {"presets": "defense_options", "preaggregators": "before_options"}


def listing(
    kind: Annotated[
        str | None, typer.Argument(help=f"Only these: {', '.join(_KINDS)}.", autocompletion=one_of_these(_KINDS))
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="One of them, with its description and its options.", autocompletion=listed_names),
    ] = None,
) -> None:
    """Show every name that a run can use, with one line each; or one name, with its options.

    With a name, such as 'mabrfl list attacks lie' or 'mabrfl list lie': its description and its options.
    """
    console = Console()
    if kind is not None and (name is not None or not _is_kind(kind)):
        for one, called in [(_known(kind), name)] if name is not None else _kinds_of(kind):
            _show_name(console, one, called)
        return
    for chosen in _KINDS if kind is None else (_known(kind),):
        lines = _lines(chosen) or [("none", "No installed package has an entry point in mabrfl.observers.")]
        width = max(len(word) for word, _ in lines)
        console.print(Text(chosen, style="bold"))
        for word, line in lines:
            _print(console, word, line, width)
        console.print()
    if kind is None:
        hint = "Your own: write module:Name wherever a name is asked for, or register an entry point in mabrfl.<kind>."
        console.print(Text(hint, style="dim"), soft_wrap=not console.is_terminal)


def _is_kind(word: str) -> bool:
    return word in _KINDS or f"{word}s" in _KINDS


def _known(kind: str) -> str:
    if not _is_kind(kind):
        raise click.UsageError(f"unknown kind '{kind}'{suggest(kind, _KINDS)}")
    return kind if kind in _KINDS else f"{kind}s"


def _kinds_of(name: str) -> list[tuple[str, str | None]]:
    """Return the kinds that have a name, each with the name."""
    found: list[tuple[str, str | None]] = []
    for kind in (*catalog.KINDS, "preaggregators", "observers"):
        with suppress(ConfigError):
            if ":" not in name and catalog.known_name(kind, name):
                found.append((kind, name))
    if not found:
        names = [known for kind in _KINDS for known, _ in _lines(kind)]
        raise click.UsageError(f"unknown kind or name '{name}'{suggest(name, [*_KINDS, *names])}")
    return found


def _show_name(console: Console, word: str, name: str | None) -> None:
    """Print the description of one name and its options."""
    if word == "partitions" or name is None:
        raise click.UsageError("partitions have no page of their own: see mabrfl list partitions")
    kind = cast("Kind", word)
    known = catalog.known_name(kind, name)
    console.print(Text(f"{known} ({SINGULAR[kind]})", style="bold"))
    described = kind not in ("models", "datasets") and catalog.entry(kind, known).target
    text = inspect.getdoc(catalog.resolve_name(kind, known)) if described else dict(_lines(kind)).get(known)
    console.print(Text(catalog.without_markup(text or "It has no description.")), soft_wrap=True)
    if kind == "defenses" and catalog.entry(kind, known).presets:
        console.print(Text("\nIts options are those of its preset: mabrfl list presets hardened"), soft_wrap=True)
    options = catalog.list_options(kind, known)
    if options:
        console.print(Text(f"\nOptions, set by --set {section_of(kind)}.NAME=VALUE:", style="bold"), soft_wrap=True)
        width = max(len(option.name) for option in options)
        for option in options:
            default = f"default {option.default}" if option.default else "needed"
            console.print(Text(f"  {option.name:{width}}  {default}  {option.type}".rstrip()), soft_wrap=True)
    console.print()


def section_of(kind: Kind) -> str:
    """Return the section of a configuration that has the options of this kind."""
    return _SECTIONS.get(kind) or f"{SINGULAR[kind]}_options"


def lines_of(word: str) -> list[tuple[str, str]]:
    """Return the names of a kind, each with its line; none if there is no such kind."""
    return _lines(_known(word)) if _is_kind(word) else []


def _lines(kind: str) -> list[tuple[str, str]]:
    return PARTITIONS if kind == "partitions" else catalog.describe(kind)  # type: ignore[arg-type]


def _print(console: Console, name: str, line: str, width: int) -> None:
    if not console.is_terminal:
        # In a pipe each name has one line, however long.
        console.print(Text(f"  {name:{width}}  {line}"), soft_wrap=True)
        return
    row = Table.grid(padding=(0, 2))
    row.add_column(width=width + 2, no_wrap=True)
    row.add_column()
    row.add_row(Text(f"  {name}", style="cyan"), Text(line))
    console.print(row)
