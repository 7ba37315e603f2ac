"""Results in one small file: strict JSON under gzip, the same bytes for the same results."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

from mabrfl.errors import OutputError, StateError
from mabrfl.recording.files import MAX_BYTES, is_packed, write_whole
from mabrfl.recording.folder import shown
from mabrfl.recording.record import plain
from mabrfl.sweeps.results import FORMAT, VERSION, Results, load_results


def pack(results_folder: Path | str, file: Path | str, *, force: bool = False) -> Results:
    """Pack results into one file.

    Parameters
    ----------
    results_folder
        A sweep's folder, or anything else that :func:`~mabrfl.sweeps.results.load_results` reads.
    file
        The file to write; packed results in it are replaced.
    force
        Replace them even if they have finished runs that these results do not have.

    Raises
    ------
    StateError
        If the folder holds no results.
    OutputError
        If the file cannot be written, exists and is not a packed results file, or has runs that would be lost.
    """
    results, file = load_results(results_folder), Path(file)
    if file.exists():
        _check_replaceable(file, results, force)
    document = {"format": FORMAT, "version": VERSION, **results.model_dump(mode="json", exclude={"name"})}
    write_packed(plain(document), file)
    return results


def write_packed(document: Any, file: Path) -> None:
    """Write a document of plain values as JSON under gzip; the same document has the same bytes.

    Raises
    ------
    OutputError
        If it is too long to be read back, or the file cannot be written.
    """
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":")) + "\n"
    if len(text) > MAX_BYTES:
        raise OutputError(f"{shown(file)} would hold {len(text):,} bytes; at most {MAX_BYTES:,} are read back")
    packed = io.BytesIO()
    # The bytes contain neither the time nor the file's name.
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream:
        stream.write(text.encode("ascii"))
    write_whole(file, packed.getvalue())


def _check_replaceable(file: Path, results: Results, force: bool) -> None:
    try:
        before = load_results(file)
    except StateError as error:
        if is_packed(file):
            raise OutputError(f"{error}; choose another name, or remove it if nothing in it is needed") from error
        raise OutputError(f"{shown(file)} exists and is not a packed results file; choose another name") from error
    finished = {cell.key for cell in results.cells if cell.status == "done"}
    lost = [cell.key for cell in before.cells if cell.status == "done" and cell.key not in finished]
    if not lost or force:
        return
    planned = len({cell.key for cell in results.cells} & set(lost))
    others = len(lost) - planned
    details = [
        *([f"{planned} could be taken over first (mabrfl sweep --from)"] if planned else []),
        *([f"{others} are not planned in them: of another sweep, or of settings that changed"] if others else []),
    ]
    raise OutputError(
        f"{shown(file)} has {len(lost)} finished runs that are not finished in the results to be packed; "
        f"{', '.join(details)}; --force drops {'all ' if len(lost) > 1 else ''}{len(lost)}"
    )
