"""Flower strategies that tolerate bad clients and remember them. Needs the extra ``mabrfl[flower]``.

- :class:`MabRflStrategy`: the method of this package, with all its options.
- :class:`RobustStrategy`: any other defense of the catalogue, or one of your own.
- :func:`by_public_key`, :class:`ClaimedIdentity`: the identity under which a node's reputation is kept.
- :func:`json_logs`: the log as JSON.
- :func:`attack_mod`: a mod for ClientApps that makes nodes attack, to test a server.

The strategies only move messages. The same :class:`mabrfl.Defense` as in the simulator decides about clients and model.
"""

from typing import TYPE_CHECKING, Any

try:
    import flwr.serverapp  # noqa: F401 (only for the message below)
except ImportError as error:  # pragma: no cover (the tests have Flower)
    raise ImportError("mabrfl.flower needs Flower 1.38 or newer: pip install 'mabrfl[flower]'") from error

from mabrfl.flower.logs import json_logs
from mabrfl.flower.mab_rfl_strategy import MabRflStrategy
from mabrfl.flower.node_identity import ClaimedIdentity, by_public_key
from mabrfl.flower.strategy import RobustStrategy

if TYPE_CHECKING:
    from mabrfl.flower.attacking_node import attack_mod

__all__ = ["ClaimedIdentity", "MabRflStrategy", "RobustStrategy", "attack_mod", "by_public_key", "json_logs"]


def __getattr__(name: str) -> Any:
    # A server does not import the attacks.
    if name == "attack_mod":
        from mabrfl.flower.attacking_node import attack_mod  # noqa: PLC0415

        return attack_mod
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
