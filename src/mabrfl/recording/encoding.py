"""A nested state as JSON with references, and the arrays it refers to as one safetensors file.

Nothing here runs code from data: only numbers, strings, lists and tables are read; anything else is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import StateError

Arrays = Mapping[str, NDArray[Any]]

MAX_HEADER = 16 * 2**20
MAX_ARRAYS = 10_000
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""The types that a checkpoint may hold: their names in NumPy, and in safetensors."""
_NUMPY = {theirs: ours for ours, theirs in DTYPES.items()}

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors that code for a document raises if something in it has another type or size than it should."""

_PIECE = 2**16
"""Numbers that fit into a core's cache."""
_ARRAY, _SCALAR, _TUPLE, _FLOAT = "$array", "$scalar", "$tuple", "$float"
_ODD_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(state: Any) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Split a state of plain values and arrays into JSON and the arrays by name.

    Names are JSON pointers (RFC 6901) into the state, so they are distinct.

    Raises
    ------
    StateError
        If the state holds something else; the message says where.

    Examples
    --------
    >>> encode({"round": 3, "rule": {"norms": np.ones(2)}})
    ({'round': 3, 'rule': {'norms': {'$array': '/rule/norms'}}}, {'/rule/norms': array([1., 1.])})
    """
    arrays: dict[str, NDArray[Any]] = {}
    return _encode(state, "", arrays), arrays


def _encode(value: Any, place: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.name not in DTYPES:
            raise StateError(f"a checkpoint cannot hold the {array.dtype} array at {place or '/'}")
        arrays[place] = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
        return {_ARRAY if isinstance(value, np.ndarray) else _SCALAR: place}
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        entries = [_encode(entry, f"{place}/{number}", arrays) for number, entry in enumerate(value)]
        return {_TUPLE: entries} if isinstance(value, tuple) else entries
    if isinstance(value, Mapping):
        return {_key(key, place): _encode(entry, f"{place}/{_escaped(key)}", arrays) for key, entry in value.items()}
    raise StateError(
        f"a checkpoint holds numbers, strings, arrays, lists and tables; got a {type(value).__name__} at {place or '/'}"
    )


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str) or key.startswith("$") or not key.isprintable():
        raise StateError(
            f"a checkpoint's tables have printable names that do not begin with '$'; got {key!r} at {place}"
        )
    return key


def _escaped(key: Any) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def decode(value: Any, arrays: Arrays) -> Any:
    """Return the state of :func:`encode`; it must refer to every array exactly once."""
    left = dict(arrays)
    state = _decode(value, left)
    if left:
        raise StateError(f"nothing refers to the array {min(left)!r}")
    return state


def _decode(value: Any, left: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_decode(entry, left) for entry in value]
    if not isinstance(value, dict):
        return value
    marks = [key for key in value if key.startswith("$")]
    if not marks:
        return {key: _decode(entry, left) for key, entry in value.items()}
    mark, entry = marks[0], value[marks[0]]
    if len(value) == 1 and mark == _TUPLE and isinstance(entry, list):
        return tuple(_decode(each, left) for each in entry)
    named = len(value) == 1 and isinstance(entry, str)
    if named and mark == _FLOAT and entry in _ODD_FLOATS:
        return _ODD_FLOATS[entry]
    if named and mark in (_ARRAY, _SCALAR) and entry in left:
        array = left.pop(entry)
        return array if mark == _ARRAY else array[()]
    raise StateError(f"{json.dumps(value)[:80]} refers to nothing in the file")


def described(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """Return the type and shape of each array, and whether its numbers are all finite."""
    return {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "finite": _is_finite(array)}
        for name, array in sorted(arrays.items())
    }


def _is_finite(array: NDArray[Any]) -> bool:
    """Whether all numbers are finite; an array may be larger than memory, so it is read piece by piece."""
    flat = array.reshape(-1)
    return all(bool(np.all(np.isfinite(flat[k : k + _PIECE]))) for k in range(0, flat.size, _PIECE))


def to_safetensors(arrays: Arrays) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file piece by piece, without a copy of the numbers."""
    # Largest elements first, as the format's own library does: each array starts at a multiple of its element size.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    if len(names) > MAX_ARRAYS:
        raise StateError(f"a checkpoint holds at most {MAX_ARRAYS:,} arrays; got {len(names):,}")
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        if arrays[name].nbytes:
            yield arrays[name].reshape(-1).view(np.uint8).data


def from_safetensors(data: bytes | mmap) -> dict[str, NDArray[Any]]:
    """Return the arrays of a safetensors file; anything else is refused before memory is allocated.

    Arrays of a map that can be written to are views of it: nothing is read before it is used. Others are copies.

    Raises
    ------
    StateError
        If the header is too long, lists too many arrays, or does not match the data exactly.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(MAX_HEADER, len(data) - 8):
        raise StateError(f"not a safetensors file: a header of {length:,} bytes in a file of {len(data):,}")
    text = data[8 : 8 + length]
    if text.count(b'"data_offsets"') > MAX_ARRAYS:
        raise StateError(f"the file lists more than {MAX_ARRAYS:,} arrays")
    header = parse_strictly(text)
    if not isinstance(header, dict) or "__metadata__" in header:
        raise StateError("not a safetensors file of a checkpoint: its header is not a table of arrays")
    try:
        return _views(header, memoryview(data)[8 + length :])
    except MALFORMED as error:
        raise StateError(f"not a safetensors file: {error}") from error


def _views(header: Mapping[str, Any], numbers: memoryview) -> dict[str, NDArray[Any]]:
    """Return the arrays that a header describes; they must fill the numbers without a gap."""
    # Not the library's safe_open: it maps the file too, but copies every array (237 MB of a state with momenta), and it
    # opens the file by its name again, after its hash was checked.
    arrays, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        (start, stop), shape = entry["data_offsets"], entry["shape"]
        dtype = np.dtype(_NUMPY[entry["dtype"]]).newbyteorder("<")
        if not all(type(number) is int and number >= 0 for number in (start, stop, *shape)):
            raise ValueError(f"{name!r} has a size that is no whole number")
        if start != end or stop - start != math.prod(shape) * dtype.itemsize or stop > len(numbers):
            raise ValueError(f"{name!r} does not have the bytes that its shape and type need")
        array: NDArray[Any] = np.ndarray(tuple(shape), dtype, buffer=numbers[start:stop])
        arrays[name], end = array if array.flags.writeable else array.copy(), stop
    if end != len(numbers):
        raise ValueError(f"{len(numbers) - end:,} bytes belong to no array")
    return arrays


def parse_strictly(data: bytes, *, repeated_names: bool = False) -> Any:
    """Parse strict JSON: no name twice (unless allowed), no NaN, no infinities, no number that overflows to one."""

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) != len(pairs):
            raise ValueError("a name comes twice")
        return names

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name[:20]} is not a finite number")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse(text)

    try:
        hook = None if repeated_names else table
        return json.loads(data.decode("utf-8"), object_pairs_hook=hook, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        cause = "nested too deeply" if isinstance(error, RecursionError) else re.sub(r"\s+", " ", str(error))
        raise StateError(f"not valid JSON: {cause}") from error


def canonical_json(document: Any) -> bytes:
    """Return JSON in the one form that checkpoints and audits use."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.encode() + b"\n"
