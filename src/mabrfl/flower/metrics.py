"""Metrics that clients report: checked one by one, averaged without a word of theirs about their weight."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, RecordDict

from mabrfl.flower.problems import Malformed

AggregateMetrics = Callable[[list[RecordDict], str], MetricRecord]

MOST_EXAMPLES = 2**53
"""A client with more examples than that is not to be believed."""

_MOST_KEYS = 100
_LONGEST_KEY = 100


def the_arrays(content: RecordDict, key: str) -> ArrayRecord:
    """Return the one record of arrays in a reply.

    Raises
    ------
    Malformed
        If there is none, or more than one, or it has another name.
    """
    found = list(content.array_records)
    if found != [key]:
        raise Malformed("records", f"expected one ArrayRecord named '{key}', got {len(found)} {_named(found)}")
    return content.array_records[key]


def num_examples(content: RecordDict, key: str) -> float:
    """Return the number of examples that a reply claims.

    Raises
    ------
    Malformed
        If there is not exactly one record of metrics, or the number is missing, or is none.
    """
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise Malformed("metrics", f"expected one MetricRecord, got {len(records)}")
    if key not in records[0]:
        raise Malformed("metrics", f"the MetricRecord has no '{key}'")
    count = records[0][key]
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count <= MOST_EXAMPLES:
        shown = count if isinstance(count, int | float) else type(count).__name__
        raise Malformed("metrics", f"'{key}' must be a number from above 0 to 2**53; got {shown!r:.80}")
    return float(count)


def mean_metrics(contents: Sequence[RecordDict], key: str, weights: Sequence[float] | None = None) -> MetricRecord:
    """Return the mean of each metric that more than half of the clients report, over its finite values.

    Parameters
    ----------
    contents
        Replies that hold one record of metrics each.
    key
        The number of examples, which is left out.
    weights
        One per client; equal if left out.
    """
    values: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for content, weight in zip(contents, weights or [1.0] * len(contents), strict=True):
        record = next(iter(content.metric_records.values()))
        for name, value in list(record.items())[:_MOST_KEYS]:
            if name != key and len(name) <= _LONGEST_KEY and name.isprintable() and _is_finite(value):
                values[name].append((float(value), weight))  # type: ignore[arg-type] # just checked
    means = MetricRecord()
    for name, pairs in sorted(values.items()):
        if 2 * len(pairs) > len(contents):
            total = math.fsum(weight for _, weight in pairs)
            mean = math.fsum(value * (weight / total) for value, weight in pairs)
            if math.isfinite(mean):
                means[name] = mean
    return means


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer too long for a float
        return False


def _named(found: Sequence[str]) -> list[str]:
    return [name[:80] for name in found[:3]]
