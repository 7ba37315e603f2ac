"""What a reply must look like, and what is kept of one that does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from mabrfl.flower.metrics import num_examples, the_arrays
from mabrfl.flower.problems import Malformed, Problem
from mabrfl.flower.schema import ModelSchema
from mabrfl.updates import Floats


@dataclass(frozen=True)
class Checked:
    """A reply that is as it must be.

    Attributes
    ----------
    weights, buffers
        Its arrays, as two vectors.
    examples
        The number of examples that it claims.
    content
        Its other records.
    """

    weights: Floats
    buffers: Floats
    examples: float
    content: RecordDict


Finding = Checked | Problem
"""What the check of one reply came to."""


@dataclass(frozen=True)
class Contract:
    """What a reply must look like.

    Attributes
    ----------
    schema
        The server's own model.
    arrayrecord_key, weighted_by_key
        See :class:`~mabrfl.flower.RobustStrategy`.
    may_be_zero
        Whether weights that are all zero are in order, which they are if the server's own are.
    """

    schema: ModelSchema
    arrayrecord_key: str
    weighted_by_key: str
    may_be_zero: bool = False

    def check(self, content: RecordDict) -> Finding:
        """Check a reply alone, against the server's own model, and unpack it."""
        try:
            arrays = the_arrays(content, self.arrayrecord_key)
            examples = num_examples(content, self.weighted_by_key)
            weights: Floats = np.empty(self.schema.dimension, self.schema.dtype)
            buffers = self.schema.read(arrays, weights)
            if not self.may_be_zero and not np.any(weights):
                raise Malformed("zero", "all weights are zero")
        except Malformed as found:
            return found.problem
        except MemoryError:
            return Problem("error", "the server has no memory left to unpack it", blamed=False)
        except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and must cost its sender alone)
            return Problem("encoding", f"{type(error).__name__}: {error}", blamed=True)
        return Checked(weights, buffers, examples, without_arrays(content))


def without_arrays(content: RecordDict) -> RecordDict:
    """Return a reply's other records: they are small, and the arrays need not be kept for their sake."""
    return RecordDict({key: record for key, record in content.items() if not isinstance(record, ArrayRecord)})
