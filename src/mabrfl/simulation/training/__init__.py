"""Local training: the models, one client's loop, and an engine that trains many clients at once.

Start with :class:`Engine`. :func:`train_client` is the loop of one client, :data:`MODELS` the networks by name.
"""

from mabrfl.errors import extra_needed

with extra_needed("the simulator"):
    import torch  # noqa: F401 (every module of this folder needs it)

from mabrfl.simulation.training.engine import Engine, Evaluation, Trained
from mabrfl.simulation.training.flat import flatten, float_buffers, trainable, unflatten
from mabrfl.simulation.training.local import Shard, TrainingOptions, train_client
from mabrfl.simulation.training.models import MODELS, initialise

__all__ = [
    "MODELS",
    "Engine",
    "Evaluation",
    "Shard",
    "Trained",
    "TrainingOptions",
    "flatten",
    "float_buffers",
    "initialise",
    "train_client",
    "trainable",
    "unflatten",
]
