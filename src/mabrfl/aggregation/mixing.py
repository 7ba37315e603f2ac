"""Pre-aggregation: the rows of a cohort are mixed linearly, and a rule judges the result.

A pre-aggregator decides on a matrix W, ``(m, n)``, and the rule sees the m rows ``W @ X``. Their Gram matrix is
``W @ G @ W.T``, so that a rule of the Gram kind never needs the mixed rows themselves: with its weights w, the step is
``(w @ W) @ X``, one weighted sum over the clients. The mixed rows are formed only for a rule that asks for them, as the
coordinate-wise ones do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mabrfl import vectors
from mabrfl.errors import ConfigError, StateError
from mabrfl.layout import Block
from mabrfl.protocols import Rule, Stateful
from mabrfl.updates import Cohort, Decision, Evidence, Floats


@dataclass(frozen=True)
class Mixing:
    """The output of a pre-aggregator.

    Attributes
    ----------
    weights
        W, ``(m, n)``: row i of the result is ``W[i] @ X``.
    events, facts
        As in a :class:`~mabrfl.updates.Decision`.
    """

    weights: NDArray[np.float64]
    events: tuple[str, ...] = ()
    facts: Evidence = field(default_factory=dict)


class PreAggregator(Protocol):
    """A step before the rule: a map from a cohort to a :class:`Mixing`. A plain function works, too."""

    def __call__(self, cohort: Cohort, /) -> Mixing:
        """Decide how to mix the rows of a cohort of at least one update."""


class MixedCohort(Cohort):
    """The rows ``W @ X`` of a cohort X as a cohort of their own; its matrix is formed when it is first asked for.

    As many rows are expected to be malicious as in the original cohort, even if there are fewer rows now: each
    malicious client is in one bucket. If every row is still the row of one client, scaled, the clients' ids and
    reputations stay; otherwise the rows are numbered.
    """

    def __init__(self, cohort: Cohort, weights: NDArray[np.float64]) -> None:
        before = cohort if isinstance(cohort, MixedCohort) else None
        source = before.source if before else cohort
        total = weights @ before.mixing if before else weights
        own_rows = _is_diagonal(total)
        shares = np.abs(total)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        inner = weights @ cohort.gram @ weights.T
        inner = (inner + inner.T) / 2
        vars(self).update(
            source=source,
            mixing=total,
            own_rows=own_rows,
            ids=source.ids if own_rows else tuple(range(len(total))),
            norms=np.sqrt(np.clip(np.diag(inner), 0, None)),
            num_examples=shares @ source.num_examples,
            round=source.round,
            population=source.population,
            seed=source.seed,
            reputation=source.reputation if own_rows else {},
            layout=source.layout,
            global_weights=source.global_weights,
            root_update=source.root_update,
            gram=inner,
        )

    source: Cohort
    mixing: NDArray[np.float64]
    own_rows: bool

    @cached_property
    def matrix(self) -> Floats:
        """The mixed rows."""
        return vectors.mix(self.mixing, self.source.matrix)

    @cached_property
    def distance_gram(self) -> NDArray[np.float64]:
        """Inner products to take distances from: see :class:`~mabrfl.updates.Cohort`."""
        source, mixing = self.source, self.mixing
        means = np.allclose(mixing.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        if not means or source.distance_gram is source.gram:
            return self.gram
        inner = mixing @ source.distance_gram @ mixing.T
        return np.asarray((inner + inner.T) / 2)

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """The Gram matrix of each layer, of the mixed rows."""
        mixing = self.mixing
        return {name: replace(block, gram=mixing @ block.gram @ mixing.T) for name, block in self.source.blocks.items()}

    def proportional(self, num_malicious: int) -> int:
        """Return how many rows are malicious if the population's share holds: as many as clients are."""
        return self.source.proportional(num_malicious)


def _is_diagonal(weights: NDArray[np.float64]) -> bool:
    return weights.shape[0] == weights.shape[1] and not np.any(weights[~np.eye(len(weights), dtype=bool)])


class PreAggregated:
    """A rule after one or more pre-aggregators: a rule again.

    If rows of several clients are mixed, nobody is judged: all clients are accepted, with their weights in the step as
    evidence. If each row is still one client's own, scaled, the rule's verdicts stand.

    Parameters
    ----------
    rule
        The rule that judges the mixed rows.
    before
        The pre-aggregators, in the order in which they are applied.

    Examples
    --------
    >>> from mabrfl.aggregation import NNM, Krum
    >>> from mabrfl import Defense, Updates
    >>> defense = Defense(PreAggregated(Krum(num_malicious=1), [NNM(num_malicious=1)]))
    >>> rows = np.array([[1.0], [2.0], [3.0], [4.0], [99.0]])
    >>> defense.aggregate(Updates(range(5), rows), round=1).step
    array([2.5])
    """

    def __init__(self, rule: Rule, before: Sequence[PreAggregator]) -> None:
        if not before or not all(map(callable, before)):
            raise ConfigError(f"PreAggregated needs a list of pre-aggregators; got {before!r:.80}")
        if getattr(rule, "judges_clients_over_rounds", False):
            name = type(rule).__name__
            raise ConfigError(f"{name} judges each client by its own updates over the rounds: no pre-aggregator fits")
        self.rule = rule
        self.before = tuple(before)

    def __call__(self, cohort: Cohort, /) -> Decision:
        """Mix, let the rule decide, and express its weights as weights of the clients."""
        mixed, events, facts = mix_cohort(cohort, self.before)
        decision = self.rule(mixed)
        events, facts = (*events, *decision.events), {**facts, **decision.facts}
        decision = replace(decision, events=events, facts=facts)
        evidence = None
        if decision.weights is not None and decision.rows is None:
            weights = np.asarray(decision.weights, dtype=np.float64)
            if weights.shape != (len(mixed),):
                raise ConfigError(f"a rule must give one weight per row; got {len(weights)} for {len(mixed)} rows")
            decision = replace(decision, weights=weights @ mixed.mixing)
            evidence = [{"weight": float(weight)} for weight in weights @ mixed.mixing]
        if not mixed.own_rows:
            return replace(decision, reasons=None, credit=None, evidence=evidence)
        given = decision.evidence or [{}] * len(cohort)
        scaled = [{**own, "scale": float(w)} for own, w in zip(given, np.diag(mixed.mixing), strict=True)]
        return replace(decision, evidence=scaled)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule, and of each pre-aggregator that has one."""
        return {
            "rule": self.rule.state_dict() if isinstance(self.rule, Stateful) else {},
            "before": [step.state_dict() if isinstance(step, Stateful) else {} for step in self.before],
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore what :meth:`state_dict` returned."""
        if set(state) != {"rule", "before"} or len(state["before"]) != len(self.before):
            raise StateError(f"the state must have a rule and {len(self.before)} pre-aggregators; got {sorted(state)}")
        for part, own in ((self.rule, state["rule"]), *zip(self.before, state["before"], strict=True)):
            if isinstance(part, Stateful):
                part.load_state_dict(own)
            elif own:
                raise StateError(f"{type(part).__name__} keeps no state, but the state has one")


def mix_cohort(
    cohort: Cohort, before: Sequence[PreAggregator]
) -> tuple[MixedCohort, tuple[str, ...], Mapping[str, Any]]:
    """Apply pre-aggregators one after another; return the mixed cohort, the events and the facts."""
    current: Cohort = cohort
    events: tuple[str, ...] = ()
    facts: dict[str, Any] = {}
    for step in before:
        mixing = step(current)
        if not isinstance(mixing, Mixing) or mixing.weights.ndim != 2 or mixing.weights.shape[1] != len(current):
            raise ConfigError(f"a pre-aggregator must return a Mixing with {len(current)} columns; got {mixing!r:.80}")
        current = MixedCohort(current, mixing.weights)
        events, facts = (*events, *mixing.events), {**facts, **mixing.facts}
    assert isinstance(current, MixedCohort)
    return current, events, facts
