"""Checkpoints are whole or refused, whatever happens to the files and to the process that writes them."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import pickle
import random
import shutil
import warnings
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from mabrfl.errors import StateError
from mabrfl.recording import Checkpoint, load_checkpoint, remove_checkpoints, save_checkpoint
from mabrfl.recording.encoding import canonical_json

HASH = "c" * 64
STATE: dict[str, Any] = {
    "round": 3,
    "name": "mab-rfl \ud800 ü",
    "nothing": None,
    "flags": [True, False],
    "small": 5e-324,
    "odd": [math.inf, -math.inf, -0.0],
    "pair": (1, ("a", 2.5)),
    "big": 2**70,
    "weights": np.linspace(-1, 1, 700, dtype=np.float32),
    "rule": {"ids": [3, "3", 1], "momenta": np.arange(24, dtype=np.float64).reshape(3, 8).T, "a/b~c": np.arange(3)},
    "empty": {"list": [], "table": {}, "array": np.zeros((0, 5), np.float32)},
    "scalar": np.float32(0.1),
    "zero_d": np.array(7, dtype=np.int64),
    "steps": np.array([1, 2], dtype=np.uint16),
    "mask": np.array([True, False, True]),
    "lost": np.array([np.nan, np.inf], dtype=np.float32),
}


def saved(folder: Path, *rounds: int, config_hash: str = HASH) -> Path:
    for number in rounds:
        save_checkpoint(folder, {**STATE, "round": number}, round=number, config_hash=config_hash)
    return folder


def loaded(folder: Path, **settings: Any) -> Checkpoint:
    found = load_checkpoint(folder, config_hash=HASH, **settings)
    assert found is not None
    return found


def assert_equal(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert list(got) == list(expected) or sorted(got) == sorted(expected)
        for key in expected:
            assert_equal(got[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, np.ndarray | np.generic):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.tobytes() == expected.tobytes()
    else:
        assert repr(got) == repr(expected)


def forged(folder: Path, number: int, change: Callable[[dict[str, Any]], None], data: bytes | None = None) -> None:
    """Change a checkpoint and put all its checksums right again, as an attacker would."""
    path = folder / f"round-{number:07d}.json"
    document = json.loads(path.read_text())
    if data is not None:
        (folder / document["data"]["file"]).write_bytes(data)
        document["data"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change(document)
    del document["checksum"]
    document["checksum"] = hashlib.sha256(canonical_json(document)).hexdigest()
    path.write_bytes(canonical_json(document))


def test_a_state_comes_back_as_it_was_to_the_bit_and_the_type(tmp_path: Path) -> None:
    found = loaded(saved(tmp_path / "c", 3))
    assert (found.round, found.notes) == (3, ())
    assert_equal(found.state, STATE)
    assert found.state is not None
    found.state["weights"][0] = 5.0  # whoever gets it may write to it


@pytest.mark.skipif(os.name != "posix", reason="files are mapped on POSIX systems only")
def test_arrays_are_mapped_and_not_read_and_what_is_written_to_them_stays_private(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 3)
    before = (folder / "round-0000003.safetensors").read_bytes()
    found = loaded(folder)
    assert found.state is not None
    buffer = found.state["weights"].base
    while not isinstance(buffer, mmap):
        buffer = buffer.base if isinstance(buffer, np.ndarray) else buffer.obj
    found.state["weights"][0] = 5.0
    assert (folder / "round-0000003.safetensors").read_bytes() == before


def test_the_arrays_are_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    arrays = load_file(saved(tmp_path / "c", 3) / "round-0000003.safetensors")
    assert arrays["/rule/momenta"].shape == (8, 3)
    assert arrays["/rule/a~1b~0c"].tolist() == [0, 1, 2]
    assert sorted(os.listdir(tmp_path / "c")) == ["round-0000003.json", "round-0000003.safetensors"]


def test_the_newest_two_are_kept_and_an_abandoned_future_is_not(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 1, 2, 3, 4)
    assert sorted(path.stem for path in folder.glob("*.json")) == ["round-0000003", "round-0000004"]
    saved(folder, 4, 5, 9)
    saved(folder, 6)
    assert sorted(path.stem for path in folder.glob("*.json")) == ["round-0000005", "round-0000006"]
    assert len(os.listdir(folder)) == 4


def test_what_interrupted_writes_left_is_removed_and_strangers_are_not(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 1)
    for name in (".round-0000002.json-abc", ".round-0000002.safetensors-x", "round-0000007.safetensors", "notes.txt"):
        (folder / name).write_text("x")
    assert loaded(folder).round == 1
    saved(folder, 2)
    assert len(os.listdir(folder)) == 5
    remove_checkpoints(folder)
    assert os.listdir(folder) == ["notes.txt"]
    (folder / "notes.txt").unlink()
    saved(folder, 1)
    remove_checkpoints(folder)
    assert not folder.exists()


def test_no_checkpoint_is_none_and_none_that_is_good_is_a_note(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "c", config_hash=HASH) is None
    folder = saved(tmp_path / "c", 1, 2)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    found = loaded(folder)
    assert (found.state, found.round, len(found.notes)) == (None, 0, 2)
    assert found.notes[0].startswith("checkpoint of round 2 refused: round-0000002.safetensors: cannot be read")


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_a_truncated_file_is_refused_and_the_previous_checkpoint_used(tmp_path: Path, ending: str) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    path = folder / f"round-0000002.{ending}"
    whole = path.read_bytes()
    for size in {*range(0, len(whole), 97), len(whole) - 1}:
        path.write_bytes(whole[:size])
        found = loaded(folder)
        assert (found.round, len(found.notes)) == (1, 1), size
        assert path.name in found.notes[0]


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    draw = random.Random(0)
    for ending in ("safetensors", "json"):
        path = folder / f"round-0000002.{ending}"
        whole = path.read_bytes()
        for _ in range(500):
            changed = bytearray(whole)
            changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            assert loaded(folder).round == 1
        path.write_bytes(whole)
        assert loaded(folder).round == 2


def test_members_of_two_runs_do_not_mix(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "a", 1, 2), tmp_path / "b"
    save_checkpoint(other, {**STATE, "weights": STATE["weights"] + 1}, round=2, config_hash=HASH)
    shutil.copy(other / "round-0000002.safetensors", one)
    found = loaded(one)
    assert found.round == 1
    assert "expected SHA-256" in found.notes[0]
    assert "got" in found.notes[0]


def test_a_checkpoint_of_another_configuration_is_refused_with_both_hashes(tmp_path: Path) -> None:
    found = loaded(saved(tmp_path / "c", 2, config_hash="d" * 64))
    assert found.round == 0
    assert f"expected config_hash {HASH}, got {'d' * 64}" in found.notes[0]


def test_a_renamed_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    for ending in ("json", "safetensors"):
        (folder / f"round-0000002.{ending}").rename(folder / f"round-0000009.{ending}")
    found = loaded(folder)
    assert found.round == 1
    assert "expected round 9, got 2" in found.notes[0]


def test_a_newer_format_is_refused_and_both_versions_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    forged(folder, 2, lambda document: document.update(format=2, package="9.9.9"))
    found = loaded(folder)
    assert found.round == 1
    assert "expected format 1, got 2; it was written by mabrfl 9.9.9" in found.notes[0]


def bomb(header: dict[str, Any]) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


ONE_BYTE = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'

FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], bytes | Callable[[], bytes] | None]] = {
    "a missing key": (lambda document: document.pop("arrays"), None),
    "an extra key": (lambda document: document.update(code="print()"), None),
    "format true": (lambda document: document.update(format=True), None),
    "another data file": (lambda document: document["data"].update(file="../../etc/passwd"), None),
    "no size": (lambda document: document["data"].update(bytes=None), None),
    "another dtype": (lambda document: document["arrays"]["/weights"].update(dtype="float64"), None),
    "another shape": (lambda document: document["arrays"]["/weights"].update(shape=[7, 100]), None),
    "finite it is not": (lambda document: document["arrays"]["/lost"].update(finite=True), None),
    "arrays as a list": (lambda document: document.update(arrays=[]), None),
    "a reference to nothing": (lambda document: document["state"].update(name={"$array": "/nowhere"}), None),
    "an array twice": (lambda document: document["state"].update(name={"$array": "/weights"}), None),
    "an array not at all": (lambda document: document["state"].pop("weights"), None),
    "an unknown mark": (lambda document: document["state"].update(name={"$object": "os.system"}), None),
    "a state that is no table": (lambda document: document.update(state=[], arrays={}), save({})),
    "a pickle": (lambda document: None, pickle.dumps(STATE["weights"])),
    "a header as long as memory": (lambda document: None, (2**40).to_bytes(8, "little") + b"{}"),
    "an array as large as memory": (
        lambda document: None,
        bomb({"/weights": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
    ),
    "overlapping arrays": (
        lambda document: None,
        bomb({name: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]} for name in "ab"}) + bytes(8),
    ),
    "a gap": (lambda document: None, bomb({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}) + bytes(8)),
    "more than it lists": (lambda document: None, save({"a": np.zeros(2)}) + b"more"),
    "a header that is a list": (lambda document: None, (2).to_bytes(8, "little") + b"[]"),
    "a name twice": (
        lambda document: None,
        (2 * len(ONE_BYTE) + 3).to_bytes(8, "little") + b"{" + ONE_BYTE + b"," + ONE_BYTE + b"}" + bytes(1),
    ),
    "100,000 arrays": (
        lambda document: None,
        lambda: bomb({str(n): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(100_000)}),
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_with_right_checksums_is_refused(tmp_path: Path, name: str) -> None:
    change, data = FORGERIES[name]
    folder = saved(tmp_path / "c", 1, 2)
    forged(folder, 2, change, data() if callable(data) else data)
    found = loaded(folder)
    assert (found.round, len(found.notes)) == (1, 1), found.notes
    assert "\n" not in found.notes[0]
    assert len(found.notes[0]) < 1000


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b"{" * 100_000, b"[" * 100_000, b'{"format": NaN}', b"\xff\xfe", b'{"a":1,"a":1}']
)
def test_a_document_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    (folder / "round-0000002.json").write_bytes(text)
    assert loaded(folder).round == 1


@pytest.mark.parametrize("ending", ["safetensors", "json"])
def test_links_pipes_and_folders_are_not_followed(tmp_path: Path, ending: str) -> None:
    folder = saved(tmp_path / "c", 1, 2)
    path = folder / f"round-0000002.{ending}"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert loaded(folder).round == 1
    path.unlink()
    os.mkfifo(path)
    assert loaded(folder).round == 1
    path.unlink()
    path.mkdir()
    assert loaded(folder).round == 1


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (np.array(["a"]), "<U1 array at /x/0"),
        (np.array([object()]), "object array at /x/0"),
        (np.array([1j]), "complex128 array at /x/0"),
        (b"bytes", "a bytes at /x/0"),
        ({1: 2}, "got 1 at /x/0"),
        ({"$array": 2}, "got '$array' at /x/0"),
        ({1, 2}, "a set at /x/0"),
        (object(), "a object at /x/0"),
    ],
)
def test_a_state_that_is_not_plain_is_refused_and_the_place_named(tmp_path: Path, value: Any, place: str) -> None:
    with pytest.raises(StateError) as caught:
        save_checkpoint(tmp_path / "c", {"x": [value]}, round=1, config_hash=HASH)
    assert place in str(caught.value)
    assert not (tmp_path / "c").exists()


def test_rounds_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for number in (0, -1, 10**7):
        with pytest.raises(StateError, match="round must be"):
            save_checkpoint(tmp_path / "c", {}, round=number, config_hash=HASH)


CALLS = ("open", "write", "fsync", "close", "replace")
ERRORS = {
    "ENOSPC": OSError(errno.ENOSPC, "No space left on device"),
    "EIO": OSError(errno.EIO, "Input/output error"),
    "EACCES": PermissionError(errno.EACCES, "Permission denied"),
    "Ctrl-C": KeyboardInterrupt(),
}


class FailingAt:
    """The operating system, failing at the n-th of these calls from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, fail: Callable[[], Any]) -> None:
        self.calls = 0
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == number:
                if name == "close":
                    real(*arguments)
                fail()
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CALLS)
def test_a_save_that_fails_damages_nothing_and_leaves_nothing(tmp_path: Path, name: str, error: str) -> None:
    def fail() -> None:
        raise ERRORS[error]

    number = 0
    while True:
        number += 1
        folder = saved(tmp_path / str(number), 1)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.MonkeyPatch.context() as patch:
            system = FailingAt(patch, name, number, fail)
            try:
                saved(folder, 2)
            except (OSError, KeyboardInterrupt):
                pass
            else:
                assert system.calls < number
                break
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert {kept: after[kept] for kept in before} == before
        assert set(after) - set(before) in (set(), {"round-0000002.json", "round-0000002.safetensors"})
        assert loaded(folder).round == (2 if len(after) > 2 else 1)
    assert number > 1


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:7]))
    assert_equal(loaded(saved(tmp_path / "c", 3)).state, STATE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", [*CALLS, "unlink"])
def test_a_process_killed_at_any_call_leaves_a_checkpoint_that_loads(tmp_path: Path, name: str) -> None:
    number = 0
    while True:
        number += 1
        folder = saved(tmp_path / str(number), 1, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                FailingAt(patch, name, number, lambda: os._exit(9))
                saved(folder, 3)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = loaded(folder)
        assert found.notes == ()
        assert found.round in (2, 3)
        saved(folder, 4)
        assert len(os.listdir(folder)) == 4
        if code == 0:
            break
    assert number > 1
