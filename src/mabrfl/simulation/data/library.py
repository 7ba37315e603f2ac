"""The data sets by name: find, load, fetch and check them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from mabrfl.errors import ConfigError, DatasetError, MissingExtraError, require, suggest
from mabrfl.simulation.data import cifar, digits, point_clusters, reviews, svhn
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.download import download_collection
from mabrfl.simulation.data.idx import read_idx
from mabrfl.simulation.data.sources import (
    COLLECTIONS,
    Archive,
    Collection,
    LocalArchive,
    Source,
    cache_folder,
    data_folder,
)
from mabrfl.simulation.data.storage import StorageError, is_official

EMBEDDED = {"digits": digits.load, "reviews": reviews.load, "clusters": point_clusters.load}
"""Data sets without files of their own."""
DATASETS = (*EMBEDDED, *COLLECTIONS)
"""The names of the data sets; :mod:`mabrfl.catalog.entries` says more about each."""

_ABSENT = "not there"

Status = Literal["embedded", "official", "unverified", "differs", "broken", "missing"]


@dataclass(frozen=True)
class DatasetCheck:
    """The result of :func:`check` for one data set.

    Attributes
    ----------
    name
        The data set.
    status
        ``"embedded"``; ``"official"`` (every file has the known SHA-256); ``"unverified"`` (every file has the
        official size, but no SHA-256 of some is published); ``"differs"`` (well-formed, but not the official bytes);
        ``"broken"``; ``"missing"``.
    folder
        The folder with its files, if there is one.
    detail
        One sentence for a person.
    """

    name: str
    status: Status
    folder: Path | None
    detail: str

    @property
    def usable(self) -> bool:
        """Whether :func:`load` works without fetching anything."""
        return self.status in ("embedded", "official", "unverified", "differs")


def load(name: str, *, download: bool = True, progress: bool | None = None) -> Dataset:
    """Return a data set by name, fetching it first if it is not on this machine.

    It is searched for in ``$MABRFL_DATA`` (``<folder>/<name>/`` or the folder itself), then in the user's cache,
    then in the folder of the operating system's package.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    download
        Fetch it if it is missing.
    progress
        Show a progress bar while fetching; by default only on a terminal.

    Raises
    ------
    ConfigError
        If there is no data set of that name.
    DatasetError
        If it is missing and cannot be fetched, or its files are corrupt.
    """
    collection = _collection(name)
    if collection is None:
        return EMBEDDED[name]()
    folder = locate(name)
    if folder is None and not download:
        raise DatasetError(_not_found(collection, "not fetched, because download is off"))
    return _read(collection, folder or _fetch(collection, cache_folder(), progress=progress))


def locate(name: str) -> Path | None:
    """Return the folder with all files of a data set, or None (also for an embedded one)."""
    collection = _collection(name)
    if collection is None:
        return None
    return next((folder for folder, problem in _search(collection) if problem is None), None)


def is_embedded(name: str) -> bool:
    """Return whether a data set comes with an installed package or is generated, and therefore has no folder."""
    return _collection(name) is None


def fetch(name: str, *, force: bool = False, into: Path | None = None, progress: bool | None = None) -> Path | None:
    """Make sure a data set is on this machine and return its folder (None for an embedded one).

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    force
        Fetch it again even if a usable copy is there.
    into
        The data folder to put it in, as ``<into>/<name>/``; by default the user's cache.
    progress
        Show a progress bar; by default only on a terminal.
    """
    collection = _collection(name)
    if collection is None:
        return None
    if not force and into is None:
        report = check(name)
        if report.usable:
            return report.folder
        if report.folder is not None and not report.folder.is_relative_to(cache_folder()):
            # Fetching would not help: the search would still find this copy first.
            raise DatasetError(report.detail)
    return _fetch(collection, into.expanduser() if into else cache_folder(), force=force, progress=progress)


def check(name: str) -> DatasetCheck:
    """Verify the files of a data set: structure always, SHA-256 against the official files."""
    collection = _collection(name)
    if collection is None:
        return _check_embedded(name)
    folder = locate(name)
    if folder is None:
        return DatasetCheck(name, "missing", None, f"not on this machine; get it with: mabrfl data fetch {name}")
    try:
        _read(collection, folder)
        different = [f.name for f in collection.files if not is_official(_file(folder, f.name), f)]
    except DatasetError as error:
        return DatasetCheck(name, "broken", folder, str(error))
    if different:
        which = "in every file" if len(different) == len(collection.files) else f"in {', '.join(different)}"
        return DatasetCheck(name, "differs", folder, f"content differs from the official files {which}")
    if not all(file.sha256 for file in collection.files):
        detail = "all files have the official size; no SHA-256 of them is published"
        return DatasetCheck(name, "unverified", folder, detail)
    return DatasetCheck(name, "official", folder, "all files have the official SHA-256")


def _check_embedded(name: str) -> DatasetCheck:
    if name != "digits":
        return DatasetCheck(name, "embedded", None, "made by this package")
    try:
        require("sklearn", f"the data set '{name}'")
    except MissingExtraError as error:
        return DatasetCheck(name, "missing", None, str(error))
    return DatasetCheck(name, "embedded", None, "comes with scikit-learn")


def _fetch(collection: Collection, root: Path, *, force: bool = False, progress: bool | None = None) -> Path:
    target = root / collection.folders[0]
    sources = (*_local_archives(collection), *collection.sources)
    try:
        download_collection(collection, target, sources=sources, force=force, progress=progress)
    except StorageError as error:
        raise DatasetError(f"{collection.name}: {error}; set XDG_CACHE_HOME to a folder with room") from error
    except DatasetError as error:
        raise DatasetError(_not_found(collection, str(error))) from error
    return target


def _collection(name: str) -> Collection | None:
    if name not in DATASETS:
        raise ConfigError(f"unknown data set '{name}'{suggest(str(name), DATASETS)}")
    return COLLECTIONS.get(name)


def _file(folder: Path, name: str) -> Path:
    """Return the path of a file in ``folder``: the plain file if it exists, else the gzip file."""
    plain = folder / name
    packed = folder / f"{name}.gz"
    return packed if packed.exists() and not plain.exists() else plain


def _roots() -> Iterator[Path]:
    if named := data_folder():
        yield named
    yield cache_folder()


def _search(collection: Collection) -> Iterator[tuple[Path, str | None]]:
    """Yield every folder to search, in order, with the reason why it cannot be used (None if it can)."""
    folders = [root / below for root in _roots() for below in collection.folders]
    for folder in (*folders, *map(Path, collection.system_folders)):
        absent = [file.name for file in collection.files if not _file(folder, file.name).exists()]
        if len(absent) == len(collection.files):
            yield folder, _ABSENT
        elif absent:
            yield folder, f"lacks {', '.join(absent)}"
        elif other := _identity(collection, folder):
            yield folder, f"holds {other}"
        else:
            yield folder, None


def _identity(collection: Collection, folder: Path) -> str | None:
    """Return the name of another known data set if the folder holds that one.

    MNIST and Fashion-MNIST have the same file names, and ``$MABRFL_DATA`` may name the folder of either.
    The smallest file decides.
    """
    names = {file.name for file in collection.files}
    for other in COLLECTIONS.values():
        if other.name == collection.name or {file.name for file in other.files} != names:
            continue
        sample = min(other.files, key=lambda file: file.size)
        # If the file is corrupt, loading it gives the message.
        with suppress(DatasetError):
            if is_official(_file(folder, sample.name), sample):
                return other.name
    return None


def _local_archives(collection: Collection) -> Iterator[Source]:
    """Yield archives that the user has already downloaded by hand."""
    for archive in collection.sources:
        if not isinstance(archive, Archive):
            continue
        for folder in (root / below for root in _roots() for below in collection.folders):
            if (path := folder / archive.file.name).is_file():
                yield LocalArchive(path, archive)


def _not_found(collection: Collection, attempt: str) -> str:
    name = collection.name
    searched = [(folder, problem) for folder, problem in _search(collection) if problem]
    places = ", ".join(str(folder) if problem == _ABSENT else f"{folder} ({problem})" for folder, problem in searched)
    if (named := data_folder()) is not None and not named.is_dir():
        places += f" (MABRFL_DATA is {named}, which is no folder)"
    return (
        f"data set '{name}' was not found. Looked in: {places}. Fetching: {attempt}. "
        f"To fix this, put its files ({', '.join(file.name for file in collection.files)}) into a folder and set "
        f"MABRFL_DATA to it, or run 'mabrfl data fetch {name}' with a network connection."
    )


def _read(collection: Collection, folder: Path) -> Dataset:
    try:
        return Dataset(collection.name, *_arrays(collection, folder), num_classes=collection.num_classes)
    except DatasetError as error:
        remedy = "replace it, or remove it so that another copy is looked for"
        if folder.is_relative_to(cache_folder()):
            remedy = f"repair it with 'mabrfl data fetch {collection.name}'"
        # The error of a single file names its path; an error of several files together does not.
        where = "" if str(folder) in str(error) else f" in {folder}"
        raise DatasetError(f"data set '{collection.name}'{where} cannot be used: {error}; {remedy}") from error


def _arrays(collection: Collection, folder: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return inputs and labels for training, and for testing."""
    match collection.format:
        case "cifar10":
            return *cifar.read_batches(folder, cifar.TRAIN_FILES), *cifar.read_batches(folder, (cifar.TEST_FILE,))
        case "cifar100":
            train, test = (
                cifar.read_batches(folder, (file.name,), label_bytes=2, num_classes=collection.num_classes)
                for file in collection.files
            )
            return *train, *test
        case "svhn":
            train, test = (svhn.read_mat(_file(folder, file.name)) for file in collection.files)
            return *train, *test
    images, labels, test_images, test_labels = (read_idx(_file(folder, file.name)) for file in collection.files)
    for pictures in (images, test_images):
        if pictures.shape[1:] != (28, 28) or pictures.dtype != "uint8":
            raise DatasetError(f"images must be 28 x 28 uint8; got {pictures.shape[1:]} {pictures.dtype}")
    if collection.format == "idx-transposed":  # EMNIST stores its pictures column by column
        images, test_images = images.swapaxes(1, 2), test_images.swapaxes(1, 2)
    if collection.first_label:
        labels, test_labels = (own.astype("int64") - collection.first_label for own in (labels, test_labels))
    return images[:, None], labels, test_images[:, None], test_labels
