"""Flower strategies that tolerate bad clients and remember them. Needs the extra ``mabrfl[flower]``.

- :class:`MabRflStrategy`: the method of this package, with all its options.
- :class:`RobustStrategy`: any other defense of the catalogue, or one of your own.
- :func:`by_public_key`, :class:`ClaimedIdentity`: the identity under which a node's reputation is kept.
- :func:`json_logs`: the log as JSON.

The strategies only move messages. The same :class:`mabrfl.Defense` as in the simulator decides about clients and model.
"""

try:
    import flwr.serverapp  # noqa: F401 (only for the message below)
except ImportError as error:  # pragma: no cover (the tests have Flower)
    raise ImportError("mabrfl.flower needs Flower 1.38 or newer: pip install 'mabrfl[flower]'") from error

from mabrfl.flower.logs import json_logs
from mabrfl.flower.mab_rfl_strategy import MabRflStrategy
from mabrfl.flower.node_identity import ClaimedIdentity, by_public_key
from mabrfl.flower.strategy import RobustStrategy

__all__ = ["ClaimedIdentity", "MabRflStrategy", "RobustStrategy", "by_public_key", "json_logs"]
