"""The rule of MAB-RFL: ISA, then INSA, then the mean of unit momenta (paper, Alg. 2 lines 5-18)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.errors import StateError
from mabrfl.mab.presets import MabRflOptions
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.screening.non_sybil import Split, cluster_cosine, two_clusters
from mabrfl.screening.sybil import components, largest_components, similarity_threshold
from mabrfl.updates import Cohort, Decision, Evidence, Reason
from mabrfl.vectors.pairs import largest_beside

_FEWEST_TO_CLUSTER = 2


@dataclass(frozen=True)
class _SybilTest:
    flagged: NDArray[np.bool_]
    labels: NDArray[np.intp]
    nearest: NDArray[np.float64]
    threshold: float


@dataclass(frozen=True)
class _OutlierTest:
    flagged: NDArray[np.bool_]
    events: tuple[str, ...] = ()
    split: Split | None = None
    cosine: float | None = None


class MabRflRule:
    """Reject sybils and other outliers, then step along the mean of the others' unit momenta.

    Use :class:`mabrfl.MabRfl` for the whole method; this is its rule alone, for other selectors.

    Parameters
    ----------
    options
        All choices that the method leaves open; see :mod:`mabrfl.mab.presets`.
    momenta
        Where momenta are kept; in memory if left out.
    """

    name = "mab-rfl"

    def __init__(self, options: MabRflOptions | None = None, momenta: MomentumMemory | None = None) -> None:
        self.options = options or MabRflOptions()
        self._memory = MomentumMemory() if momenta is None else momenta

    @property
    def momenta(self) -> MomentumMemory:
        """Where momenta are kept."""
        return self._memory

    def __call__(self, cohort: Cohort) -> Decision:
        """Judge one round."""
        rows = self._memory.rows(cohort.ids, cohort.matrix)
        sybils, survivors, momenta_gram = self._screen_sybils(cohort, rows)
        self._memory.mark_selected(rows, cohort.round)
        outliers = self._screen_outliers(momenta_gram)
        accepted = survivors[~outliers.flagged]
        step_size = self._step_size(cohort.norms[accepted])
        weights = self._memory.unit_weights(rows[accepted], step_size * self._shares(cohort, accepted))
        reasons: list[Reason] = ["accepted"] * len(cohort)
        for k in np.flatnonzero(sybils.flagged):
            reasons[k] = "sybil"
        for k in survivors[outliers.flagged]:
            reasons[k] = "outlier"
        momenta = self._memory.matrix
        if not self.options.history:
            self._memory.clear()  # the past has no weight: keep no momenta
        return Decision(
            weights=weights,
            rows=momenta,
            reasons=reasons,
            evidence=_evidence(cohort, sybils, survivors, outliers),
            events=outliers.events + (() if len(accepted) else ("no-survivors",)),
            facts=_facts(sybils, outliers, step_size),
        )

    def _screen_sybils(
        self, cohort: Cohort, rows: NDArray[np.intp]
    ) -> tuple[_SybilTest, NDArray[np.intp], NDArray[np.float64]]:
        """Run ISA; return its result, the survivors, and the Gram matrix of their momenta.

        The paper compares raw updates and then folds the momenta of the survivors; the released code
        folds the momenta of all clients first and compares these.
        """
        chosen = self.options
        if chosen.graph_vectors == "update" and chosen.momentum_updated == "judged":
            sybils = self._sybil_test(cohort, cohort.cosines)
            survivors = np.flatnonzero(~sybils.flagged)
            return sybils, survivors, self._fold(cohort, rows, survivors)
        saved = self._memory.snapshot(rows) if chosen.momentum_updated == "judged" else None
        gram = self._fold(cohort, rows, np.arange(len(cohort)))
        cosines = cohort.cosines if chosen.graph_vectors == "update" else vectors.cosines(gram)
        sybils = self._sybil_test(cohort, cosines)
        if saved is not None:
            self._memory.restore(rows, saved, sybils.flagged)
        survivors = np.flatnonzero(~sybils.flagged)
        return sybils, survivors, gram[np.ix_(survivors, survivors)]

    def _fold(self, cohort: Cohort, rows: NDArray[np.intp], take: NDArray[np.intp]) -> NDArray[np.float64]:
        gram = self._memory.fold(
            rows[take],
            cohort.matrix,
            take,
            cohort.norms,
            round_number=cohort.round,
            history=self.options.history,
            age=self.options.momentum_age,
        )
        if self.options.momentum_memory == "unit":
            self._memory.normalise(rows[take])
        return gram

    def _sybil_test(self, cohort: Cohort, cosines: NDArray[np.float64]) -> _SybilTest:
        chosen = self.options
        threshold = similarity_threshold(
            cohort.round,
            c_max=chosen.c_max,
            c_min=chosen.c_min,
            schedule_decay=chosen.schedule_decay,
            first_round=chosen.first_round,
        )
        labels = components(cosines, threshold, chosen.edge_test)
        flagged = largest_components(
            labels,
            count=chosen.components_removed,
            min_size=chosen.min_component,
            rng=cohort.rng("component-ties") if chosen.component_ties == "random" else None,
        )
        nearest = largest_beside(cosines) if len(cohort) > 1 else np.full(1, np.nan)
        return _SybilTest(flagged, labels, nearest, threshold)

    def _screen_outliers(self, gram: NDArray[np.float64]) -> _OutlierTest:
        """Run INSA on the Gram matrix of the survivors' momenta."""
        chosen, n = self.options, len(gram)
        nobody = np.zeros(n, dtype=bool)
        if n < _FEWEST_TO_CLUSTER:
            crash = ("would-have-crashed",) if chosen.small_cohort == "count-crash" else ()
            return _OutlierTest(nobody, ("outlier-test-skipped", *crash))
        unit_gram = vectors.cosines(gram)
        split = two_clusters(unit_gram, variance=chosen.pca_variance, linkage=chosen.linkage)
        cosine = cluster_cosine(gram if chosen.cluster_means == "raw" else unit_gram, split.first)
        opposed = cosine <= chosen.alpha if chosen.alpha_test == "at-most" else cosine < chosen.alpha
        if not opposed:
            return _OutlierTest(nobody, (), split, cosine)
        if split.equal:
            flagged = split.first if chosen.equal_clusters == "first" else nobody
            return _OutlierTest(flagged, ("equal-clusters",), split, cosine)
        return _OutlierTest(split.smaller, (), split, cosine)

    def _step_size(self, norms: NDArray[np.float64]) -> float:
        if len(norms) == 0:
            return 0.0
        return float(np.mean(norms) if self.options.step_size == "mean" else np.median(norms))

    def _shares(self, cohort: Cohort, accepted: NDArray[np.intp]) -> NDArray[np.float64]:
        examples = cohort.num_examples[accepted]
        counts = examples if self.options.weighting == "examples" else np.ones(len(accepted))
        return np.asarray(counts / max(counts.sum(), 1e-300))

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the momenta as plain values, lists and arrays."""
        return {"options": asdict(self.options), **self._memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the momenta; those of another set of options are refused."""
        for name, value in asdict(self.options).items():
            if state["options"].get(name) != value:
                raise StateError(f"the state's {name} is {state['options'].get(name)!r}, this rule's is {value!r}")
        self._memory.load_state_dict(state)


def _evidence(
    cohort: Cohort, sybils: _SybilTest, survivors: NDArray[np.intp], outliers: _OutlierTest
) -> list[Evidence]:
    """Return the measurements of the tests, for each client."""
    sizes = np.bincount(sybils.labels)
    rows: list[dict[str, Any]] = [
        {
            "norm": float(cohort.norms[k]),
            "max_cosine": None if np.isnan(sybils.nearest[k]) else float(sybils.nearest[k]),
            "component_size": int(sizes[sybils.labels[k]]),
        }
        for k in range(len(cohort))
    ]
    if outliers.split is not None:
        for k, smaller in zip(survivors, outliers.split.smaller, strict=True):
            rows[k]["cluster"] = "equal" if outliers.split.equal else "smaller" if smaller else "larger"
    return list(rows)


def _facts(sybils: _SybilTest, outliers: _OutlierTest, step_size: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "similarity_threshold": sybils.threshold,
        "largest_cosine": None if np.isnan(sybils.nearest).all() else float(np.nanmax(sybils.nearest)),
        "largest_component": int(np.bincount(sybils.labels).max()),
        "step_size": step_size,
    }
    if outliers.split is not None:
        smaller = int(outliers.split.smaller.sum())
        facts["cluster_cosine"] = outliers.cosine
        facts["cluster_sizes"] = [len(outliers.split.first) - smaller, smaller]
        facts["principal_components"] = outliers.split.num_components
    return facts
