"""Names that the shell completes; ``mabrfl --install-completion`` sets it up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mabrfl.catalog.kinds import Kind

Completion = list[tuple[str, str]]


def names_of(kind: Kind) -> Callable[[str], Completion]:
    """Return what completes the names of a kind, each with its line."""

    def complete(incomplete: str) -> Completion:
        from mabrfl.catalog import describe

        return [(name, line) for name, line in describe(kind) if name.startswith(incomplete)]

    return complete


def one_of_these(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what completes one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def listed_names(ctx: click.Context, incomplete: str) -> Completion:  # typer looks at these types
    """Complete a name of the kind that stands before it: ``mabrfl list attacks LI``."""
    from mabrfl.cli.listing import lines_of

    return [(name, line) for name, line in lines_of(str(ctx.params.get("kind"))) if name.startswith(incomplete)]
