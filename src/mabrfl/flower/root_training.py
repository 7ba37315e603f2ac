"""The server's own update, for defenses that compare with it: made by a function of the user."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord

from mabrfl.errors import ConfigError
from mabrfl.flower.problems import MalformedReply
from mabrfl.flower.schema import ModelSchema
from mabrfl.global_model import GlobalModel
from mabrfl.vectors import Floats

RootUpdate = Callable[[int, ArrayRecord], ArrayRecord]


def root_row(
    train: RootUpdate, server_round: int, arrays: ArrayRecord, schema: ModelSchema, model: GlobalModel
) -> Floats:
    """Return the server's update: the weights that the function returns minus those of the model.

    Raises
    ------
    ConfigError
        If the result does not have the arrays of the model, or is not finite.
    """
    trained = train(server_round, arrays)
    if not isinstance(trained, ArrayRecord):
        raise ConfigError(f"root_update must return an ArrayRecord; got {type(trained).__name__}")
    weights = np.empty_like(model.weights)
    try:
        schema.read(trained, weights)
    except MalformedReply as error:
        raise ConfigError(f"root_update returned another model in round {server_round}: {error}") from error
    return np.asarray(weights - model.weights)
