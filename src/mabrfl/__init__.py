"""Federated learning that keeps working when some of its clients lie.

An implementation of *Shielding Federated Learning: Robust Aggregation with Adaptive Client Selection*
(MAB-RFL, IJCAI 2022), with its baselines, its attacks and a simulator. ``import mabrfl`` imports nothing else:
each name below is imported when it is first used. :func:`simulate` and :class:`Simulation` need the extra
``mabrfl[sim]``; all other names need NumPy, SciPy and the core's other dependencies only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mabrfl._version import __version__

if TYPE_CHECKING:  # the same names again, for type checkers and editors
    from mabrfl.aggregation import (
        FABA,
        CenteredClip,
        DnC,
        FedAvg,
        GeometricMedian,
        Krum,
        Median,
        MultiKrum,
        TrimmedMean,
    )
    from mabrfl.attacks import Attack, AttackerView, Knowledge
    from mabrfl.config import RunConfig
    from mabrfl.defense import Defense
    from mabrfl.errors import MabRflError
    from mabrfl.layout import Layout
    from mabrfl.mab.hardened import HardenedOptions
    from mabrfl.mab.method import MabRfl
    from mabrfl.mab.presets import MabRflOptions
    from mabrfl.recording import RoundRecord
    from mabrfl.runs import Observer, simulate
    from mabrfl.selection import ACS, All, Budgeted, ThompsonTop, Uniform
    from mabrfl.simulation.data import Dataset
    from mabrfl.simulation.simulator import Simulation
    from mabrfl.sweeps.results import load_results
    from mabrfl.updates import Candidates, Cohort, Decision, Outcome, Selection, Updates, Verdict

_NAMES = {
    "mabrfl.aggregation": "CenteredClip DnC FABA FedAvg GeometricMedian Krum Median MultiKrum TrimmedMean",
    "mabrfl.attacks": "Attack AttackerView Knowledge",
    "mabrfl.config": "RunConfig",
    "mabrfl.defense": "Defense",
    "mabrfl.errors": "MabRflError",
    "mabrfl.layout": "Layout",
    "mabrfl.mab.hardened": "HardenedOptions",
    "mabrfl.mab.method": "MabRfl",
    "mabrfl.mab.presets": "MabRflOptions",
    "mabrfl.recording": "RoundRecord",
    "mabrfl.selection": "ACS All Budgeted ThompsonTop Uniform",
    "mabrfl.runs": "Observer simulate",
    "mabrfl.simulation.data": "Dataset",
    "mabrfl.simulation.simulator": "Simulation",
    "mabrfl.sweeps.results": "load_results",
    "mabrfl.updates": "Candidates Cohort Decision Outcome Selection Updates Verdict",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ACS",
    "FABA",
    "All",
    "Attack",
    "AttackerView",
    "Budgeted",
    "Candidates",
    "CenteredClip",
    "Cohort",
    "Dataset",
    "Decision",
    "Defense",
    "DnC",
    "FedAvg",
    "GeometricMedian",
    "HardenedOptions",
    "Knowledge",
    "Krum",
    "Layout",
    "MabRfl",
    "MabRflError",
    "MabRflOptions",
    "Median",
    "MultiKrum",
    "Observer",
    "Outcome",
    "RoundRecord",
    "RunConfig",
    "Selection",
    "Simulation",
    "ThompsonTop",
    "TrimmedMean",
    "Uniform",
    "Updates",
    "Verdict",
    "__version__",
    "load_results",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mabrfl' has no attribute '{name}'", name=name, obj=import_module("mabrfl"))
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
