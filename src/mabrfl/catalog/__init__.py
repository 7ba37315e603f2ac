"""The one place where names become objects: explicit tables, entry points, and ``module:Name``.

Entry points are looked for in the groups ``mabrfl.defenses``, ``mabrfl.selectors``, ``mabrfl.attacks``,
``mabrfl.models`` and ``mabrfl.datasets``. A name of the package itself cannot be taken by another.
"""

from mabrfl.catalog.build import build_attack, build_dataset, build_defense, build_model, build_rule, build_selector
from mabrfl.catalog.names import KINDS, Kind, describe, known_name, resolve_name
from mabrfl.catalog.options import complete_options

__all__ = [
    "KINDS",
    "Kind",
    "build_attack",
    "build_dataset",
    "build_defense",
    "build_model",
    "build_rule",
    "build_selector",
    "complete_options",
    "describe",
    "known_name",
    "resolve_name",
]
