"""Command-line parsing that is stricter than click's own."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any

import click
import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo
from typer.utils import get_params_from_function


class OnceCommand(TyperCommand):
    """A command that refuses an option given twice; click would silently take the last one."""

    def __init__(self, *positional: Any, **settings: Any) -> None:
        super().__init__(*positional, **settings)
        # click 8.5 added a help text of its own to arguments, which hides typer's.
        arguments_without_help = [
            parameter
            for parameter in self.params
            if isinstance(parameter, click.Argument) and not getattr(parameter, "help", None)
        ]
        declared = get_params_from_function(inspect.unwrap(self.callback)) if self.callback else {}
        for argument in arguments_without_help:
            info = declared[argument.name].default if argument.name in declared else None
            if isinstance(info, ArgumentInfo):
                argument.help = info.help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse repeated options, then parse as usual."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for parameter, count in Counter(order).items():
            if count > 1 and isinstance(parameter, click.Option) and not parameter.multiple and not parameter.is_flag:
                raise click.UsageError(f"option '{parameter.opts[0]}' was given {count} times; give it once", ctx)
        return super().parse_args(ctx, args)


def whole_number(text: str | int) -> int:
    """Parse an integer written in ASCII digits; ``int`` alone accepts the digits of every script."""
    text = str(text)
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(text)


INTEGER: dict[str, Any] = {"parser": whole_number, "metavar": "INTEGER"}
"""What ``typer.Option`` needs for one."""


def share_or_count(text: str) -> int | float:
    """Parse ``0.3`` or ``30%`` as a share, and ``15`` as a count."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,30})?%", text):
        return float(text[:-1]) / 100
    if re.fullmatch(r"-?([0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})", text):
        return float(text)
    raise typer.BadParameter(f"{text!r} is neither a share (0.3, 30%) nor a count (15)")


def duration(text: str | float) -> float:
    """Parse ``90m``, ``1h30m``, ``1.5h`` or ``45s``, and return seconds."""
    parts = re.fullmatch(r"(?:([0-9.]{1,10})h)?(?:([0-9.]{1,10})m)?(?:([0-9.]{1,10})s)?", str(text))
    try:
        numbers = [float(part or 0) for part in parts.groups()] if parts else []
    except ValueError:
        numbers = []
    seconds = sum(number * unit for number, unit in zip(numbers, (3600, 60, 1), strict=False))
    if not seconds:
        raise typer.BadParameter(f"{text!r} is not a time such as 90m, 1h30m or 45s")
    return seconds
