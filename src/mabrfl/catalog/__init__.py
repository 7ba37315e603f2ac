"""The catalogue, where names become objects: explicit entries, entry points, and ``module:Name``.

:func:`entry` says everything about a name: label, colour, what it needs, its defaults. Entry points are in the groups
``mabrfl.defenses``, ``mabrfl.selectors``, ``mabrfl.attacks``, ``mabrfl.models``, ``mabrfl.datasets`` and
``mabrfl.preaggregators``; they cannot take a name of the package itself. Observers have the group ``mabrfl.observers``
(:mod:`mabrfl.runs`). The configuration imports the catalogue, never the other way round.
"""

from mabrfl.catalog.build import (
    build_attack,
    build_before,
    build_dataset,
    build_defense,
    build_model,
    build_rule,
    build_selector,
    check_before,
    refuse_truth,
)
from mabrfl.catalog.entries import BUILT_IN
from mabrfl.catalog.failures import named_failures
from mabrfl.catalog.kinds import KINDS, Conditions, DatasetDefaults, Entry, Kind
from mabrfl.catalog.names import (
    describe,
    display_entry,
    effective_preset,
    entry,
    known_name,
    resolve_name,
    without_markup,
)
from mabrfl.catalog.option_lists import list_options
from mabrfl.catalog.options import before_names, complete_before, complete_options
from mabrfl.catalog.user_code import CodeCheck, check_code, code_of

__all__ = [
    "BUILT_IN",
    "KINDS",
    "CodeCheck",
    "Conditions",
    "DatasetDefaults",
    "Entry",
    "Kind",
    "before_names",
    "build_attack",
    "build_before",
    "build_dataset",
    "build_defense",
    "build_model",
    "build_rule",
    "build_selector",
    "check_before",
    "check_code",
    "code_of",
    "complete_before",
    "complete_options",
    "describe",
    "display_entry",
    "effective_preset",
    "entry",
    "known_name",
    "list_options",
    "named_failures",
    "refuse_truth",
    "resolve_name",
    "without_markup",
]
