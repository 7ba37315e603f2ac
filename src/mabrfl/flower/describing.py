"""Descriptions of objects as plain values, so that two can be compared by a hash, even after a restart.

Settings count, code does not: a function is described by its name, an object by its class and attributes. An object
with neither (a lambda, a closure, an open file) is marked; :func:`undescribed` lists the marks.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
import sys
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np

from mabrfl.recording.encoding import canonical_json

_MARK = "undescribed"
_MADE_IN_PYTHON = 1 << 9
"""Py_TPFLAGS_HEAPTYPE of CPython."""


def described(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return a description of a value as plain values. A class may supply its own with a method ``describe()``.

    Examples
    --------
    >>> described(partial(round, ndigits=2))
    {'partial': 'builtins:round', 'args': [], 'keywords': {'ndigits': 2}}
    >>> described(lambda cohort: cohort)
    {'undescribed': 'mabrfl.flower.describing:<lambda>'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value if not isinstance(value, Enum) else f"{kind_of(type(value))}.{value.name}"
    if isinstance(value, float | np.generic):
        return _number(value)
    if id(value) in above:
        return {"again": kind_of(value)}
    return _compound(value, (*above, id(value)))


def undescribed(description: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the place and the kind of everything in a description that could not be described."""
    if isinstance(description, Mapping):
        if set(description) == {_MARK}:
            yield place, description[_MARK]
        else:
            for name, entry in description.items():
                yield from undescribed(entry, f"{place}.{name}" if place else name)
    elif isinstance(description, list):
        for number, entry in enumerate(description):
            yield from undescribed(entry, f"{place}[{number}]")


MISSING = object()
"""The value in a description that does not have it."""


def differences(one: Any, two: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the places where two descriptions differ, with both values; one may be :data:`MISSING`."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for name in sorted({*one, *two}):
            inner = f"{place}.{name}" if place else name
            yield from differences(one.get(name, MISSING), two.get(name, MISSING), inner)
    elif one != two:
        yield place, one, two


def kind_of(value: Any) -> str:
    """Return the name of a function or class, or of an object's class."""
    named = value if hasattr(value, "__qualname__") and hasattr(value, "__module__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _number(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else str(plain)
    return plain if isinstance(plain, bool | int | str) else f"{value.dtype} {plain!r}"


def _compound(value: Any, above: tuple[int, ...]) -> Any:  # noqa: PLR0911 (one line for each kind of value)
    if isinstance(value, Mapping):
        return _table(value, above)
    if isinstance(value, list | tuple):
        return [described(entry, above) for entry in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted((described(entry, above) for entry in value), key=canonical_json)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, Enum):
        return f"{kind_of(type(value))}.{value.name}"
    if isinstance(value, PurePath | np.dtype):
        return str(value)
    if isinstance(value, partial):
        parts = {"partial": value.func, "args": list(value.args), "keywords": value.keywords}
        return {name: described(part, above) for name, part in parts.items()}
    if isinstance(value, types.MethodType):
        return {"method": value.__name__, "of": described(value.__self__, above)}
    if isinstance(value, logging.Logger):
        return {"logger": value.name}
    if callable(getattr(value, "getstate", None)) and callable(getattr(value, "setstate", None)):  # Python's Random
        return {"class": kind_of(value), "state": described(value.getstate(), above)}
    if isinstance(value, np.random.Generator):
        return {"class": kind_of(value), "state": described(value.bit_generator.state, above)}
    if hasattr(value, "__array__") and not isinstance(value, type):
        return _array(value)
    return _named(value, above) if isinstance(value, type) or hasattr(value, "__qualname__") else _object(value, above)


def _table(value: Mapping[Any, Any], above: tuple[int, ...]) -> Any:
    if all(isinstance(key, str) for key in value):
        return {key: described(entry, above) for key, entry in value.items()}
    pairs = [[described(key, above), described(entry, above)] for key, entry in value.items()]
    return {"pairs": sorted(pairs, key=canonical_json)}


def _array(value: Any) -> Any:
    try:
        array = np.ascontiguousarray(np.asarray(value))
    except Exception:  # noqa: BLE001 (each library has its own reasons why something cannot be an array)
        return {_MARK: kind_of(value)}
    if array.dtype.hasobject:
        return {_MARK: kind_of(value)}
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    return {"dtype": array.dtype.str, "shape": list(np.shape(value)), "sha256": digest}


def _named(value: Any, above: tuple[int, ...]) -> Any:
    """Describe a class or function by its name, if the name leads back to it."""
    name = kind_of(value)
    if isinstance(value, type) or _is_named(value, name):
        return name
    if "<lambda>" in name or not isinstance(value, types.FunctionType) or value.__closure__:
        return {_MARK: name}
    defaults = [value.__defaults__, value.__kwdefaults__]
    return {"function": name, "defaults": described(defaults, above)} if any(defaults) else name


def _is_named(value: Any, name: str) -> bool:
    module, _, path = name.partition(":")
    target: Any = sys.modules.get(module)
    for part in path.split("."):
        target = getattr(target, part, None)
    return target is value


def _object(value: Any, above: tuple[int, ...]) -> Any:
    own = getattr(value, "describe", None)
    if callable(own):
        try:
            return {"class": kind_of(value), "describe": described(own(), above)}
        except Exception:  # noqa: BLE001 (a method of that name may be for something else)
            return {_MARK: kind_of(value)}
    attributes = _attributes(value)
    if attributes is None:
        return {_MARK: kind_of(value)}
    return {"class": kind_of(value)} | {name: described(entry, above) for name, entry in attributes.items()}


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return an object's settings: the arguments of its constructor, and its public attributes.

    Other private attributes are its memory. They count only if an argument of the constructor is not among the
    attributes, under its name or with an underscore before it.
    """
    slots = {name for kind in type(value).__mro__ for name in _slots(kind)}
    kinds = type(value).__mro__[:-1]
    bare = not hasattr(value, "__dict__") and not any("__slots__" in kind.__dict__ for kind in kinds)
    if bare or any(not kind.__flags__ & _MADE_IN_PYTHON for kind in kinds):
        return None  # a class from C may have settings that no attribute shows
    attributes = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)} | getattr(
        value, "__dict__", {}
    )
    arguments = _arguments(type(value))
    held = {name if name in attributes else f"_{name}" for name in arguments or ()}
    if arguments is not None and held <= set(attributes):
        attributes = {name: entry for name, entry in attributes.items() if name in held or not name.startswith("_")}
    return {name.removeprefix("_"): entry for name, entry in attributes.items()}


def _slots(kind: type) -> list[str]:
    given = kind.__dict__.get("__slots__", ())
    return [name for name in ([given] if isinstance(given, str) else given) if name not in ("__dict__", "__weakref__")]


def _arguments(kind: type) -> list[str] | None:
    """Return the names of a constructor's arguments; None if it takes any number of them."""
    try:
        arguments = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return None
    loose = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return None if any(each.kind in loose for each in arguments) else [each.name for each in arguments]
