"""The labels of data sets, defenses, presets, attacks and selectors in tables and figures: see the catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from mabrfl.catalog import KINDS, display_entry, effective_preset, known_name
from mabrfl.config.toml import one_line
from mabrfl.errors import ConfigError


def dataset_name(dataset: str) -> str:
    """Return the label of a data set."""
    return one_line(display_entry("datasets", dataset).label)


def defense_name(defense: str) -> str:
    """Return the label of a defense."""
    return one_line(display_entry("defenses", defense).label)


def before_labels(before: str) -> list[str]:
    """Return the labels of the pre-aggregators of a run, in order."""
    return [one_line(display_entry("preaggregators", name).label) for name in before.split("+") if name]


def attack_name(attack: str) -> str:
    """Return the label of an attack."""
    return one_line(display_entry("attacks", attack).label)


def selector_name(selector: str) -> str:
    """Return the label of a selector."""
    return one_line(display_entry("selectors", selector).label)


def preset_name(defense: str, preset: str) -> str:
    """Return the label of a preset; nothing where it sets neither the defense's options nor conditions of the run.

    Examples
    --------
    >>> preset_name("mab-rfl", "hardened"), preset_name("median", "hardened"), preset_name("median", "reference")
    ('hardened', '', 'reference')
    """
    preset = effective_preset(defense, preset)
    return one_line(display_entry("presets", preset).label) if preset else ""


def own_name(name: str) -> str:
    """Return the last part of ``module:Name``, and any other name as it is."""
    return one_line(name.rpartition(":")[2] or name)


def is_label(axis: str, value: object, setting: str | None) -> bool:
    """Whether an axis has a point of another name than its setting's value; an alias is no other name."""
    if not isinstance(value, str) or value == setting or (setting is None and "." in axis):
        return False
    for kind in KINDS:
        if kind == f"{axis}s":
            try:
                return known_name(kind, value) != setting
            except ConfigError:
                return True
    return True


STATUS_WORDS: Mapping[str, str] = {"done": "done", "failed": "failed", "running": "begun", "missing": "missing"}
"""The words for readers: no record can say whether a run that is not finished is still at work."""
