"""How a check makes the object, names a property, and reports that it does not hold."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mabrfl.protocols import Stateful
from mabrfl.recording.encoding import decode, encode
from mabrfl.rng import generator
from mabrfl.updates import Floats


@contextmanager
def holds(thing: Any, claim: str) -> Iterator[None]:
    """Raise an ``AssertionError`` that names the object and the claim if anything is raised inside."""
    try:
        yield
    except Exception as error:
        what = str(error) if isinstance(error, AssertionError) else f"it raised {type(error).__name__}: {error}"
        raise AssertionError(f"{_name(thing)}: {claim} - {what}") from error


def expect(condition: Any, message: str) -> None:
    """Raise an ``AssertionError`` unless the condition holds (``assert`` would be silent under ``python -O``)."""
    if not condition:
        raise AssertionError(message)


def _name(thing: Any) -> str:
    thing = thing.func if isinstance(thing, functools.partial) else thing
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def is_factory(thing: Any) -> bool:
    """Whether this makes objects: a class, a class with options bound, or a function of ``num_malicious``."""
    target = thing.func if isinstance(thing, functools.partial) else thing
    return isinstance(target, type) or takes(thing, "num_malicious")


def takes(thing: Any, parameter: str) -> bool:
    """Whether a callable has a parameter of this name."""
    return callable(thing) and parameter in inspect.signature(thing).parameters


def fresh(thing: Any, **context: Any) -> Any:
    """Return a new object: from a factory with those of the arguments it takes, or a copy of an object."""
    if not is_factory(thing):
        return copy.deepcopy(thing)
    return thing(**{name: value for name, value in context.items() if takes(thing, name)})


def random_rows(count: int, width: int = 40, *, seed: int = 0, dtype: Any = np.float64) -> Floats:
    """Return random updates: a common direction and noise, columns of different sizes."""
    rng = generator(seed, "mabrfl.testing", count, width)
    rows: Floats = rng.normal(size=(count, width)) * rng.uniform(0.5, 2.0, width) + 0.3
    return rows.astype(dtype)


def saved(thing: Stateful) -> dict[str, Any]:
    """Return the state as a checkpoint would give it back; refuse a state that no checkpoint can hold."""
    document, arrays = encode(thing.state_dict())
    state: dict[str, Any] = decode(document, {name: array.copy() for name, array in arrays.items()})
    return state


def both_or_neither(thing: Any) -> bool:
    """Whether it has ``state_dict`` and ``load_state_dict``; one without the other is an error."""
    names = [name for name in ("state_dict", "load_state_dict") if callable(getattr(thing, name, None))]
    expect(len(names) != 1, f"it has {''.join(names)} alone; state_dict and load_state_dict belong together")
    return bool(names)
