"""The contract of data sets and of observers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mabrfl.simulation.data.dataset import Dataset
from mabrfl.testing.properties import expect, holds

OBSERVED = ("started", "round_done", "finished", "failed")
"""The methods that an observer may have."""


def check_dataset(load: Callable[[], Dataset] | Dataset) -> None:
    """Check a data set, or the function that loads it: ``Dataset`` has checked shapes, types and labels already.

    Parameters
    ----------
    load
        A function without arguments that returns a :class:`~mabrfl.simulation.data.Dataset`, or a data set.

    Raises
    ------
    AssertionError
        Naming the property that does not hold.
    """
    datasets = []
    with holds(load, "it is a Dataset, or a function that returns one"):
        for _ in range(2):
            datasets.append(load() if callable(load) else load)
            expect(isinstance(datasets[-1], Dataset), f"got {type(datasets[-1]).__name__}")
    with holds(load, "every load gives the same numbers"):
        expect(datasets[0].fingerprint() == datasets[1].fingerprint(), "the second load gave others; fix its seed")
    with holds(load, "every class has training examples"):
        present = np.unique(datasets[0].train_labels)
        missing = sorted(set(range(int(datasets[0].num_classes))) - set(present.tolist()))
        expect(not missing, f"classes {missing[:5]} of {datasets[0].num_classes} have none")
    with holds(load, "inputs differ"):
        flat = datasets[0].train_inputs.reshape(len(datasets[0].train_inputs), -1)
        expect(len(flat) == 1 or np.any(flat != flat[0]), "all training inputs are the same")


def check_observer(observer: Any) -> None:
    """Check that an observer of runs has methods that a run can call. None of them is called.

    Parameters
    ----------
    observer
        An observer, or a class or function without arguments that makes one.

    Raises
    ------
    AssertionError
        Naming the property that does not hold.
    """
    with holds(observer, f"it has at least one of the methods {', '.join(OBSERVED)}"):
        makes = isinstance(observer, type) or (
            callable(observer) and not any(hasattr(observer, each) for each in OBSERVED)
        )
        made = observer() if makes else observer
        known = [name for name in OBSERVED if hasattr(made, name)]
        public = sorted(name for name in dir(made) if not name.startswith("_"))
        expect(known, f"it has {', '.join(public[:8]) or 'no public name'}")
    with holds(observer, "each of its methods takes one argument"):
        for name in known:
            method = getattr(made, name)
            expect(callable(method), f"{name} is {type(method).__name__}, not a method")
            try:
                inspect.signature(method).bind(object())
            except TypeError as error:
                raise AssertionError(f"{name}{inspect.signature(method)}: {error}") from error
