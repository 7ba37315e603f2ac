"""The malformed replies of the reliability notes, section 3.6: one client of ten sends each of them.

Each takes the message and the honest reply to it, and returns what is sent instead. ``LATE`` ones cannot be sent by a
ClientApp, only by whoever stands between: they are made by a grid.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

Bad = Callable[[Message, Message], "Message | list[Message]"]


def _content(reply: Message) -> RecordDict:
    return reply.content


def _with_arrays(change: Callable[[dict[str, Array]], dict[str, Array] | None]) -> Bad:
    def bad(message: Message, reply: Message) -> Message:
        arrays = dict(_content(reply).array_records["arrays"])
        arrays = change(arrays) or arrays
        record = ArrayRecord()
        for key, array in arrays.items():
            record[key] = array
        metrics = next(iter(_content(reply).metric_records.values()))
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return bad


def _first(change: Callable[[np.ndarray], np.ndarray | Array]) -> Bad:
    def of(arrays: dict[str, Array]) -> None:
        key = next(iter(arrays))
        changed = change(arrays[key].numpy().copy())
        arrays[key] = changed if isinstance(changed, Array) else Array(changed)

    return _with_arrays(of)


def _all(change: Callable[[np.ndarray], np.ndarray]) -> Bad:
    def of(arrays: dict[str, Array]) -> None:
        for key, array in arrays.items():
            if array.numpy().dtype.kind == "f":
                arrays[key] = Array(change(array.numpy().copy()))

    return _with_arrays(of)


def _declared(**fields: Any) -> Bad:
    def of(values: np.ndarray) -> Array:
        array = Array(values)
        return Array(**{"dtype": array.dtype, "shape": array.shape, "stype": array.stype, "data": array.data, **fields})

    return _first(of)


def _payload(data: bytes) -> Bad:
    def of(values: np.ndarray) -> Array:
        array = Array(values)
        return Array(array.dtype, array.shape, array.stype, data)

    return _first(of)


def _bomb() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (65536, 65536)})
    return file.getvalue()


def _metrics(make: Callable[[dict[str, Any]], dict[str, MetricRecord]]) -> Bad:
    def bad(message: Message, reply: Message) -> Message:
        values = dict(next(iter(_content(reply).metric_records.values())))
        records: dict[str, Any] = {"arrays": _content(reply).array_records["arrays"], **make(values)}
        return Message(RecordDict(records), reply_to=message)

    return bad


def _examples(value: Any) -> Bad:
    return _metrics(lambda values: {"metrics": MetricRecord({**values, "num-examples": value})})


def _records(make: Callable[[ArrayRecord], dict[str, ArrayRecord]]) -> Bad:
    def bad(message: Message, reply: Message) -> Message:
        metrics = next(iter(_content(reply).metric_records.values()))
        return Message(
            RecordDict({**make(_content(reply).array_records["arrays"]), "metrics": metrics}), reply_to=message
        )

    return bad


def _set(values: np.ndarray, number: float) -> np.ndarray:
    values.flat[0] = number
    return values


def _named(arrays: dict[str, Array], extra: str) -> dict[str, Array]:
    return {**arrays, extra: Array(np.zeros(2, np.float32))}


def _cut(values: np.ndarray) -> Array:
    array = Array(values)
    return Array(array.dtype, array.shape, array.stype, array.data[:-5])


MALFORMED: dict[str, tuple[Bad, str]] = {
    "01 no ArrayRecord": (_records(lambda record: {}), "records"),
    "02 two ArrayRecords": (_records(lambda record: {"arrays": record, "more": record}), "records"),
    "03 other record name": (_records(lambda record: {"weights": record}), "records"),
    "04 missing key": (_with_arrays(lambda arrays: dict(list(arrays.items())[1:])), "keys"),
    "05 extra key": (_with_arrays(lambda arrays: _named(arrays, "extra\n\x1b[31m</script>")), "keys"),
    "06 reordered keys": (_with_arrays(lambda arrays: dict(reversed(list(arrays.items())))), "keys"),
    "07 wrong shape": (_first(lambda values: values[..., :-1]), "shape"),
    "08 same count, other shape": (_first(lambda values: values.reshape(-1)), "shape"),
    "09 int dtype": (_first(lambda values: values.astype(np.int32)), "dtype"),
    "10 float64": (_first(lambda values: values.astype(np.float64)), "dtype"),
    "11 str dtype": (_first(lambda values: np.full(values.shape, "x")), "dtype"),
    "12 NaN": (_first(lambda values: _set(values, np.nan)), "not-finite"),
    "13 Inf": (_first(lambda values: _set(values, np.inf)), "not-finite"),
    "14 all zero": (_all(np.zeros_like), "zero"),
    "15 1e38": (_all(lambda values: np.full_like(values, 1e38)), "norm"),
    "16a declared shape is not the payload's": (_declared(shape=(1, 1)), "shape"),
    "16b payload is not what is declared": (
        _payload(Array(np.zeros((1, 1), np.float32)).data + b"\0" * 999),
        "size|shape",
    ),
    "17 unknown stype": (_declared(stype="pickle"), "encoding"),
    "18 payload truncated": (_first(_cut), "size"),
    "19 payload header bomb": (_payload(_bomb()), "size|dtype"),
    "20a no MetricRecord": (_metrics(lambda values: {}), "metrics"),
    "20b two MetricRecords": (_metrics(lambda v: {"a": MetricRecord(v), "b": MetricRecord(v)}), "metrics"),
    "20c other keys": (_metrics(lambda values: {"metrics": MetricRecord({"other": 1.0})}), "metrics"),
    "21a num-examples missing": (_metrics(lambda values: {"metrics": MetricRecord()}), "metrics"),
    "21b num-examples list": (_examples([1, 2]), "metrics"),
    "21c num-examples negative": (_examples(-(10**12)), "metrics"),
    "21d num-examples 0": (_examples(0), "metrics"),
    "21e num-examples 1e308": (_examples(1e308), "metrics"),
    "21f num-examples NaN": (_examples(float("nan")), "metrics"),
    "22 error reply": (lambda message, reply: Message(Error(2, "boom\n" * 99), reply_to=message), "error"),
}


def duplicate(message: Message, reply: Message) -> list[Message]:
    return [reply, copy.deepcopy(reply)]


class EarlierRound:
    """Answers every message with the reply to the first."""

    def __init__(self) -> None:
        self.first: Message | None = None

    def __call__(self, message: Message, reply: Message) -> Message:
        self.first = self.first or reply
        return self.first


def not_selected(message: Message, reply: Message) -> Message:
    """A reply from a node that was never asked."""
    stranger = copy.deepcopy(reply)
    stranger.metadata.__dict__["_reply_to_message_id"] = "f" * 64
    stranger.metadata.__dict__["_src_node_id"] = 999
    return stranger


LATE: dict[str, tuple[Callable[[], Bad], str]] = {
    "23 duplicate reply": (lambda: duplicate, "duplicate"),
    "24 reply of an earlier round": (EarlierRound, "stale"),
    "25 reply from a node not selected": (lambda: not_selected, "unattributed"),
}

UNPACKABLE = _with_arrays(lambda arrays: {**arrays, next(iter(arrays)): _odd_shape(next(iter(arrays.values())))})
"""What ends a run in Flower's own grid, before any strategy sees it."""


def _odd_shape(array: Array) -> Array:
    odd = Array(array.dtype, array.shape, array.stype, array.data)
    odd.shape = ("x",)  # type: ignore[assignment] # that is the point
    return odd
