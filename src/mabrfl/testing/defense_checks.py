"""The contract of aggregation rules and of selectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mabrfl import vectors
from mabrfl.defense import Defense, Screening
from mabrfl.errors import QuorumError
from mabrfl.layout import Layout
from mabrfl.protocols import Rule, Selector
from mabrfl.rng import ClientId
from mabrfl.testing.properties import both_or_neither, expect, fresh, holds, random_rows, saved, takes
from mabrfl.updates import Candidates, Decision, Floats, Outcome, Selection, Updates

_MANY = 12
_SERVER: dict[str, Any] = {
    "global_weights": random_rows(1, seed=99, dtype=np.float32)[0],
    "root_update": random_rows(1, seed=98, dtype=np.float32)[0],
}
_LAYOUT = Layout({"first.weight": (5, 6), "first.bias": (5,), "last.weight": (1, 5)})


def check_rule(rule: Any, *, names_matter: bool = False) -> None:
    """Check that an aggregation rule keeps the contract of :class:`~mabrfl.protocols.Rule`.

    Parameters
    ----------
    rule
        A rule, which is copied; or a class, or a ``functools.partial`` of one, that makes rules. If that takes
        ``num_malicious``, the numbers from 0 to all clients are tried.
    names_matter
        Whether the step may depend on which client has which id, as where a rule draws lots per client.

    Raises
    ------
    AssertionError
        Naming the property that does not hold.

    Examples
    --------
    >>> def first(cohort):
    ...     return Decision(weights=np.eye(len(cohort))[0])
    >>> from mabrfl import Decision
    >>> check_rule(first)
    Traceback (most recent call last):
    ...
    AssertionError: first: neither order nor names of the clients matter - ...
    """

    def make(f: int = 2) -> Any:
        return fresh(rule, num_malicious=f)

    with holds(rule, "its input stays as it was"):
        _check_input(make())
    with holds(rule, "every number of clients and of attackers gives a valid decision"):
        for n, dtype in ((1, np.float32), (2, np.float64), (3, np.float32), (_MANY, np.float64), (20, np.float32)):
            for f in sorted({0, 1, n // 4, (n - 1) // 2, n // 2, n}) if takes(rule, "num_malicious") else (0,):
                _judge(make(f), [random_rows(n, dtype=dtype)] * 2)
    with holds(rule, "the same seed gives the same bytes"):
        rounds = [random_rows(_MANY, seed=number) for number in range(3)]
        one, two = (_judge(make(), rounds) for _ in range(2))
        expect(_described(one) == _described(two), "two equal rules decided differently about the same updates")
    if not names_matter:
        with holds(rule, "neither order nor names of the clients matter"):
            _check_names(make)
    with holds(rule, "updates of any size give a finite step"):
        for scale in (1e-30, 1e-3, 1e18, 1e30):
            _judge(make(), [(random_rows(_MANY) * scale).astype(np.float32)] * 2)
        giant = random_rows(_MANY, dtype=np.float32)
        giant[5] = 3e38
        _judge(make(), [giant] * 2)
    with holds(rule, "ids are any numbers and strings, and a client that sends NaN changes nothing for the others"):
        _check_nan_row(make)
    with holds(rule, "what it remembers can be saved and restored"):
        _check_memory(make)


def _judge(
    rule: Rule, rounds: Sequence[Floats], *, first_round: int = 1, num_examples: Any = None
) -> list[tuple[Screening, Outcome]]:
    """Let a rule judge these matrices, one a round, within a defense; check each decision."""
    defense, results = Defense(rule, seed=5), []
    for number, matrix in enumerate(rounds, start=first_round):
        try:
            screening = defense.screen(
                Updates(range(len(matrix)), matrix, num_examples, layout=_LAYOUT, **_SERVER), round=number
            )
        except QuorumError:  # allowed: a strict rule refuses fewer clients than its theorem asks for
            continue
        results.append((screening, defense.combine(screening)))
        _check_decision(*results[-1])
    return results


def _check_decision(screening: Screening, outcome: Outcome) -> None:
    matrix, decision = screening.cohort.matrix, screening.decision or Decision()
    expect("step-not-finite" not in outcome.events, f"the step is not finite with {len(matrix)} clients")
    kinds = f"the step must be {matrix.dtype}, as the updates are; got {outcome.step.dtype}"
    expect(outcome.step.dtype == matrix.dtype, kinds)
    expect(not np.shares_memory(outcome.step, matrix), "the step is a view of the updates; return a copy")
    try:
        json.dumps([decision.evidence, decision.facts, decision.events], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"evidence, facts and events must be plain finite numbers and strings: {error}") from error


def _described(results: list[tuple[Screening, Outcome]]) -> list[Any]:
    return [(outcome.step.tobytes(), dict(outcome.verdicts), outcome.facts) for _, outcome in results]


def _check_input(rule: Rule) -> None:
    counts = np.arange(1.0, 10.0)
    matrix = random_rows(9, dtype=np.float32)
    for screening, _ in _judge(rule, [matrix.copy()] * 2, num_examples=counts):
        cohort = screening.cohort
        expect(cohort.matrix.tobytes() == matrix.tobytes(), "it changed cohort.matrix")
        norms = vectors.row_norms(matrix)
        gram = vectors.gram(matrix, norms)
        for name, value in (
            ("norms", norms),
            ("num_examples", counts),
            ("gram", gram),
            ("cosines", vectors.cosines(gram)),
            ("squared_distances", vectors.squared_distances(gram)),
        ):
            expect(np.array_equal(getattr(cohort, name), value), f"it changed cohort.{name} in place; copy it first")


def _check_names(make: Callable[[], Rule]) -> None:
    """Three rounds, three clients absent from the second: under other names, in another order, nothing else changes."""
    present = [list(range(_MANY)), [0, 1, 2, 4, 5, 7, 8, 9, 11], list(range(_MANY))]
    results = []
    for names in (list(range(_MANY)), [5, 2, 11, 7, 0, 3, 10, 6, 1, 9, 4, 8]):
        defense, seen = Defense(make(), seed=5), []
        for number, clients in enumerate(present, start=1):
            rows = random_rows(_MANY, seed=number)
            counts = [1.0 + client for client in clients]
            updates = Updates([names[client] for client in clients], rows[clients], counts, layout=_LAYOUT, **_SERVER)
            outcome = defense.aggregate(updates, round=number)
            seen.append((outcome.step, [outcome.verdicts[names[client]].reason for client in clients]))
        results.append(seen)
    for (step, reasons), (other_step, other_reasons) in zip(*results, strict=True):
        close = np.allclose(step, other_step, rtol=1e-6, atol=1e-9)
        expect(close, "the same updates under other ids gave another step; pass names_matter=True if it is meant")
        expect(reasons == other_reasons, "the same updates under other ids were judged differently")


def _check_nan_row(make: Callable[[], Rule]) -> None:
    ids: list[ClientId] = [3, 40, 41, 7_000_000, "ada", "bob", "eve"]
    matrix = random_rows(7)
    broken = np.concatenate([matrix, np.full((1, 40), np.nan)])
    alone = Defense(make(), seed=5).aggregate(Updates(ids, matrix, layout=_LAYOUT, **_SERVER), round=1)
    beside = Defense(make(), seed=5).aggregate(Updates([*ids, "cal"], broken, layout=_LAYOUT, **_SERVER), round=1)
    expect(beside.rejected("malformed") == ["cal"], f"cal sent NaN; malformed are {beside.rejected('malformed')}")
    expect(beside.step.tobytes() == alone.step.tobytes(), "the step is another one")


def _check_memory(make: Callable[[], Rule]) -> None:
    small, large, larger = (scale * random_rows(6, seed=scale) for scale in (1, 5, 9))
    one: Any = make()
    if not both_or_neither(one):
        before, _, after = (_described(_judge(one, [matrix])) for matrix in (small, large, small))
        expect(before == after, "it remembers earlier rounds, but has no state_dict and load_state_dict")
        return
    _judge(one, [large])
    state, returned = saved(one), one.state_dict()
    uninterrupted = _described(_judge(one, [small, larger], first_round=2))
    for kept, message in (
        (state, "after a restart it goes on differently"),
        (returned, "state_dict must return a copy; later rounds changed what it had returned"),
    ):
        restored: Any = make()
        restored.load_state_dict(kept)
        expect(_described(_judge(restored, [small, larger], first_round=2)) == uninterrupted, message)


def check_selector(selector: Any) -> None:
    """Check that a selector keeps the contract of :class:`~mabrfl.protocols.Selector`.

    Parameters
    ----------
    selector
        A selector, which is copied; or a class, or a ``functools.partial`` of one, that makes selectors.

    Raises
    ------
    AssertionError
        Naming the property that does not hold.
    """
    with holds(selector, "it selects candidates, each at most once"):
        for candidates in _candidates():
            _select(fresh(selector), candidates)
    with holds(selector, "without candidates it selects nobody"):
        expect(not _select(fresh(selector), Candidates((), np.zeros(0), np.zeros(0), 1)), "it selected somebody")
    with holds(selector, "its input stays as it was"):
        for candidates in _candidates():
            before = candidates.benign.copy(), candidates.malicious.copy()
            _select(fresh(selector), candidates)
            expect(np.array_equal(before, (candidates.benign, candidates.malicious)), "it changed the beliefs")
    with holds(selector, "the same seed gives the same selection"):
        one, two = ([_select(made, each) for each in _candidates()] for made in (fresh(selector), fresh(selector)))
        expect(one == two, "two equal selectors selected differently")
    with holds(selector, "what it remembers can be saved and restored"):
        _check_selectors_memory(lambda: fresh(selector))


def _candidates() -> Iterator[Candidates]:
    """Yield candidates of several rounds: one and many, unknown, trusted and distrusted."""
    for number, n in enumerate((1, 2, 10, 10, 60), start=1):
        ids: tuple[ClientId, ...] = (*range(n - n // 2), *(f"client-{k}" for k in range(n // 2)))
        beliefs = 1.0 + np.abs(random_rows(2, n, seed=number)) * 10
        yield Candidates(ids, beliefs[0], beliefs[1], number, seed=3)
        yield Candidates(ids, np.full(n, 1e-3), np.full(n, 1e6), number + 10, seed=3)


def _select(selector: Selector, candidates: Candidates) -> list[ClientId]:
    result = selector(candidates)
    ids = list(result.ids if isinstance(result, Selection) else result)
    strangers = [client for client in ids if client not in candidates.ids]
    expect(not strangers, f"it selected {strangers[:3]}, which are no candidates")
    expect(len(set(ids)) == len(ids), "it selected a client twice")
    return ids


def _check_selectors_memory(make: Callable[[], Any]) -> None:
    one, rounds = make(), list(_candidates())
    if not both_or_neither(one):
        before, _, after = (_select(one, rounds[k]) for k in (4, 6, 4))
        expect(before == after, "it remembers earlier rounds, but has no state_dict and load_state_dict")
        return
    for candidates in rounds[:6]:
        _select(one, candidates)
    two = make()
    two.load_state_dict(saved(one))
    later = [[_select(made, each) for each in rounds[6:]] for made in (one, two)]
    expect(later[0] == later[1], "after a restart it goes on differently")
