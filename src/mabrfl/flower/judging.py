"""Stages 4 to 6 on replies: check each alone, then ask the defense as the simulator does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import RecordDict

from mabrfl.defense import Defense
from mabrfl.errors import QuorumError
from mabrfl.flower.contract import Contract, Finding
from mabrfl.flower.dispatch import Arrival
from mabrfl.flower.problems import Problem
from mabrfl.global_model import GlobalModel
from mabrfl.layout import Layout
from mabrfl.rng import ClientId
from mabrfl.updates import Floats, Outcome, Updates, canonical


@dataclass
class Desk:
    """The replies of one round, unpacked.

    Attributes
    ----------
    arrivals
        As they came; those found to be bad here have a problem now.
    clients
        Whose rows there are, in canonical order: the good ones, and those blamed.
    matrix
        Their updates; NaN for those blamed, which intake quarantines like any other malformed row.
    good
        Which rows are good.
    """

    arrivals: list[Arrival]
    clients: list[ClientId] = field(default_factory=list)
    matrix: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    good: list[bool] = field(default_factory=list)
    buffers: dict[ClientId, Floats] = field(default_factory=dict)
    examples: dict[ClientId, float] = field(default_factory=dict)
    contents: dict[ClientId, RecordDict] = field(default_factory=dict)
    layout: Layout | None = None


def unpack(arrivals: list[Arrival], model: GlobalModel, contract: Contract) -> Desk:
    """Turn every reply into an update: its weights minus ours. Those not checked yet are checked here.

    The list is the desk's from now on, and is emptied of what is not needed any more as the matrix is filled.
    """
    desk = Desk(arrivals, layout=contract.schema.layout)
    position = {arrival.client: k for k, arrival in enumerate(arrivals) if _concerns(arrival)}
    desk.clients = canonical(client for client in position if client is not None)
    desk.matrix = np.empty((len(desk.clients), contract.schema.dimension), contract.schema.dtype)
    for row, client in zip(desk.matrix, desk.clients, strict=True):
        place = position[client]
        found = _found(arrivals[place], contract)
        problem = found if isinstance(found, Problem) else None
        arrivals[place] = replace(arrivals[place], content=None, checked=None, problem=problem)
        desk.good.append(problem is None)
        if isinstance(found, Problem):
            row.fill(np.nan)
            continue
        with np.errstate(over="ignore"):
            np.subtract(found.weights, model.weights, out=row)
        desk.buffers[client], desk.examples[client] = found.buffers, found.examples
        desk.contents[client] = found.content
    return desk


def _concerns(arrival: Arrival) -> bool:
    """Whether there is something to judge, or somebody to blame."""
    return arrival.client is not None and (arrival.problem is None or arrival.problem.blamed)


def _found(arrival: Arrival, contract: Contract) -> Finding:
    if arrival.problem is not None:
        return arrival.problem
    if arrival.checked is not None:
        return arrival.checked
    if arrival.content is None:
        return Problem("records", "the reply is empty", blamed=True)
    return contract.check(arrival.content)


@dataclass(frozen=True)
class Judgement:
    """What came of a round; ``outcome`` is None if there was nobody to judge.

    ``unjudged`` says why good replies have no verdict, and ``norms`` are the lengths of those that have one.
    """

    outcome: Outcome | None
    events: tuple[str, ...] = ()
    unjudged: str = ""
    norms: Mapping[ClientId, float] = field(default_factory=dict)


def judge(defense: Defense, desk: Desk, round_number: int, *, at_least: int, by_examples: bool) -> Judgement:
    """Screen, reward and combine. With too few good replies nobody but the blamed is judged, and nothing moves."""
    rows = list(range(len(desk.clients)))
    if not isinstance(defense, Defense):
        rows = [k for k in rows if desk.good[k]]  # a defense of the user's own need not know what NaN rows are
    if (usable := sum(desk.good)) < at_least:
        reason, why = "too-few-replies", f"{usable} of {at_least}"
    else:
        try:
            return _ask(defense, desk, rows, round_number, by_examples=by_examples)
        except QuorumError as error:
            reason, why = "quorum", str(error)
    # Only the bad ones are judged: that the others cannot be does not excuse them.
    bad = [k for k in rows if not desk.good[k]]
    return replace(_ask(defense, desk, bad, round_number), events=(f"{reason}: {why}",), unjudged=reason)


def _ask(defense: Defense, desk: Desk, rows: list[int], round_number: int, *, by_examples: bool = False) -> Judgement:
    """Screen, reward and combine these rows."""
    if not rows:
        return Judgement(None)
    clients = [desk.clients[k] for k in rows]
    matrix = desk.matrix if len(rows) == len(desk.clients) else desk.matrix[rows]
    counts = [desk.examples.get(client, 1.0) for client in clients] if by_examples else None
    updates = Updates(clients, matrix, counts, desk.matrix.shape[1], desk.layout)
    screening = defense.screen(updates, round=round_number)
    defense.reward(screening)
    cohort = getattr(screening, "cohort", None)  # a defense of the user's own may have none
    norms = {} if cohort is None else dict(zip(cohort.ids, cohort.norms.tolist(), strict=True))
    return Judgement(defense.combine(screening), norms=norms)
