"""The choices that MAB-RFL leaves open, as options; and the presets, which set all of them.

``hardened`` is the default: it has no threshold to tune to a model or to data (see :mod:`mabrfl.mab.hardened`).
``paper`` follows the text line by line, ``reference`` the behaviour of the released code. The numbers in brackets are
the rows of the audit table in ``docs/method.md``. A new preset also needs an entry in :mod:`mabrfl.catalog.entries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from mabrfl.checks import check_options
from mabrfl.errors import ConfigError, suggest
from mabrfl.mab.hardened.hardened_options import HardenedOptions

DEFAULT_PRESET = "hardened"


@dataclass(frozen=True, kw_only=True)
class MabRflOptions:
    """All choices that the paper's method leaves open; the defaults are the preset ``paper`` for MNIST.

    Attributes
    ----------
    warmup_rounds
        [1] Rounds at the start in which everybody is selected.
    inclusion
        [2] ``bernoulli``: client k takes part with probability p_k drawn from Beta(B_k, M_k).
        ``cutoffs``: always if p_k >= ``always_from``, never if p_k <= ``never_to``, else as above.
    always_from, never_to
        [2] The cut-offs of ``inclusion="cutoffs"``.
    empty_selection
        [3] If nobody was drawn: ``random-subset`` (uniform over the non-empty subsets) or ``all``.
    prior_benign, prior_malicious
        [4] B_k and M_k of a client that was never judged.
    beliefs
        [4] ``kept`` over the rounds, or ``reset`` at the start of each, as Alg. 2 line 1 reads literally.
    first_round
        [5] The number of the first round, at which the similarity threshold equals ``c_max``.
    schedule_decay
        [6] Rounds in which the threshold falls by a factor e: 20, or 1 in the first release.
    c_max, c_min
        [7] Similarity threshold at the start, and its floor.
    graph_vectors
        [8] The vectors of the sybil graph: the raw ``update`` or the ``momentum``.
    momentum_memory
        [9] The stored form of a momentum: ``raw``, or ``unit`` (overwritten by its unit vector).
    momentum_updated
        [10] The clients whose momentum is updated: those ``judged`` by INSA (not the sybils) or all ``selected``.
    momentum_age
        [11] t_k in Eq. 5: the last round in which the momentum was ``computed``, or k was ``selected``.
    edge_test
        [12] Two clients are linked if their cosine is ``at-least`` the threshold, or ``above`` it.
    min_component
        [13] The smallest group that counts as sybils; 1 is the literal reading of Alg. 4.
    component_ties
        [14] Between equally large groups: a seeded ``random`` one, or the one with the ``lowest-id``.
    components_removed
        [15] How many groups are removed, largest first.
    history
        Lambda of Eq. 5, the weight of the past in the momentum. With 0 no momenta are stored: the memory holds a
        round's own updates only.
    pca_variance
        [16] Share of the variance that the kept principal components must explain; 1 keeps all.
    linkage
        [17] Linkage of the agglomerative clustering.
    alpha
        [7] Threshold for the cosine of the clusters' means; see ``alpha_test``.
    cluster_means
        [18] Means of the ``raw`` momenta, or of the ``unit`` momenta.
    alpha_test
        [19] The smaller cluster is removed if the cosine is ``at-most`` alpha, or ``below`` it.
    equal_clusters
        [20] If two clusters of equal size should be removed: ``keep`` both, or remove
        the one that scikit-learn labels ``first``.
    small_cohort
        [21] With fewer than two clients after the sybil test: ``skip`` the outlier test; with
        ``count-crash`` also record that the released code would have crashed.
    step_size
        [22] ``mean`` or ``median`` of the norms of the accepted updates.
    weighting
        [23] Weights of the unit momenta in the mean: ``uniform``, or by number of ``examples``.
    """

    warmup_rounds: int = 0
    inclusion: Literal["bernoulli", "cutoffs"] = "bernoulli"
    always_from: float = 0.9
    never_to: float = 0.2
    empty_selection: Literal["random-subset", "all"] = "random-subset"
    prior_benign: float = 1.0
    prior_malicious: float = 1.0
    beliefs: Literal["kept", "reset"] = "kept"
    first_round: int = 1
    schedule_decay: float = 20.0
    c_max: float = 0.7
    c_min: float = 0.3
    graph_vectors: Literal["update", "momentum"] = "update"
    momentum_memory: Literal["raw", "unit"] = "raw"
    momentum_updated: Literal["judged", "selected"] = "judged"
    momentum_age: Literal["computed", "selected"] = "computed"
    edge_test: Literal["at-least", "above"] = "at-least"
    min_component: int = 2
    component_ties: Literal["random", "lowest-id"] = "random"
    components_removed: int = 1
    history: float = 0.1
    pca_variance: float = 0.95
    linkage: Literal["ward", "average", "complete", "single"] = "ward"
    alpha: float = -0.1
    cluster_means: Literal["raw", "unit"] = "raw"
    alpha_test: Literal["at-most", "below"] = "at-most"
    equal_clusters: Literal["keep", "first"] = "keep"
    small_cohort: Literal["skip", "count-crash"] = "skip"
    step_size: Literal["mean", "median"] = "mean"
    weighting: Literal["uniform", "examples"] = "uniform"

    def __post_init__(self) -> None:
        check_options(self, _RANGES)
        if self.never_to > self.always_from:
            raise ConfigError(
                f"never_to <= always_from must hold; got never_to={self.never_to}, always_from={self.always_from}"
            )
        if not -1 < self.c_min <= self.c_max < 1:
            raise ConfigError(f"-1 < c_min <= c_max < 1 must hold; got c_min={self.c_min}, c_max={self.c_max}")


_MANY = 10**9
_TINY = 1e-9
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("warmup_rounds", 0, _MANY),
    ("always_from", 0, 1),
    ("never_to", 0, 1),
    ("prior_benign", _TINY, _MANY),
    ("prior_malicious", _TINY, _MANY),
    ("first_round", 1, _MANY),
    ("schedule_decay", _TINY, _MANY),
    ("min_component", 1, _MANY),
    ("components_removed", 0, _MANY),
    ("history", 0, 1 - _TINY),
    ("pca_variance", _TINY, 1),
    ("alpha", -1, 1),
)


Options = MabRflOptions | HardenedOptions

PRESETS: Mapping[str, Options] = {
    "hardened": HardenedOptions(),
    "paper": MabRflOptions(),
    "reference": MabRflOptions(
        warmup_rounds=10,
        inclusion="cutoffs",
        empty_selection="all",
        c_max=0.3,
        c_min=0.1,
        alpha=0.0,
        graph_vectors="momentum",
        momentum_memory="unit",
        momentum_updated="selected",
        momentum_age="selected",
        edge_test="above",
        component_ties="lowest-id",
        cluster_means="unit",
        alpha_test="below",
        equal_clusters="first",
        small_cohort="count-crash",
        step_size="median",
    ),
}

THRESHOLDS: Mapping[str, Mapping[str, float]] = {
    "mnist": {},
    "fashion-mnist": {},
    "cifar10": {"c_max": 0.3, "c_min": 0.1, "alpha": 0.0},
    "digits": {"c_max": 0.9, "c_min": 0.6, "alpha": -0.1},
}
"""[7] Thresholds of the preset ``paper`` that differ from those for MNIST: the paper's own for CIFAR-10, and ours for
the digits, which the paper does not use (honest updates of so small a model are more similar)."""


def options(preset: str = DEFAULT_PRESET, dataset: str | None = None, **overrides: Any) -> Options:
    """Return a preset's options, with its thresholds for a data set (``paper``) and the caller's overrides.

    Examples
    --------
    >>> options("hardened", "cifar10") == options("hardened", "mnist")
    True
    >>> options("paper", "cifar10").c_max
    0.3
    >>> options("reference", history=0.5).history
    0.5
    """
    chosen = _preset(preset)
    known = {field.name for field in fields(chosen)}
    for name in overrides:
        if name not in known:
            elsewhere = [other for other, others in PRESETS.items() if hasattr(others, name)]
            hint = f"; the preset {elsewhere[0]} has it" if elsewhere else suggest(name, known)
            raise ConfigError(f"the preset {preset} of MAB-RFL has no option '{name}'{hint}")
    thresholds = THRESHOLDS.get(dataset or "", {}) if preset == "paper" else {}
    return replace(chosen, **{**thresholds, **overrides})


def memory_option(preset: str) -> str:
    """Return the option for the weight of past updates in a preset; with 0 none are stored.

    Examples
    --------
    >>> memory_option("hardened"), memory_option("paper")
    ('memory', 'history')
    """
    return "history" if isinstance(_preset(preset), MabRflOptions) else "memory"


def _preset(name: str) -> Options:
    if name not in PRESETS:
        raise ConfigError(f"unknown preset '{name}'{suggest(name, PRESETS)}")
    return PRESETS[name]
