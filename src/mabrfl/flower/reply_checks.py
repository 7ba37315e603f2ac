"""The check of one reply against the server's own model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from mabrfl import vectors
from mabrfl.flower.problems import MalformedReply, Problem
from mabrfl.flower.schema import ModelSchema
from mabrfl.updates import Floats

_FIRST = 1000
"""So many weights are looked at first."""
ZEROS = 1e-6
"""Weights shorter than this share of the server's own are no model."""
MOST_EXAMPLES = 2**53
"""A larger number of examples is not believed."""


@dataclass(frozen=True)
class CheckedReply:
    """A reply that has passed the check.

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


CheckResult = CheckedReply | Problem
"""The result of the check of one reply."""


@dataclass(frozen=True)
class ReplyChecker:
    """Checks replies, each by itself.

    Attributes
    ----------
    schema
        The server's own model.
    arrayrecord_key, weighted_by_key
        See :class:`~mabrfl.flower.RobustStrategy`.
    shortest
        Norm of the weights up to which they are taken for zeros; below 0 if the server's own may be zeros.
    """

    schema: ModelSchema
    arrayrecord_key: str
    weighted_by_key: str
    shortest: float = 0.0

    def check(self, content: RecordDict, into: Floats | None = None) -> CheckResult:
        """Check a reply against the server's own model, and unpack its weights, ``into`` a vector if there is one."""
        try:
            arrays = only_arrays(content, self.arrayrecord_key)
            examples = num_examples(content, self.weighted_by_key)
            weights: Floats = np.empty(self.schema.dimension, self.schema.dtype) if into is None else into
            buffers = self.schema.read(arrays, weights)
            if not self._long_enough(weights[:_FIRST]) and (norm := _norm(weights)) <= self.shortest:
                raise MalformedReply("zero", f"all weights are zero, or next to it: their norm is {norm:.3g}")
        except MalformedReply as malformed:
            return malformed.problem
        except MemoryError:
            return Problem("error", "the server has no memory left to unpack it", blamed=False)
        except Exception as error:  # noqa: BLE001 (a hostile reply may raise anything, and only its sender must pay)
            return Problem("encoding", f"{type(error).__name__}: {error}", blamed=True)
        return CheckedReply(weights, buffers, examples, without_arrays(content))

    def _long_enough(self, some: Floats) -> bool:
        """Whether some of the weights, which are finite, show that all of them are no zeros: they mostly do."""
        with np.errstate(over="ignore"):
            return float(some @ some) > 2 * max(self.shortest, 0.0) ** 2


def _norm(vector: Floats) -> float:
    return float(vectors.row_norms(vector[None])[0])


def without_arrays(content: RecordDict) -> RecordDict:
    """Return a reply's other records, which are small, so that its arrays can be freed."""
    return RecordDict({key: record for key, record in content.items() if not isinstance(record, ArrayRecord)})


def only_arrays(content: RecordDict, key: str) -> ArrayRecord:
    """Return the only record of arrays in a reply.

    Raises
    ------
    MalformedReply
        If there is none, or more than one, or it has another name.
    """
    records = content.array_records  # Flower makes a copy each time
    if list(records) != [key]:
        names = list(records)
        raise MalformedReply("records", f"expected one ArrayRecord named '{key}', got {len(names)} {_first(names)}")
    return records[key]


def num_examples(content: RecordDict, key: str) -> float:
    """Return the number of examples that a reply claims.

    Raises
    ------
    MalformedReply
        If there is not exactly one record of metrics, or it has no such entry, or the entry is no such number.
    """
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise MalformedReply("metrics", f"expected one MetricRecord, got {len(records)}")
    if key not in records[0]:
        raise MalformedReply("metrics", f"the MetricRecord has no '{key}'")
    count = records[0][key]
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count <= MOST_EXAMPLES:
        shown = count if isinstance(count, int | float) else type(count).__name__
        raise MalformedReply("metrics", f"'{key}' must be a number from above 0 to 2**53; got {shown!r:.80}")
    return float(count)


def _first(names: Sequence[str]) -> list[str]:
    return [name[:80] for name in names[:3]]
