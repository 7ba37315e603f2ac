"""The options of a name, for people: each with its type and its default."""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from typing import Any

from mabrfl.catalog.kinds import Kind
from mabrfl.catalog.names import entry, known_name, resolve_name
from mabrfl.catalog.options import CONTEXT, hints_of, parameters_of


@dataclass(frozen=True)
class OptionEntry:
    """An option of a name: its name, its type and its default in words; the default of a needed one is empty."""

    name: str
    type: str
    default: str


def list_options(kind: Kind, name: str) -> list[OptionEntry]:
    """Return the options of a name, in the order of its signature; of a preset, all that it sets.

    Examples
    --------
    >>> [option.name for option in list_options("selectors", "thompson-top")]
    ['num_selected']
    """
    name = known_name(kind, name)
    if not entry(kind, name).target or kind in ("models", "datasets", "observers"):
        return []
    target = resolve_name(kind, name)
    if kind == "presets":
        return [OptionEntry(key, _type_text(type(value)), repr(value)) for key, value in vars(target).items()]
    own, hints = entry(kind, name), hints_of(target)
    if kind == "defenses" and own.presets:
        return []
    defaults: dict[str, Any] = {key: parameter.default for key, parameter in parameters_of(target).items()}
    if hasattr(target, "default_inner"):
        defaults["inner"] = target.default_inner
    return [
        OptionEntry(
            option,
            "str" if option == "inner" else _type_text(hints.get(option, parameter.annotation)),
            "" if defaults[option] is inspect.Parameter.empty else repr(defaults[option]),
        )
        for option, parameter in parameters_of(target).items()
        if option not in CONTEXT and option not in own.fixed
    ]


def _type_text(hint: Any) -> str:
    """Return a type in the words of its annotation."""
    if hint is inspect.Parameter.empty:
        return ""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
