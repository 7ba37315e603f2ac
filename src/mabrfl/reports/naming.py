"""What data sets, defenses, attacks and selectors are called in tables and figures: as the paper does, where it can."""

from __future__ import annotations

from collections.abc import Mapping

from mabrfl.catalog import KINDS, known_name
from mabrfl.config.toml import one_line
from mabrfl.errors import ConfigError
from mabrfl.reports import paper_table as paper

_DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "digits": "digits"}
_DEFENSES = {
    **paper.defense_names(),
    "multi-krum": "Multi-Krum",
    "trimmed-mean": "Trimmed mean",
    "geometric-median": "Geometric median",
    "fedavg-uniform": "FedAvg uniform",
}
_ATTACKS = {
    **paper.attack_names(),
    "none": "—",
    "min-max": "Min-Max",
    "min-sum": "Min-Sum",
    "ipm": "IPM",
    "sign-flip": "Sign flip",
    "gaussian": "Gaussian",
    "mimic": "Mimic",
}
_SELECTORS = {"acs": "ACS", "thompson-top": "Thompson", "uniform": "uniform", "all": "all"}


def dataset_name(dataset: str) -> str:
    """Return how a data set is called."""
    return _DATASETS.get(dataset, own_name(dataset))


def defense_name(defense: str) -> str:
    """Return how a defense is called."""
    return _DEFENSES.get(defense, own_name(defense))


def attack_name(attack: str) -> str:
    """Return how an attack is called."""
    return _ATTACKS.get(attack, own_name(attack))


def selector_name(selector: str) -> str:
    """Return how a selector is called."""
    return _SELECTORS.get(selector, own_name(selector))


def own_name(name: str) -> str:
    """Return how something that is not of this package is called: ``module:Name`` by its name alone."""
    return one_line(name.rpartition(":")[2] or name)


def is_label(axis: str, value: object, setting: str | None) -> bool:
    """Whether an axis has a point of another name than its setting's value; an alias is no other name."""
    if not isinstance(value, str) or value == setting or (setting is None and "." in axis):
        return False
    for kind in KINDS:
        if kind == f"{axis}s":
            try:
                return known_name(kind, value) != setting
            except ConfigError:
                return True
    return True


STATUS_WORDS: Mapping[str, str] = {"done": "done", "failed": "failed", "running": "begun", "missing": "missing"}
"""What readers are told: whether a run that is not finished is still at work, no record can say."""
