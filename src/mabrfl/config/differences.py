"""Settings by dotted key, and what differs between those of two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_SHOWN = 3


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as dotted keys.

    Examples
    --------
    >>> flat({"seed": 1, "training": {"epochs": 3}})
    {'seed': 1, 'training.epochs': 3}
    """
    keys: dict[str, Any] = {}
    for key, value in settings.items():
        keys |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return keys


def value_label(value: Any) -> str:
    """Return a value in one line."""
    # TOML has dates, which no setting takes; an error about one has to name it.
    return value if isinstance(value, str) else json.dumps(value, default=str)


def differing_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys that two flat tables do not share, or not with the same value."""
    absent = object()
    keys = (*now, *sorted(before.keys() - now.keys()))
    return [key for key in keys if before.get(key, absent) != now.get(key, absent)]


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in one line what differs between two flat tables; the first few keys of it.

    Examples
    --------
    >>> difference({"rounds": 5, "seed": 1}, {"rounds": 6, "seed": 1, "attack": "lie"})
    'rounds: 5 -> 6, attack: not set -> lie'
    """
    keys = differing_keys(before, now)
    changes = [f"{key}: {_shown(before, key)} -> {_shown(now, key)}" for key in keys[:_MOST_SHOWN]]
    more = len(keys) - _MOST_SHOWN
    return ", ".join(changes) + (f" and {more} more" if more > 0 else "")


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return value_label(settings[key]) if key in settings else "not set"
