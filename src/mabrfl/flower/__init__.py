"""Flower strategies that survive bad clients and remember them.

Needs the extra ``mabrfl[flower]``. The adapter only moves messages: what is believed of whom, and where the model
moves, is decided by the same :class:`mabrfl.Defense` that the simulator calls.
"""

try:
    import flwr.serverapp  # noqa: F401 (only to say what is missing)
except ImportError as error:  # pragma: no cover (the tests have Flower)
    raise ImportError("mabrfl.flower needs Flower 1.38 or newer: pip install 'mabrfl[flower]'") from error

from mabrfl.flower.mab_rfl_strategy import MabRflStrategy
from mabrfl.flower.node_identity import ClaimedIdentity, by_public_key
from mabrfl.flower.strategy import RobustStrategy

__all__ = ["ClaimedIdentity", "MabRflStrategy", "RobustStrategy", "by_public_key"]
