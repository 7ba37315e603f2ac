"""Data sets of other libraries, for whoever has them: ``hf:NAME``, ``torchvision:NAME``, ``flwr-datasets:NAME``.

Each becomes a :class:`~mabrfl.simulation.data.Dataset` in memory: pictures of one size, or columns of numbers. For
text, sound, or anything else, write a function that returns a ``Dataset`` and name it ``module:Name``.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import DatasetError, MabRflError, extra_needed, suggest
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.sources import cache_folder, data_folder

_LABELS = ("label", "fine_label", "labels", "target", "class", "y")
"""Usual names of the column with the label, the likeliest first."""
Arrays = tuple[NDArray[Any], NDArray[np.int64]]


def hugging_face(name: str) -> Dataset:
    """Return a data set of the Hugging Face hub, or of a local folder, by ``datasets.load_dataset``.

    It needs the splits ``train`` and ``test``, a column with labels (``label``, ``fine_label``, ...) and a column with
    pictures; without pictures, all columns of numbers are the features.
    """
    what = f"data set 'hf:{name}'"
    with _loading(what), extra_needed(what):
        from datasets import load_dataset  # noqa: PLC0415 (an extra)

    with _loading(what):
        splits = load_dataset(name)
    return _from_tables(what, f"hf:{name}", splits)


def flower_datasets(name: str) -> Dataset:
    """Return a data set by ``flwr_datasets.FederatedDataset``; the same form as :func:`hugging_face`.

    The run's own ``[partition]`` deals it out. For a partition by one of Flower's partitioners, see :func:`federated`.
    """
    what = f"data set 'flwr-datasets:{name}'"
    with _loading(what), extra_needed(what):
        from flwr_datasets import FederatedDataset  # noqa: PLC0415 (an extra)

    with _loading(what):
        source = FederatedDataset(dataset=name, partitioners={"train": 1})
        splits = {split: source.load_split(split) for split in ("train", "test")}
    return _from_tables(what, f"flwr-datasets:{name}", splits)


def federated(source: Any, num_clients: int, name: str = "flwr-datasets") -> tuple[Dataset, list[NDArray[np.int64]]]:
    """Return a ``flwr_datasets.FederatedDataset`` as data set and partition, for :class:`mabrfl.Simulation`.

    Parameters
    ----------
    source
        With a partitioner for the split ``train``, and a split ``test``.
    num_clients
        The number of its partitions.
    name
        What to call the data set.
    """
    parts = [_arrays(f"partition {number} of {name}", source.load_partition(number)) for number in range(num_clients)]
    test = _arrays(f"split 'test' of {name}", source.load_split("test"))
    inputs, labels = (np.concatenate([part[place] for part in parts]) for place in range(2))
    ends = np.cumsum([len(part[1]) for part in parts])
    partition = np.split(np.arange(len(labels)), ends[:-1])
    return Dataset(name, inputs, labels, *test, num_classes=_num_classes(None, labels, test[1])), partition


def torchvision(name: str) -> Dataset:
    """Return a data set of ``torchvision.datasets``, fetched if need be: a class with ``train`` or ``split``."""
    what = f"data set 'torchvision:{name}'"
    with _loading(what), extra_needed(what):
        from torchvision import datasets  # noqa: PLC0415 (an extra)

    made = getattr(datasets, name, None)
    if not isinstance(made, type):
        known = [each for each in dir(datasets) if isinstance(getattr(datasets, each), type)]
        raise DatasetError(f"{what}: torchvision.datasets has no '{name}'{suggest(name, known)}")
    options = inspect.signature(made).parameters
    if "train" in options:
        choice: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    elif "split" in options:
        choice = [{"split": "train"}, {"split": "test"}]
    else:
        raise DatasetError(f"{what}: it has neither 'train' nor 'split'; write a function that returns a Dataset")
    with _loading(what):
        train, test = (made(str(data_folder() or cache_folder()), download=True, **each) for each in choice)
        pictures, labels = _pairs(what, train)
        test_pictures, test_labels = _pairs(what, test)
    classes = len(train.classes) if hasattr(train, "classes") else None
    num_classes = _num_classes(classes, labels, test_labels)
    return Dataset(f"torchvision:{name}", pictures, labels, test_pictures, test_labels, num_classes)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Turn an error of another library into one that names the data set; its warnings are not shown."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except MabRflError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(f"{what} cannot be loaded: {reason:.300}") from error


def _from_tables(what: str, name: str, splits: Mapping[str, Any]) -> Dataset:
    absent = [split for split in ("train", "test") if split not in splits]
    if absent:
        raise DatasetError(f"{what} needs the splits train and test; it has {', '.join(sorted(splits))}")
    train, test = (_arrays(f"{what}, split '{split}'", splits[split]) for split in ("train", "test"))
    feature = splits["train"].features[_label_column(what, splits["train"].features)]
    classes = len(feature.names) if hasattr(feature, "names") else None
    return Dataset(name, *train, *test, num_classes=_num_classes(classes, train[1], test[1]))


def _arrays(what: str, table: Any) -> Arrays:
    """Return the inputs and labels of a table with named columns."""
    features = table.features
    label = _label_column(what, features)
    pictures = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if pictures:
        return _stacked(what, table[pictures[0]]), _whole(what, table[label])
    numbers = [name for name, feature in features.items() if name != label and _is_number(feature)]
    if not numbers:
        raise DatasetError(f"{what} has neither pictures nor numbers; its columns are {', '.join(features)}")
    columns = [np.asarray(list(table[name]), dtype=np.float32) for name in numbers]
    return np.stack(columns, axis=1), _whole(what, table[label])


def _label_column(what: str, features: Mapping[str, Any]) -> str:
    found = [name for name in _LABELS if name in features]
    found += [name for name, feature in features.items() if type(feature).__name__ == "ClassLabel"]
    if not found:
        raise DatasetError(f"{what} has no column with labels; its columns are {', '.join(features)}")
    return found[0]


def _is_number(feature: Any) -> bool:
    return str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float"))


def _whole(what: str, labels: Iterable[Any]) -> NDArray[np.int64]:
    array = np.asarray(list(labels))
    if array.dtype.kind not in "iu":
        raise DatasetError(f"{what}: labels must be whole numbers; got {array.dtype}")
    return array.astype(np.int64)


def _pairs(what: str, examples: Sequence[Any]) -> Arrays:
    pictures, labels = zip(*(examples[number] for number in range(len(examples))), strict=True)
    return _stacked(what, pictures), _whole(what, labels)


def _stacked(what: str, pictures: Iterable[Any]) -> NDArray[np.uint8]:
    """Return pictures of the Python Imaging Library as one array ``(N, C, H, W)``: grey, or red, green and blue."""
    arrays = [np.asarray(picture.convert("L" if picture.mode in {"1", "L"} else "RGB")) for picture in pictures]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1:
        raise DatasetError(f"{what}: pictures must have one size; got {sorted(map(str, shapes))[:5]}")
    stacked = np.stack(arrays)
    return np.ascontiguousarray(stacked[:, None] if stacked.ndim == 3 else stacked.transpose(0, 3, 1, 2))


def _num_classes(named: int | None, *labels: NDArray[np.int64]) -> int:
    return named or 1 + max(int(own.max()) for own in labels)
