"""The identity of a run: the settings that differ from their neutral values, and the revisions of what it uses.

The key of a run names its result. It must not change when the program grows, and it must change when the result does:

- A setting is part of the key if it differs from its **neutral value**: the field's default, or the value of a
  :class:`~mabrfl.config.model.Neutral` marker beside it. A new setting whose neutral value is "as before" changes no
  key. A setting without a neutral value (one that depends on the data set, say) is always part of the key.
- The options of a defense, selector or attack are treated the same way. Their neutral values are the defaults in the
  signature; those of MAB-RFL are the defaults of the preset's options class, or ``metadata={"neutral": ...}`` there.
- A **revision** is part of the key if it is not 1. It is raised when the behaviour of a name changes, so that an old
  result is not taken for a new one.
- Names stand for themselves. Where the code behind a name lies does not matter.

To change a default, keep the old value as the neutral one: runs with the new default then have another key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic.fields import FieldInfo

from mabrfl import catalog
from mabrfl.catalog.options import CONTEXT, parameters_of
from mabrfl.config.defaults import resolve
from mabrfl.config.model import Neutral, ResolvedConfig, RunConfig, Section
from mabrfl.mab.presets import PRESETS

WITHOUT_EFFECT = frozenset({"workers", "device"})
"""Settings of the machine. They do not change the result, and results do not record them."""

REVISIONS: Mapping[str, int] = {"training": 1, "partition": 1, "simulation": 1}
"""Revisions of what every run uses: local training, the partition of the data, and the rounds themselves."""

_ABSENT = object()
_OPTIONS: Mapping[str, tuple[catalog.Kind, str]] = {
    "defense_options": ("defenses", "defense"),
    "selector_options": ("selectors", "selector"),
    "attack_options": ("attacks", "attack"),
    "before_options": ("preaggregators", "before"),
}
"""Sections of options, with the kind and the setting that they belong to."""


def config_hash(config: RunConfig) -> str:
    """Return the key of a run: the SHA-256 (hex) of its identity.

    Examples
    --------
    >>> config_hash(RunConfig(workers=1)) == config_hash(RunConfig(workers=2))
    True
    >>> config_hash(RunConfig(seed=1)) == config_hash(RunConfig(seed=2))
    False
    """
    return key_of(identity(resolve(config)))


def key_of(settings: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of plain settings, in whatever order they are."""
    text = json.dumps(canonical(settings), sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def identity(config: ResolvedConfig) -> dict[str, Any]:
    """Return the settings that make the result of a run what it is, and nothing else.

    Examples
    --------
    >>> kept = identity(resolve(RunConfig(rounds=5, attack="lie", attackers=0.3)))
    >>> kept["attackers"], kept["attack_options"], "epochs" in kept["training"]
    (6, {}, False)
    """
    settings = config.model_dump(mode="json", exclude={*WITHOUT_EFFECT, "allow_majority"})
    settings["attackers"] = config.num_attackers
    if config.assumed_malicious == config.num_attackers:
        del settings["assumed_malicious"]
    if not catalog.entry("defenses", config.defense).presets:
        del settings["preset"]  # the effect of a preset on other defenses is in other settings
    kept = _differing(ResolvedConfig, settings)
    for section, (kind, setting) in _OPTIONS.items():
        neutral = neutral_options(kind, settings[setting], config.preset, settings[section])
        changed = {
            option: value
            for option, value in settings[section].items()
            if canonical(value) != canonical(neutral.get(option, _ABSENT))
        }
        kept |= {section: changed} if changed or section != "before_options" else {}
    revisions = {name: number for name, number in _revisions(config).items() if number != 1}
    return {**kept, "revisions": revisions} if revisions else kept


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded configuration with the settings that it is too old to have, at their neutral values.

    Settings that it does have are not changed, whether or not they still exist. Nothing but this package is imported:
    the options of a user's own ``module:Name`` are left as they are.
    """
    filled = _completed(ResolvedConfig, config)
    for section, (kind, setting) in _OPTIONS.items():
        name, options = filled.get(setting), filled.get(section)
        if isinstance(name, str) and name in catalog.BUILT_IN[kind] and isinstance(options, Mapping):
            if kind == "selectors" and _has_own_selector(filled["defense"], name):
                continue  # its options are among those of the defense
            filled[section] = {**neutral_options(kind, name, str(filled.get("preset")), options), **options}
    return filled


def _has_own_selector(defense: Any, selector: str) -> bool:
    known = catalog.BUILT_IN["defenses"].get(defense)
    return known is not None and known.presets and known.selector == selector


def neutral_of(field: FieldInfo) -> Any:
    """Return the neutral value of a setting, in the form that JSON has; :data:`_ABSENT` if it has none."""
    for marker in field.metadata:
        if isinstance(marker, Neutral):
            return marker.value
    return _ABSENT if field.is_required() or field.default is None else field.default


def _differing(section: type[Section], settings: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, field in section.model_fields.items():
        if name not in settings or name in _OPTIONS:
            continue
        if (inner := _section_of(field)) is not None:
            kept[name] = _differing(inner, settings[name])
        elif canonical(settings[name]) != canonical(neutral_of(field)):
            kept[name] = settings[name]
    return kept


def _completed(section: type[Section], settings: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(settings)
    for name, field in section.model_fields.items():
        inner = _section_of(field)
        if inner is not None and isinstance(settings.get(name), Mapping):
            filled[name] = _completed(inner, settings[name])
        elif name not in settings and name not in WITHOUT_EFFECT and inner is None:
            neutral = neutral_of(field)
            filled |= {} if neutral is _ABSENT else {name: neutral}
    return filled


def _section_of(field: FieldInfo) -> type[Section] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def neutral_options(kind: catalog.Kind, name: str, preset: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the neutral values of the options of a name, and of those of the attack that it wraps."""
    if name == "none":
        return {}
    if kind == "preaggregators":  # of several with the same option, the first one's value counts
        each = [_neutral_arguments(kind, own) for own in reversed(catalog.before_names(name))]
        return {option: value for own in each for option, value in own.items()}
    if kind == "defenses" and catalog.entry(kind, name).presets:
        return _neutral_fields(PRESETS[preset]) if preset in PRESETS else {}
    target = catalog.resolve_name(kind, name)
    neutral = _neutral_arguments(kind, name)
    inner, wrapped = options.get("inner", getattr(target, "default_inner", None)), {}
    if isinstance(inner, str):
        wrapped = {"inner": target.default_inner, **neutral_options(kind, inner, preset, {})}
    return {**wrapped, **neutral, **catalog.entry(kind, name).fixed}


def _neutral_arguments(kind: catalog.Kind, name: str) -> dict[str, Any]:
    return {
        option: list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        for option, parameter in parameters_of(catalog.resolve_name(kind, name)).items()
        if option not in CONTEXT and isinstance(parameter.default, bool | int | float | str | tuple)
    }


def _neutral_fields(options: Any) -> dict[str, Any]:
    return {field.name: field.metadata.get("neutral", field.default) for field in fields(options)}


def _revisions(config: ResolvedConfig) -> dict[str, int]:
    """Return the revision of everything that a run uses, by what it is used as."""
    revisions = dict(REVISIONS)
    for kind in catalog.KINDS:
        setting = kind.removesuffix("s")
        revisions[setting] = catalog.entry(kind, getattr(config, setting)).revision
    if not catalog.entry("defenses", config.defense).presets:
        del revisions["preset"]
    for name in catalog.before_names(config.before):
        revisions[f"before {name}"] = catalog.entry("preaggregators", name).revision
    if isinstance(inner := config.attack_options.get("inner"), str):
        revisions["inner"] = catalog.entry("attacks", inner).revision
    return revisions


def canonical(value: Any) -> Any:
    """Write numbers in one way: 0 and 0.0 are the same setting."""
    if isinstance(value, Mapping):
        return {key: canonical(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
