"""Data sets of other libraries. Stand-ins have the form of each library, and the last tests use the library itself."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Pictures

from mabrfl import catalog
from mabrfl.errors import ConfigError, DatasetError, MissingExtraError
from mabrfl.simulation.data import adapters

with_library = pytest.mark.skipif(
    find_spec("datasets") is None, reason="Hugging Face datasets are not installed: pip install 'mabrfl[hf]'"
)


class Image:
    """The type of a column of pictures, by its name alone."""


class ClassLabel:
    def __init__(self, names) -> None:
        self.names = names


class Value:
    def __init__(self, dtype) -> None:
        self.dtype = dtype


class Table:
    def __init__(self, features, **columns) -> None:
        self.features, self._columns = features, columns

    def __getitem__(self, name):
        return self._columns[name]


def pictures(count, size=(4, 3), mode="L"):
    """Picture k is all k, and one pixel of its first row is 255."""
    made = [Pictures.new(mode, size, color=k if mode == "L" else (k, k, 2 * k)) for k in range(count)]
    for picture in made:
        picture.putpixel((1, 0), 255 if mode == "L" else (255, 255, 255))
    return made


def photographs(count, **options):
    features = {"img": Image(), "label": ClassLabel(["cat", "dog", "owl"])}
    return Table(features, img=pictures(count, **options), label=[k % 2 for k in range(count)])


def install(monkeypatch, name, **contents):
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def test_a_data_set_of_the_hub_becomes_pictures_and_labels(monkeypatch):
    asked = []
    splits = {"train": photographs(5), "test": photographs(2)}
    install(monkeypatch, "datasets", load_dataset=lambda name: asked.append(name) or splits)
    data = catalog.build_dataset("hf:someone/pets")
    assert asked == ["someone/pets"]
    assert (data.name, data.num_classes, data.train_inputs.shape) == ("hf:someone/pets", 3, (5, 1, 3, 4))
    assert data.train_inputs.dtype == np.uint8
    assert data.train_inputs[4, 0].tolist() == [[4, 255, 4, 4], [4, 4, 4, 4], [4, 4, 4, 4]]
    assert data.test_labels.tolist() == [0, 1]


def test_colours_come_first(monkeypatch):
    splits = {"train": photographs(3, mode="RGB"), "test": photographs(2, mode="RGB")}
    install(monkeypatch, "datasets", load_dataset=lambda name: splits)
    data = adapters.hugging_face("colourful")
    assert data.train_inputs.shape == (3, 3, 3, 4)
    assert data.train_inputs[2, :, 2, 2].tolist() == [2, 2, 4]


def test_columns_of_numbers_are_features_where_there_are_no_pictures(monkeypatch):
    features = {"height": Value("float64"), "name": Value("string"), "age": Value("int32"), "y": Value("int64")}
    table = Table(features, height=[1.5, 2.5], name=["a", "b"], age=[3, 4], y=[0, 4])
    install(monkeypatch, "datasets", load_dataset=lambda name: {"train": table, "test": table})
    data = adapters.hugging_face("people")
    assert data.train_inputs.tolist() == [[1.5, 3], [2.5, 4]]
    assert (data.train_labels.tolist(), data.num_classes) == ([0, 4], 5)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": photographs(2)}, "'hf:bad' needs the splits train and test; it has train"),
        (
            {"train": Table({"text": Value("string")}, text=["a"]), "test": photographs(1)},
            "has no column with labels; its columns are text",
        ),
        (
            {"train": Table({"text": Value("string"), "label": Value("int64")}, text=["a"], label=[0]), "test": 0},
            "has neither pictures nor numbers; its columns are text, label",
        ),
        (
            {"train": Table({"img": Image(), "label": Value("string")}, img=pictures(1), label=["cat"]), "test": 0},
            "labels must be whole numbers",
        ),
        (
            {"train": Table({"i": Image(), "y": Value("int8")}, i=pictures(1) + pictures(1, (2, 2)), y=[0, 1])},
            "needs the splits",
        ),
        (
            {
                "train": Table({"i": Image(), "y": Value("int8")}, i=pictures(1) + pictures(1, (2, 2)), y=[0, 1]),
                "test": 0,
            },
            "pictures must have one size",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_columns(monkeypatch, splits, message):
    install(monkeypatch, "datasets", load_dataset=lambda name: splits)
    with pytest.raises(DatasetError, match=message):
        adapters.hugging_face("bad")


def test_an_error_of_the_library_names_the_data_set(monkeypatch):
    def refuse(name):
        raise ConnectionError("no network\n here")

    install(monkeypatch, "datasets", load_dataset=refuse)
    with pytest.raises(DatasetError, match="data set 'hf:far' cannot be loaded: no network here"):
        adapters.hugging_face("far")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("hf:x", "datasets", "hf"),
        ("torchvision:X", "torchvision", "torchvision"),
        ("flwr-datasets:x", "flwr_datasets", "flwr-datasets"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"data set '{name}' needs .*: pip install 'mabrfl\[{extra}\]'"):
        catalog.build_dataset(name)


def test_an_unknown_library_is_no_adapter():
    with pytest.raises(ConfigError, match="'other:a/b' is not of the form module:Name"):
        catalog.known_name("datasets", "other:a/b")


class WithTrain:
    """As torchvision's MNIST."""

    classes = ("a", "b", "c", "d")

    def __init__(self, root, train=True, download=False) -> None:
        assert download
        self.root, self._count = root, 4 if train else 2

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number):
        return pictures(self._count)[number], number


class WithSplit(WithTrain):
    """As torchvision's SVHN."""

    def __init__(self, root, split="train", download=False) -> None:
        super().__init__(root, split == "train", download)


class WithNeither:
    def __init__(self, root) -> None:
        pass


@pytest.mark.parametrize("name", ["WithTrain", "WithSplit"])
def test_a_data_set_of_torchvision_is_read_example_by_example(monkeypatch, tmp_path, name):
    shelf = SimpleNamespace(WithTrain=WithTrain, WithSplit=WithSplit, WithNeither=WithNeither)
    install(monkeypatch, "torchvision", datasets=shelf)
    monkeypatch.setenv("MABRFL_DATA", str(tmp_path))
    data = catalog.build_dataset(f"torchvision:{name}")
    assert (data.num_classes, data.train_labels.tolist(), data.test_labels.tolist()) == (4, [0, 1, 2, 3], [0, 1])
    assert data.train_inputs[3, 0, 2, 2] == 3
    with pytest.raises(DatasetError, match="neither 'train' nor 'split'"):
        catalog.build_dataset("torchvision:WithNeither")
    with pytest.raises(DatasetError, match="has no 'WithTrian'; did you mean 'WithTrain'"):
        catalog.build_dataset("torchvision:WithTrian")


class Federated:
    """As FederatedDataset with a partitioner of two clients, of 3 and 2 examples."""

    def __init__(self, dataset="mine", partitioners=None) -> None:
        self.dataset = dataset

    def load_split(self, split):
        return photographs({"train": 5, "test": 2}[split])

    def load_partition(self, number):
        return photographs([3, 2][number])


def test_a_data_set_of_flower_is_one_of_ours_with_its_partition_if_wanted(monkeypatch):
    install(monkeypatch, "flwr_datasets", FederatedDataset=Federated)
    data = catalog.build_dataset("flwr-datasets:mine")
    assert (len(data.train_labels), len(data.test_labels)) == (5, 2)
    data, partition = adapters.federated(Federated(), 2)
    assert [part.tolist() for part in partition] == [[0, 1, 2], [3, 4]]
    assert data.train_labels.tolist() == [0, 1, 0, 0, 1]


@with_library
@pytest.mark.filterwarnings("ignore")  # theirs: files that they leave open
def test_the_library_itself_reads_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for split, count in (("train", 4), ("test", 2)):
        for number, picture in enumerate(pictures(count)):
            folder = tmp_path / "pets" / split / ("cat" if number % 2 else "bat")
            folder.mkdir(parents=True, exist_ok=True)
            picture.save(folder / f"{number}.png")
    data = catalog.build_dataset(f"hf:{tmp_path / 'pets'}")
    assert (data.num_classes, data.train_inputs.shape) == (2, (4, 1, 3, 4))
    assert sorted(zip(data.train_labels.tolist(), data.train_inputs[:, 0, 1, 1].tolist(), strict=True)) == [
        (0, 0),
        (0, 2),
        (1, 1),
        (1, 3),
    ]


@with_library
@pytest.mark.filterwarnings("ignore")  # theirs: files that they leave open
def test_the_library_of_flower_itself_deals_out_a_table(tmp_path, monkeypatch):
    flower = pytest.importorskip("flwr_datasets")
    from flwr_datasets.partitioner import IidPartitioner

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "table"
    folder.mkdir()
    for split, count in (("train", 6), ("test", 2)):
        rows = "".join(f"{number},{number / 2},{number % 3}\n" for number in range(count))
        (folder / f"{split}.csv").write_text(f"a,b,label\n{rows}", encoding="utf-8")
    source = flower.FederatedDataset(dataset=str(folder), partitioners={"train": IidPartitioner(num_partitions=3)})
    data, partition = adapters.federated(source, 3)
    assert [len(part) for part in partition] == [2, 2, 2]
    assert data.input_shape == (2,)
    assert sorted(data.train_labels.tolist()) == [0, 0, 1, 1, 2, 2]
