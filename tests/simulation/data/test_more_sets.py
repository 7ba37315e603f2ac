"""CIFAR-100, SVHN and EMNIST from small files made here, and the reviews."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from mabrfl import RunConfig, simulate
from mabrfl.errors import DatasetError
from mabrfl.simulation import data
from mabrfl.simulation.data import reviews
from mabrfl.simulation.data.sources import CIFAR100, COLLECTIONS, EMNIST, SVHN, Archive, DataFile
from mabrfl.simulation.data.svhn import read_mat

pytestmark = pytest.mark.usefixtures("isolated")


def put(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mat(labels: list[int], **changed: np.ndarray) -> bytes:
    """Image k has k + 1 in its red plane, 2 in row 3 of the green one, and 4 in column 5 of the blue one."""
    pixels = np.zeros((32, 32, 3, len(labels)), np.uint8)
    pixels[:, :, 0, :] = np.arange(len(labels)) + 1
    pixels[3, :, 1, :], pixels[:, 5, 2, :] = 2, 4
    file = io.BytesIO()
    savemat(file, {"X": pixels, "y": np.array(labels, np.uint8)[:, None], **changed}, do_compression=True)
    return file.getvalue()


def test_cifar_100_has_the_fine_labels(isolated: Path) -> None:
    red, green = bytes([7] * 1024), bytes([8] * 1024)
    files = {
        "train.bin": bytes([3, 99]) + red + green + red + bytes([4, 0]) + green * 3,
        "test.bin": bytes([19, 42]) + red * 3,
    }
    put(isolated / "cifar100", files)
    loaded = data.load("cifar100", download=False)
    assert (loaded.train_labels.tolist(), loaded.test_labels.tolist(), loaded.num_classes) == ([99, 0], [42], 100)
    assert loaded.train_inputs[0, :, 31, 31].tolist() == [7, 8, 7]
    assert data.check("cifar100").status == "differs"
    put(isolated / "cifar100", {"train.bin": bytes([3, 100]) + red * 3})
    with pytest.raises(DatasetError, match=r"labels must be 0\.\.99; got 100 in record 0"):
        data.load("cifar100", download=False)


def test_files_of_the_right_size_without_a_published_hash_are_called_unverified(isolated: Path, monkeypatch) -> None:
    record = bytes(3_074)
    small = dataclasses.replace(CIFAR100, files=(DataFile("train.bin", 3_074), DataFile("test.bin", 3_074)))
    monkeypatch.setitem(COLLECTIONS, "cifar100", small)
    put(isolated / "cifar100", {"train.bin": record, "test.bin": record})
    report = data.check("cifar100")
    assert (report.status, report.usable) == ("unverified", True)
    assert "no SHA-256 of them is published" in report.detail


def test_svhn_is_turned_upright_and_its_tens_are_zeros(isolated: Path) -> None:
    put(isolated / "svhn", {"train_32x32.mat": mat([1, 10, 9]), "test_32x32.mat": mat([10])})
    loaded = data.load("svhn", download=False)
    assert (loaded.train_labels.tolist(), loaded.test_labels.tolist()) == ([1, 0, 9], [0])
    image = loaded.train_inputs[2]
    assert image.shape == (3, 32, 32)
    assert (image[0] == 3).all()
    assert np.argwhere(image[1]).tolist() == [[3, column] for column in range(32)]
    assert np.argwhere(image[2]).tolist() == [[row, 5] for row in range(32)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a mat file" * 20, "not a MATLAB file of version 5"),
        (mat([1, 11]), r"labels must be 1..10; got 11 at index 1"),
        (mat([1], X=np.zeros((32, 32, 1))), r"must have X of shape \(32, 32, 3, N\)"),
        (mat([1], y=np.ones((2, 1))), r"must have X of shape \(32, 32, 3, N\) and y of shape"),
        (mat([1, 2, 3])[:-40], "corrupt|not a MATLAB file"),
    ],
)
def test_a_mat_file_of_another_form_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_mat(tmp_path / "train_32x32.mat")


def small_emnist(split: str, first: int) -> dict[str, bytes]:
    """Files of two training pictures and one test picture; only the top right corner is white, as it should be seen."""
    stored = np.zeros((2, 28, 28), np.uint8)
    stored[:, 27, 0] = 255  # EMNIST stores columns as rows
    labels = np.array([first, first + 2], np.uint8)
    return {
        f"emnist-{split}-train-images-idx3-ubyte": idx(stored),
        f"emnist-{split}-train-labels-idx1-ubyte": idx(labels),
        f"emnist-{split}-test-images-idx3-ubyte": idx(stored[:1]),
        f"emnist-{split}-test-labels-idx1-ubyte": idx(labels[:1]),
    }


@pytest.mark.parametrize(("split", "classes"), [("balanced", 47), ("byclass", 62), ("digits", 10), ("letters", 26)])
def test_emnist_is_turned_upright_and_its_letters_start_at_zero(isolated: Path, split: str, classes: int) -> None:
    packed = {f"{name}.gz": gzip.compress(own) for name, own in small_emnist(split, int(split == "letters")).items()}
    put(isolated / "emnist", packed)
    loaded = data.load(f"emnist-{split}", download=False)
    assert (loaded.num_classes, loaded.train_labels.tolist()) == (classes, [0, 2])
    assert np.argwhere(loaded.train_inputs[0, 0]).tolist() == [[0, 27]]


def test_emnist_is_unpacked_from_the_archive_of_its_authors(isolated: Path, monkeypatch) -> None:
    files = small_emnist("digits", 0)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(content))
        archive.writestr("../evil", b"x")
    content = packed.getvalue()
    described = DataFile("gzip.zip", len(content), hashlib.sha256(content).hexdigest())
    source = Archive("http://127.0.0.1:9/gzip.zip", described, "gzip", ".gz")
    sizes = tuple(DataFile(name, len(own)) for name, own in files.items())
    small = dataclasses.replace(COLLECTIONS["emnist-digits"], files=sizes, sources=(source,))
    monkeypatch.setitem(COLLECTIONS, "emnist-digits", small)
    put(isolated / "emnist", {"gzip.zip": content})
    folder = data.fetch("emnist-digits")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, "gzip.zip"])
    assert data.load("emnist-digits").test_labels.tolist() == [0]
    longer = (dataclasses.replace(sizes[0], size=sizes[0].size - 1), *sizes[1:])
    monkeypatch.setitem(COLLECTIONS, "emnist-digits", dataclasses.replace(small, files=longer))
    with pytest.raises(DatasetError, match="more than the expected"):
        data.fetch("emnist-digits", force=True)


def test_sizes_are_those_of_the_authors() -> None:
    assert [file.size for file in CIFAR100.files] == [153_700_000, 30_740_000]
    assert [file.size for file in EMNIST[0].files] == [88_435_216, 112_808, 14_739_216, 18_808]
    assert all(file.sha256 for file in SVHN.files)


def test_reviews_are_the_same_everywhere_and_need_the_order_of_words() -> None:
    loaded = data.load("reviews")
    sentence = "the manager was not rather perfect although the dessert was very pleasant"
    assert reviews.text(loaded.train_inputs[0]) == sentence
    assert loaded.train_labels[0] == 2  # the staff (1), bad: 2 * 1 + 0
    assert hashlib.sha256(loaded.train_inputs.tobytes()).hexdigest()[:16] == "67a2b9e3289ab267"
    assert np.bincount(loaded.train_labels, minlength=10).min() > 300
    assert data.check("reviews").status == "embedded"


def test_a_recurrent_network_learns_the_reviews() -> None:
    # Fourteen rounds of twenty clients, the default, reach 100 %. Chance is 10 %, and a model that ignores the order of
    # the words (logistic regression on their counts) reaches 35 %.
    last = simulate(RunConfig(dataset="reviews", defense="fedavg", rounds=4, clients=6, workers=1))[-1]
    assert last.accuracy > 40
