"""Settings of a run: a frozen, validated object that is read from and written to TOML.

Start with :class:`RunConfig`. :func:`resolve` fills in the defaults, :func:`config_hash` is the key of a run. Nothing
here builds anything: :mod:`mabrfl.catalog` turns names into objects, and the objects get plain arguments, never a
configuration.
"""

from mabrfl.config.defaults import resolve
from mabrfl.config.identity import config_hash
from mabrfl.config.model import PartitionConfig, ResolvedConfig, RunConfig, TrainingConfig, count_attackers
from mabrfl.config.toml import dump_toml, load_config

__all__ = [
    "PartitionConfig",
    "ResolvedConfig",
    "RunConfig",
    "TrainingConfig",
    "config_hash",
    "count_attackers",
    "dump_toml",
    "load_config",
    "resolve",
]
