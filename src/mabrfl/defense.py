"""A defense: selector + rule + beliefs. MAB-RFL is one (see mab/method.py); "ACS + Krum" is another.

The object holds what must survive from round to round; the mathematics is in the functions it calls.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from mabrfl import vectors
from mabrfl.defense_state import DefenseProgress, restore
from mabrfl.errors import ConfigError, StateError, suggest
from mabrfl.layout import Layout
from mabrfl.protocols import Rule, Selector, Stateful
from mabrfl.reputation import Beliefs
from mabrfl.rng import ClientId
from mabrfl.screening.intake import Intake, inspect
from mabrfl.selection import All
from mabrfl.updates import (
    REASONS,
    Candidates,
    Cohort,
    Decision,
    Floats,
    Outcome,
    Reason,
    Selection,
    Updates,
    Verdict,
    as_client_id,
    canonical,
)

STATE_FORMAT = 1
MOST_REJECTED = "most-rejected"
"""Event: more than half of the updates of a round were malformed or rejected."""
_OWN_REASON = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_MISPRINT = 0.8
"""A reason of a rule's own that is more similar than this to one of the package's is a misprint."""


@dataclass(frozen=True)
class Screening:
    """The result of stage 4, for stages 5 and 6."""

    verdicts: Mapping[ClientId, Verdict]
    round: int
    cohort: Cohort
    decision: Decision | None
    events: tuple[str, ...] = ()


class Defense:
    """Any selector with any rule, and beliefs about the clients.

    Parameters
    ----------
    rule
        Judges updates and decides on the model's step: ``Cohort -> Decision``.
    selector
        Chooses the clients of a round: ``Candidates -> ids``; everybody by default.
    seed
        Root of all random streams of the defense.
    name
        Its name in records, and for attackers with full knowledge.
    beliefs
        The counts B_k and M_k to start from; Beta(1, 1) for everybody by default.
    reset_beliefs
        Forget all judgements at the start of each round.
    dimension
        The length of the model's weight vector. Declare it if clients send their updates one by one; otherwise the
        first judged updates fix it, like their precision.
    blame_majority
        Whether malformed updates cost reputation in a round in which half of all updates, or more, are malformed.
        Then the cause is rather the server's (a bad setting, say) than the clients'.

    Examples
    --------
    >>> from mabrfl.aggregation import Krum
    >>> from mabrfl.selection import ACS
    >>> defense = Defense(Krum(num_malicious=1), selector=ACS(), name="krum")
    >>> chosen = defense.select(range(10), round=1)
    >>> matrix = np.random.default_rng(0).normal(size=(len(chosen), 4))
    >>> outcome = defense.aggregate(Updates(chosen, matrix), round=1)
    >>> outcome.step.shape
    (4,)
    """

    def __init__(
        self,
        rule: Rule,
        *,
        selector: Selector | None = None,
        seed: int = 0,
        name: str = "",
        beliefs: Beliefs | None = None,
        reset_beliefs: bool = False,
        dimension: int | None = None,
        blame_majority: bool = True,
    ) -> None:
        self.rule = rule
        self.selector: Selector = selector if selector is not None else All()
        self.seed = seed
        self.name = name or getattr(rule, "name", "") or getattr(rule, "__name__", type(rule).__name__)
        self._beliefs = beliefs if beliefs is not None else Beliefs()
        self._reset_beliefs = reset_beliefs
        self._blame_majority = blame_majority
        self._progress = DefenseProgress(dimension=dimension)
        self._layout: Layout | None = None  # not part of the state: no later round depends on it
        # Blocks whose Gram matrices the rule asked for, beside that of the whole: intake takes them with the norms.
        self._one_pass: Sequence[Sequence[slice]] | None = None

    @property
    def reputation(self) -> dict[ClientId, tuple[float, float]]:
        """``{id: (B, M)}`` of every client seen, in canonical order."""
        return self._beliefs.as_dict()

    def forget(self, client: ClientId) -> None:
        """Forget every judgement of a client: its reputation is that of one that joins now."""
        self._beliefs.forget(client)

    def rename(self, old: ClientId, new: ClientId) -> None:
        """Give a client's reputation to another id. What the rule remembers of its updates stays under the old one."""
        self._beliefs.rename(old, new)

    def select(
        self, client_ids: Sequence[ClientId], *, round: int, at_least: int = 0, always: Collection[ClientId] = ()
    ) -> list[ClientId]:
        """Choose the clients of a round.

        Until the round is judged, the same call gives the same answer. :meth:`screen` then ignores the updates of
        clients that were not chosen for that round.

        Parameters
        ----------
        client_ids
            All clients that could take part.
        round
            The round's number, from 1.
        at_least
            If the selector chooses fewer clients than this, those with the best reputation B / (B + M) are added; the
            order of ids decides between equals.
        always
            Clients that are chosen in any case, if they could take part.
        """
        ids = canonical(as_client_id(client) for client in client_ids)
        if len(set(ids)) != len(ids):
            raise ValueError("client ids must be distinct")
        _check_round(round)
        if self._reset_beliefs:
            self._beliefs.reset()
        self._beliefs.know(ids)
        counts = self._beliefs.of(ids)
        chosen = self.selector(Candidates(tuple(ids), counts[:, 0], counts[:, 1], round, self.seed))
        selection = chosen if isinstance(chosen, Selection) else Selection(chosen)
        strangers = set(selection.ids) - set(ids)
        if strangers:
            raise ConfigError(f"the selector chose ids that are not candidates: {sorted(map(str, strangers))[:5]}")
        chosen_ids = canonical({*selection.ids, *(client for client in ids if client in always)})
        if len(chosen_ids) < at_least:
            best = (ids[k] for k in np.argsort(-counts[:, 0] / counts.sum(axis=1), kind="stable"))
            others = [client for client in best if client not in chosen_ids]
            chosen_ids = canonical([*chosen_ids, *others[: at_least - len(chosen_ids)]])
        self._progress = replace(
            self._progress,
            population=len(ids),
            selected_round=int(round),
            selected=tuple(chosen_ids),
            candidates=tuple(ids),
            events=selection.events,
        )
        return chosen_ids

    def screen(self, updates: Updates, *, round: int) -> Screening:
        """Stage 4: check and judge the updates of the selected clients; beliefs do not change yet.

        Updates may come with a layout or without. A layout that differs from an earlier round's is an error.
        """
        _check_round(round)
        progress = self._progress
        if round <= progress.last_round:
            raise StateError(f"rounds must increase: round {round} after round {progress.last_round}")
        layout = _same_layout(self._layout, updates.layout)
        updates, events = self._only_selected(updates, round)
        intake = inspect(updates, progress.dimension, progress.dtype, multiply=self._one_pass)
        cohort = Cohort(
            ids=intake.ids,
            matrix=intake.matrix,
            norms=intake.norms,
            num_examples=intake.num_examples,
            round=int(round),
            population=max(progress.population, len(intake.ids)),
            seed=self.seed,
            reputation=self._reputation_of(intake.ids),
            layout=updates.layout,
            global_weights=updates.global_weights,
            root_update=updates.root_update,
        )
        with vectors.one_blas_thread():  # matrices of clients are small, and threads of BLAS wait for each other
            if intake.grams is not None:
                vars(cohort)["gram"], vars(cohort)["_shares"] = intake.grams[0], (self._one_pass, intake.grams[1])
            decision = _checked(self.rule(cohort), cohort) if len(cohort) else None
        useless = bool(intake.malformed) or (self._one_pass is not None and intake.grams is None)
        self._one_pass = None if useless else vars(cohort).get("_multiplied", self._one_pass)
        self._layout = layout
        self._progress = replace(progress, last_round=int(round))
        if len(cohort):
            width, precision = cohort.matrix.shape[1], cohort.matrix.dtype.name
            self._progress = replace(self._progress, dimension=width, precision=precision)
        elif progress.dimension is None and updates.dimension is not None:
            self._progress = replace(self._progress, dimension=updates.dimension)
        verdicts = _verdicts(cohort, decision, intake, blame_majority=self._blame_majority)
        rejected = sum(not verdict.accepted for verdict in verdicts.values())
        if 2 * rejected > len(verdicts):
            events = (*events, f"{MOST_REJECTED}: {rejected} of {len(verdicts)}")
        return Screening(verdicts, int(round), cohort, decision, events)

    def _reputation_of(self, senders: Sequence[ClientId]) -> dict[ClientId, tuple[float, float]]:
        """Return the beliefs about these clients and the last candidates; about everybody if there was no selection."""
        candidates = self._progress.candidates or tuple(self._beliefs.as_dict())
        ids = canonical({*candidates, *senders})
        return {
            client: (float(good), float(bad)) for client, (good, bad) in zip(ids, self._beliefs.of(ids), strict=True)
        }

    def _only_selected(self, updates: Updates, round_number: int) -> tuple[Updates, tuple[str, ...]]:
        """Leave out the updates of clients that were not selected for this round, if there was a selection."""
        progress = self._progress
        if progress.selected_round != round_number:
            return updates, ()
        invited = set(progress.selected)
        kept = [k for k, client in enumerate(updates.ids) if client in invited]
        ignored = len(updates.ids) - len(kept)
        if not ignored:
            return updates, progress.events
        rows, counts = updates.matrix, updates.num_examples
        taken = Updates(
            [updates.ids[k] for k in kept],
            rows[kept] if isinstance(rows, np.ndarray) else [rows[k] for k in kept],
            None if counts is None else [counts[k] for k in kept],
            updates.dimension,
            updates.layout,
            updates.global_weights,
            updates.root_update,
        )
        return taken, (*progress.events, f"not-selected-ignored: {ignored}")

    def reward(self, screening: Screening) -> None:
        """Stage 5: B + 1 for the accepted, M + 1 for the rejected."""
        self._beliefs.reward(screening.verdicts)

    def combine(self, screening: Screening) -> Outcome:
        """Stage 6: the step that the rule decided on."""
        if screening.round != self._progress.last_round:
            raise StateError(
                f"round {screening.round} was screened, but round {self._progress.last_round} came after it"
            )
        decision, cohort, events = screening.decision, screening.cohort, screening.events
        width = cohort.matrix.shape[1] if len(cohort) else self._progress.dimension or cohort.matrix.shape[1]
        step: Floats = np.zeros(width, dtype=cohort.matrix.dtype)
        if decision is None:
            events = (*events, "no-usable-updates")
        else:
            events = (*events, *decision.events)
            moved = _step(decision, cohort)
            if np.all(np.isfinite(moved)):
                step = moved
            else:
                events = (*events, "step-not-finite")
        return Outcome(step, screening.verdicts, screening.round, events, decision.facts if decision else {})

    def aggregate(self, updates: Updates, *, round: int) -> Outcome:
        """Stages 4 to 6: screen, reward, combine."""
        screening = self.screen(updates, round=round)
        self.reward(screening)
        return self.combine(screening)

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next round depends on, as plain arrays, numbers and strings."""
        return {
            "format": STATE_FORMAT,
            "name": self.name,
            "seed": self.seed,
            "progress": self._progress.as_dict(),
            "beliefs": self._beliefs.state_dict(),
            "rule": self.rule.state_dict() if isinstance(self.rule, Stateful) else {},
            "selector": self.selector.state_dict() if isinstance(self.selector, Stateful) else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises
        ------
        StateError
            If the state belongs to another defense, seed or options, or is malformed; nothing changes then.
        """
        if dict(state).get("format") != STATE_FORMAT:
            raise StateError(f"not a state of a defense in format {STATE_FORMAT}")
        for key in ("name", "seed"):
            if state.get(key) != getattr(self, key):
                raise StateError(f"the state's {key} is {state.get(key)!r}, this defense's is {getattr(self, key)!r}")
        try:
            progress = DefenseProgress.from_dict(state["progress"])
            restore([(self._beliefs, state["beliefs"]), (self.rule, state["rule"]), (self.selector, state["selector"])])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the state of defense '{self.name}' is malformed: {error}") from error
        self._progress, self._layout = progress, None


def _same_layout(before: Layout | None, now: Layout | None) -> Layout | None:
    """Return the known layout; refuse one that differs from an earlier round's."""
    if before is None or now is None:
        return before or now
    if before != now:
        pairs = zip_longest(before.shapes.items(), now.shapes.items())
        old, new = next((old, new) for old, new in pairs if old != new)
        raise StateError(f"the layout must be the same in all rounds; it had {old} where it now has {new}")
    return before


def _check_round(number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ValueError(f"round must be an integer from 1; got {number!r}")


def _checked(decision: Any, cohort: Cohort) -> Decision:
    """Refuse a malformed decision of a rule, before it has any effect."""
    if not isinstance(decision, Decision):
        raise ConfigError(f"a rule must return a Decision; got {type(decision).__name__} (a forgotten return?)")
    for name, given in (("reasons", decision.reasons), ("evidence", decision.evidence)):
        if given is not None and len(given) != len(cohort):
            raise ConfigError(f"a rule must give one of {name} per client; got {len(given)} for {len(cohort)}")
    if decision.credit is not None:
        credit = np.asarray(decision.credit, dtype=np.float64)
        if credit.shape != (len(cohort),) or not np.all(np.abs(credit) <= 1):
            raise ConfigError("a rule must give one credit from -1 to 1 per client")
    for reason in decision.reasons or ():
        if reason not in REASONS:
            _check_own_reason(reason)
    return decision


def _check_own_reason(reason: Any) -> None:
    """Refuse a rule's own reason that is no word, or that looks like a misprint of one of the package's."""
    if not isinstance(reason, str) or not _OWN_REASON.fullmatch(reason):
        raise ConfigError(
            f"a rule gave the reason {reason!r:.80}; a reason is 'accepted', 'outlier', 'sybil', or a word of at most "
            "40 lower-case letters, digits and hyphens"
        )
    if difflib.get_close_matches(reason, REASONS, n=1, cutoff=_MISPRINT):
        raise ConfigError(f"a rule gave the reason {reason!r}{suggest(reason, REASONS)}")


def _step(decision: Decision, cohort: Cohort) -> Floats:
    if decision.step is not None:
        step = np.asarray(decision.step)
    elif decision.weights is not None:
        rows = cohort.matrix if decision.rows is None else decision.rows
        if len(decision.weights) != len(rows):
            raise ConfigError(f"a rule must give one weight per row; got {len(decision.weights)} for {len(rows)} rows")
        step = vectors.combine(decision.weights, rows)
    else:
        raise ConfigError("a rule must decide on weights or on a step; got neither")
    if step.shape != cohort.matrix.shape[1:]:
        raise ConfigError(f"a rule's step must have shape {cohort.matrix.shape[1:]}; got {step.shape}")
    return step


def _verdicts(
    cohort: Cohort, decision: Decision | None, intake: Intake, *, blame_majority: bool
) -> dict[ClientId, Verdict]:
    spared = not blame_majority and len(intake.malformed) >= len(cohort)
    verdicts = {
        client: Verdict(False, "malformed", {"cause": cause}, credit=0.0 if spared or client in intake.silent else 1.0)
        for client, cause in intake.malformed.items()
    }
    if decision is not None:
        reasons: Sequence[Reason] = decision.reasons if decision.reasons is not None else ["accepted"] * len(cohort)
        evidence = decision.evidence if decision.evidence is not None else [{}] * len(cohort)
        credit = decision.credit if decision.credit is not None else [1.0] * len(cohort)
        for client, reason, facts, counts in zip(cohort.ids, reasons, evidence, credit, strict=True):
            verdicts[client] = Verdict(reason == "accepted", reason, facts, float(counts))
    return {client: verdicts[client] for client in canonical(verdicts)}
