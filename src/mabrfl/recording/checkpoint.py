"""Checkpoints: everything the next round depends on, in files that are complete, checked, and contain no code.

A checkpoint is ``round-NNNNNNN.safetensors`` with the arrays, and ``round-NNNNNNN.json`` with everything else and
the SHA-256 of the first. The JSON file is written last: without it there is no checkpoint. The newest two are kept,
so that a damaged one costs a round and not the run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any, BinaryIO

from mabrfl._version import __version__
from mabrfl.errors import StateError
from mabrfl.recording.atomic import replace_file, sync_folder
from mabrfl.recording.encoding import (
    canonical_json,
    decode,
    described,
    encode,
    from_safetensors,
    parse_strictly,
    to_safetensors,
)
from mabrfl.recording.regular import open_regular

FORMAT = 1
MAX_DOCUMENT = 64 * 2**20
"""Bytes of the JSON file, far more than a hundred thousand clients need."""

_NAME = re.compile(r"round-(\d{7})")
_KEYS = {"format", "package", "round", "config_hash", "data", "arrays", "state", "checksum"}


@dataclass(frozen=True)
class Checkpoint:
    """The result of reading a folder of checkpoints.

    Attributes
    ----------
    state
        The saved state; None if every checkpoint was refused.
    round
        The last finished round; 0 without a state.
    config_hash
        The configuration that it was saved with.
    notes
        One line for each checkpoint that was refused, newest first: which file, what was expected, what it has.
    """

    state: dict[str, Any] | None
    round: int
    notes: tuple[str, ...] = ()
    config_hash: str = ""


def save_checkpoint(folder: Path | str, state: Mapping[str, Any], *, round: int, config_hash: str) -> None:
    """Save a state; it is on the disk when this returns, and the checkpoint before it stays until then.

    Parameters
    ----------
    folder
        Only for checkpoints; created if missing. All but the two newest are removed from it, and so are those of
        later rounds, which the run will write again.
    state
        Nested tables and lists of numbers, strings and arrays.
    round, config_hash
        The last finished round, and the configuration of the run.

    Raises
    ------
    StateError
        If the state holds anything else.
    OSError
        If it cannot be written. Earlier checkpoints are unchanged then.
    """
    folder = Path(folder)
    if not 0 < round < 10**7:
        raise StateError(f"a checkpoint's round must be from 1 to 9999999; got {round}")
    encoded, arrays = encode(dict(state))
    data_path, document_path = _paths(folder, round)
    if not folder.is_dir():
        folder.mkdir()
        sync_folder(folder.parent)
    try:
        with _Tally() as tally:
            replace_file(data_path, tally.over(to_safetensors(arrays)))
            shapes = described(arrays)
            sha256 = tally.hexdigest()
        document: dict[str, Any] = {
            "format": FORMAT,
            "package": __version__,
            "round": round,
            "config_hash": config_hash,
            "data": {"file": data_path.name, "bytes": tally.size, "sha256": sha256},
            "arrays": shapes,
            "state": encoded,
        }
        document["checksum"] = _checksum(document)
        text = canonical_json(document)
        if len(text) > MAX_DOCUMENT:
            raise StateError(f"a checkpoint's JSON may have {MAX_DOCUMENT:,} bytes; this one has {len(text):,}")
        replace_file(document_path, [text])
        sync_folder(folder)
    except BaseException:
        if not document_path.exists():
            data_path.unlink(missing_ok=True)
        raise
    _tidy(folder, round)


def load_checkpoint(
    folder: Path | str, *, config_hash: str, before: int | None = None, earlier: Collection[str] = ()
) -> Checkpoint | None:
    """Return the newest checkpoint that is complete and belongs to this configuration.

    Parameters
    ----------
    folder
        As for :func:`save_checkpoint`.
    config_hash
        Of the run that continues.
    before
        Only look at checkpoints of earlier rounds than this.
    earlier
        Hashes of other configurations whose checkpoints can be used as well.

    Returns
    -------
    Checkpoint or None
        None if there is no checkpoint at all. If there are some and all are refused, one without a state, whose
        notes say why.
    """
    folder = Path(folder)
    notes: list[str] = []
    for number in _rounds_in(folder):
        if before is not None and number >= before:
            continue
        try:
            state, saved_with = _load(folder, number, (config_hash, *earlier))
            return Checkpoint(state, number, tuple(notes), saved_with)
        except StateError as error:
            notes.append(f"checkpoint of round {number} refused: {error}")
    return Checkpoint(None, 0, tuple(notes)) if notes else None


def newest_document(folder: Path | str) -> dict[str, Any] | None:
    """Return the newest complete document of a checkpoint (its numbers and strings, not the arrays), if any."""
    for number in _rounds_in(Path(folder)):
        try:
            return _document(_paths(Path(folder), number)[1])
        except StateError:
            continue
    return None


def remove_checkpoints(folder: Path | str) -> None:
    """Remove all checkpoints of a run, and their folder if nothing else is in it."""
    folder = Path(folder)
    if not folder.is_dir() or folder.is_symlink():
        return
    # Documents first: an interrupted removal must not leave files that look like a checkpoint.
    ours = [path for path in folder.iterdir() if _NAME.match(path.name.removeprefix("."))]
    for path in sorted(ours, key=lambda path: path.suffix != ".json"):
        path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _paths(folder: Path, number: int) -> tuple[Path, Path]:
    name = f"round-{number:07d}"
    return folder / f"{name}.safetensors", folder / f"{name}.json"


def _rounds_in(folder: Path) -> list[int]:
    """Return the rounds that have a checkpoint, newest first."""
    names = os.listdir(folder) if folder.is_dir() else []
    matches = [_NAME.fullmatch(name.removesuffix(".json")) for name in names if name.endswith(".json")]
    return sorted((int(match[1]) for match in matches if match), reverse=True)


class _Tally:
    """Size and SHA-256 of the chunks that pass through it; they are hashed while they are written."""

    def __init__(self) -> None:
        self.size = 0
        self.sha256 = hashlib.sha256()
        self._hashing = ThreadPoolExecutor(1)
        self._hashed: list[Future[None]] = []

    def __enter__(self) -> _Tally:
        return self

    def __exit__(self, *_: object) -> None:
        self._hashing.shutdown()

    def hexdigest(self) -> str:
        """Wait until everything is hashed, and return the hash."""
        for chunk in self._hashed:
            chunk.result()
        return self.sha256.hexdigest()

    def over(self, chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        for chunk in chunks:
            self.size += len(chunk)
            self._hashed.append(self._hashing.submit(self.sha256.update, chunk))
            yield chunk


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json({key: document[key] for key in document if key != "checksum"})).hexdigest()


def _tidy(folder: Path, newest: int) -> None:
    """Keep the checkpoint just written and the one before it; remove all others and unfinished files."""
    kept = {newest, *[number for number in _rounds_in(folder) if number < newest][:1]}
    names = {path.name for number in kept for path in _paths(folder, number)}
    ours = [path for path in folder.iterdir() if _NAME.match(path.name.removeprefix(".")) and path.name not in names]
    for path in sorted(ours, key=lambda path: path.suffix != ".json"):
        path.unlink(missing_ok=True)


def _load(folder: Path, number: int, hashes: Sequence[str]) -> tuple[dict[str, Any], str]:
    data_path, document_path = _paths(folder, number)
    document = _document(document_path)
    hash_in_file = str(document["config_hash"])
    for key, expected in (("config_hash", hash_in_file if hash_in_file in hashes else hashes[0]), ("round", number)):
        if document[key] != expected:
            raise StateError(f"{document_path.name}: expected {key} {expected}, got {document[key]}")
    data_file = document["data"]
    named = isinstance(data_file, dict) and data_file.get("file") == data_path.name
    if not named or not isinstance(data_file.get("bytes"), int):
        raise StateError(f"{document_path.name}: does not name its data file")
    data = _mapped(data_path, data_file["bytes"])
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != data_file.get("sha256"):
        raise StateError(f"{data_path.name}: expected SHA-256 {data_file.get('sha256')}, got {sha256}")
    try:
        arrays = from_safetensors(data)
        for name, (expected, got) in _differences(document["arrays"], described(arrays)).items():
            raise StateError(f"array {name!r}: expected {expected}, got {got}")
        state = decode(document["state"], arrays)
    except StateError as error:
        raise StateError(f"{data_path.name}: {error}") from error
    except RecursionError as error:
        raise StateError(f"{document_path.name}: nested too deeply") from error
    if not isinstance(state, dict):
        raise StateError(f"{document_path.name}: expected a table as the state, got a {type(state).__name__}")
    return state, hash_in_file


def _document(path: Path) -> dict[str, Any]:
    """Read the JSON file of a checkpoint; refuse it if it is incomplete, changed, or of an unknown format."""
    text = _read(path, MAX_DOCUMENT)
    try:
        document = parse_strictly(text)
    except StateError as error:
        raise StateError(f"{path.name}: {error}") from error
    if not isinstance(document, dict):
        raise StateError(f"{path.name}: expected a table, got a {type(document).__name__}")
    version = document.get("format")
    if version != FORMAT or isinstance(version, bool):
        newer = isinstance(version, int) and version > FORMAT
        hint = f"; it was written by mabrfl {document.get('package')}, this is {__version__}" if newer else ""
        raise StateError(f"{path.name}: expected format {FORMAT}, got {version!r}{hint}")
    if set(document) != _KEYS:
        raise StateError(f"{path.name}: expected the keys {sorted(_KEYS)}, got {sorted(document)}")
    expected = _checksum(document)
    if document["checksum"] != expected:
        raise StateError(f"{path.name}: expected checksum {expected}, got {document['checksum']}")
    if canonical_json(document) != text:
        raise StateError(f"{path.name}: does not have the exact form of a checkpoint; another program changed it")
    return document


def _differences(expected: Any, got: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    if not isinstance(expected, dict):
        raise StateError(f"expected a table of arrays, got a {type(expected).__name__}")
    return {
        name: (expected.get(name, "none of that name"), got.get(name, "none of that name"))
        for name in sorted({*expected, *got})
        if expected.get(name) != got.get(name)
    }


def _read(path: Path, most: int) -> bytes:
    """Read a regular file of at most this many bytes; links, pipes and devices are refused."""
    with _opened(path) as file:
        there = os.fstat(file.fileno()).st_size
        if there > most:
            raise StateError(f"{path.name}: expected at most {most:,} bytes, got {there:,}")
        return file.read(most)


def _mapped(path: Path, size: int) -> bytes | mmap:
    """Map a regular file of this many bytes, which may be more than there is memory; what is written stays private."""
    with _opened(path) as file:
        there = os.fstat(file.fileno()).st_size
        if there != size:
            raise StateError(f"{path.name}: expected {size:,} bytes, got {there:,}")
        if not size or os.name != "posix":  # elsewhere, a file cannot be removed as long as it is mapped
            return file.read(size)
        return mmap(file.fileno(), size, access=ACCESS_COPY)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular(path, links=False) as file:
            yield file
    except OSError as error:
        raise StateError(f"{path.name}: cannot be read: {error.strerror}") from error
