"""An aggregator and a controller for NVFlare that tolerate bad sites. They need the extra ``mabrfl[nvflare]``.

- :class:`RobustAggregator`: any defense of the catalogue, for NVFlare's ``FedAvg`` (also in a recipe) and for
  ``ScatterAndGather``.
- :class:`RobustFedAvg`: ``FedAvg`` whose sites the defense also selects, and which no failing site can stop.

The same :class:`mabrfl.Defense` as in the simulator and in Flower decides about sites and model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mabrfl.nvflare.components import RobustAggregator, RobustFedAvg

__all__ = ["RobustAggregator", "RobustFedAvg"]


def __getattr__(name: str) -> Any:
    # The modules that know nothing of NVFlare can be used without it.
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module("mabrfl.nvflare.components"), name)
