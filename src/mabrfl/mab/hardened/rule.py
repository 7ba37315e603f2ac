"""The hardened rule: it rejects copies and foreign groups, then takes a step in which influence is bounded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import StateError
from mabrfl.mab.hardened import influence
from mabrfl.mab.hardened.copies import (
    copy_blame,
    disjoint,
    majority_is_coherent,
    minority,
    representative,
    residual_cosines,
    similar_groups,
)
from mabrfl.mab.hardened.foreign import Suspicion, foreign_clients
from mabrfl.mab.hardened.hardened_options import HardenedOptions
from mabrfl.mab.hardened.panel import Panel, convene
from mabrfl.rng import ClientId
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Cohort, Decision, Evidence, Reason, as_client_id

_ALONE = 1
_SAME = 0.9999
"""Residual cosine of updates that are the same but for rounding."""
_MARGIN = 0.2
"""The guard looks for groups of honest clients at a similarity that is lower by this much."""
_CREDIBLE = 0.5
"""A client needs this reputation to represent a group of copies: more likely honest than not."""
_UNANIMOUS = 0.9
"""At a median cosine of this or more, momenta differ mostly by when their clients were selected."""


class _Sent(NamedTuple):
    """What a client sent last, beside its direction."""

    length: float
    examples: float


@dataclass
class _Findings:
    """Results of the tests, seat by seat."""

    reasons: list[Reason]
    credit: NDArray[np.float64]
    group_size: NDArray[np.intp]
    nearest: NDArray[np.float64]
    silent: NDArray[np.bool_]
    """Seats that are rejected: they are not compared any further."""
    events: list[str]

    @classmethod
    def none(cls, seats: int) -> _Findings:
        return cls(
            reasons=["accepted"] * seats,
            credit=np.ones(seats),
            group_size=np.full(seats, _ALONE, dtype=np.intp),
            nearest=np.full(seats, np.nan),
            silent=np.zeros(seats, dtype=bool),
            events=[],
        )

    def reject(self, seats: NDArray[np.intp], reason: Reason) -> None:
        for seat in seats:
            self.reasons[seat] = reason
        self.silent[seats] = True


class HardenedRule:
    """Judge a round by what its clients sent now and lately, weighed by their reputation.

    Use :class:`mabrfl.MabRfl` for the whole method; this is its rule alone, for other selectors.

    Parameters
    ----------
    options
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`.
    """

    name = "mab-rfl"

    def __init__(self, options: HardenedOptions | None = None) -> None:
        self.options = options or HardenedOptions()
        self._memory = MomentumMemory()
        self._sent: dict[ClientId, _Sent] = {}

    def __call__(self, cohort: Cohort) -> Decision:
        """Judge one round."""
        chosen = self.options
        panel = convene(cohort, self._memory, history=chosen.memory, rounds=chosen.panel_rounds, size=chosen.panel_size)
        findings = _Findings.none(len(panel))
        groups = self._find_copies(cohort, panel, findings)
        self._judge_copies(groups, panel, findings)
        suspicions = self._find_foreign(cohort, groups, panel, findings)
        self._spare(panel, findings)
        typical = self._typical(cohort, panel, findings)
        weights = self._weights(cohort, panel, findings, typical)
        return Decision(
            weights=weights,
            reasons=findings.reasons[: len(cohort)],
            evidence=_evidence(cohort, panel, findings, weights),
            credit=findings.credit[: len(cohort)],
            events=tuple(findings.events),
            facts=_facts(panel, findings, suspicions, typical.length),
        )

    def _mass(self, panel: Panel) -> NDArray[np.float64]:
        """Return what each seat counts where majorities are asked for."""
        return panel.trust if self.options.majority == "reputation" else np.ones(len(panel))

    def _typical(self, cohort: Cohort, panel: Panel, findings: _Findings) -> _Sent:
        """Return the medians, by reputation, of the lengths and claims sent last by all who are not rejected now."""
        self._sent = {client: sent for client, sent in self._sent.items() if client in cohort.reputation}
        arrived = zip(cohort.norms.tolist(), cohort.num_examples.tolist(), strict=True)
        self._sent.update(zip(cohort.ids, (_Sent(*each) for each in arrived), strict=True))
        rejected = {client for client, silent in zip(panel.ids, findings.silent, strict=True) if silent}
        heard = [client for client in self._sent if client not in rejected]
        sent, trust = np.array([self._sent[client] for client in heard]), cohort.trust(heard)
        return _Sent(*(influence.weighted_median(column, trust) for column in sent.T))

    def _find_copies(self, cohort: Cohort, panel: Panel, findings: _Findings) -> list[NDArray[np.intp]]:
        """Look for copies among this round's updates, and among the momenta of the whole panel."""
        chosen, n, seats = self.options, len(cohort), len(panel)
        compared = [(cohort.cosines, panel.trust[:n])]
        if n > 1 and np.median(cohort.cosines[~np.eye(n, dtype=bool)]) < _UNANIMOUS:
            compared.append((panel.cosines, panel.trust))
        exact: list[NDArray[np.intp]] = []
        close: list[NDArray[np.intp]] = []
        fresh = True
        grouped = np.zeros(seats, dtype=bool)
        for cosines, trust in compared:
            similarity = residual_cosines(cosines, trust) if chosen.copy_vectors == "residual" else cosines
            if len(similarity) > 1:
                others = similarity - 3 * np.eye(len(similarity))
                findings.nearest[: len(others)] = np.fmax(findings.nearest[: len(others)], others.max(axis=1))
            if chosen.copy_similarity:
                if fresh:  # momenta may be the same by chance of selection; this round's updates are not
                    exact = similar_groups(similarity, max(_SAME, chosen.copy_similarity), chosen.grouping)
                close += similar_groups(similarity, chosen.copy_similarity, chosen.grouping)
                for group in similar_groups(similarity, chosen.copy_similarity - _MARGIN, chosen.grouping):
                    grouped[group] = True
            fresh = False
        return self._believable(exact, close, grouped, panel, findings)

    def _believable(
        self,
        exact: list[NDArray[np.intp]],
        close: list[NDArray[np.intp]],
        grouped: NDArray[np.bool_],
        panel: Panel,
        findings: _Findings,
    ) -> list[NDArray[np.intp]]:
        """Return the groups of copies that are not more likely the honest majority, or honest groups of like data.

        Updates that are the same but for rounding are copies even where honest clients come in groups.
        """
        seats = len(panel)
        nothing = np.zeros(seats, dtype=bool)
        if not close:
            return []
        for groups, alike in ((disjoint([*exact, *close], seats), grouped), (disjoint(exact, seats), nothing)):
            apart = nothing.copy()
            for group in groups:
                apart[group] = True
            if not self.options.majority_guard or majority_is_coherent(self._mass(panel), apart, alike):
                for group in groups:
                    findings.group_size[group] = len(group)
                return groups
            findings.events = ["majority-guard"]
        return []

    def _judge_copies(self, groups: list[NDArray[np.intp]], panel: Panel, findings: _Findings) -> None:
        """Leave each group of copies one vote, or none, and blame its members by how likely they copied."""
        chosen = self.options
        for members in groups:
            findings.credit[members] = copy_blame(panel.trust[members])
            present = members[members < panel.present]
            silenced = members
            if len(present):
                speaker = representative(present, panel.trust, panel.consistency, chosen.representative_margin)
                if chosen.copies == "collapse" and panel.trust[speaker] >= _CREDIBLE:
                    silenced = members[members != speaker]
                    findings.credit[speaker] *= -1
            findings.reject(silenced, "sybil")

    def _spare(self, panel: Panel, findings: _Findings) -> None:
        """Blame nobody if half of the clients present, or more, are rejected; reject nobody if all would be.

        The rejected are a minority of all known clients, and may be a majority of this round by chance.
        """
        rejected = findings.silent[: panel.present]
        mass = self._mass(panel)[: panel.present]
        if rejected.all():
            findings.events.append("nobody-left")
            findings.reasons[: panel.present] = ["accepted"] * panel.present
            findings.silent[: panel.present] = False
            findings.credit[: panel.present] = 0.0
        elif self.options.majority_guard and not minority(mass[rejected].sum(), mass.sum()):
            findings.events.append("majority-present")
            # The representative of a group of copies is accepted, and would be the only one blamed.
            credit = findings.credit[: panel.present]
            findings.credit[: panel.present] = np.where(rejected, 0.0, np.maximum(credit, 0.0))

    def _find_foreign(
        self, cohort: Cohort, groups: list[NDArray[np.intp]], panel: Panel, findings: _Findings
    ) -> list[Suspicion]:
        """Look for foreign groups among the clients not rejected yet; copies of their members are foreign, too.

        First by the momenta of the panel, then by this round's updates. Attackers may be a majority of a round by
        chance, so the guard asks that the clients who stay are a majority of the panel.
        """
        foreign, suspicions = self._foreign_among(panel.cosines, np.flatnonzero(~findings.silent), panel)
        self._reject_foreign(foreign, groups, findings)
        if self.options.at_once and self.options.memory:
            here = np.flatnonzero(~findings.silent[: panel.present])
            foreign, more = self._foreign_among(cohort.cosines, here, panel)
            self._reject_foreign(foreign, groups, findings)
            suspicions += more
        return suspicions

    def _foreign_among(
        self, cosines: NDArray[np.float64], voices: NDArray[np.intp], panel: Panel
    ) -> tuple[NDArray[np.intp], list[Suspicion]]:
        """Return which of these seats are foreign, and the groups that were examined."""
        chosen, mass = self.options, self._mass(panel)
        foreign, suspicions = foreign_clients(
            cosines[np.ix_(voices, voices)],
            mass[voices],
            separation=chosen.separation,
            small_group=chosen.small_group,
            aligned=chosen.aligned,
            suspicion=chosen.suspicion,
            groups=chosen.groups,
            guard=chosen.majority_guard,
            spent=float(np.delete(mass, voices).sum()),
        )
        groups = [Suspicion(voices[each.members], each.separation, each.needed, each.cosine) for each in suspicions]
        return voices[foreign], groups

    @staticmethod
    def _reject_foreign(rejected: NDArray[np.intp], groups: list[NDArray[np.intp]], findings: _Findings) -> None:
        for group in groups:
            if np.isin(group, rejected).any():
                rejected = np.union1d(rejected, group)
        findings.credit[rejected] = 1.0
        findings.reject(rejected, "outlier")

    def _weights(self, cohort: Cohort, panel: Panel, findings: _Findings, typical: _Sent) -> NDArray[np.float64]:
        """Return what each update is multiplied by in the step."""
        chosen, n = self.options, len(cohort)
        weights = np.zeros(n)
        used = np.flatnonzero(~findings.silent[:n])
        votes = panel.trust[used] if chosen.trust_weights else np.ones(len(used))
        if chosen.independence:
            among = np.ix_(used, used)
            votes = influence.independent_votes(votes, panel.cosines[among], cohort.cosines[among])
        votes = votes * influence.bounded_claims(cohort.num_examples[used], typical.examples, chosen.claims)
        lengths = influence.clipped_lengths(cohort.norms[used], typical.length, chosen.step_size, chosen.clip)
        weights[used] = votes / votes.sum() * lengths / cohort.norms[used]
        return weights

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the momenta as plain values, lists and arrays."""
        sent = np.array(list(self._sent.values()), dtype=np.float64).reshape(-1, 2)
        last = {"who": list(self._sent), "lengths": sent[:, 0], "examples": sent[:, 1]}
        return {"options": asdict(self.options), **self._memory.state_dict(), **last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the momenta; those of another set of options are refused."""
        for name, value in asdict(self.options).items():
            if state["options"].get(name) != value:
                raise StateError(f"the state's {name} is {state['options'].get(name)!r}, this rule's is {value!r}")
        who = [as_client_id(client) for client in state["who"]]
        columns = {name: np.asarray(state[name], dtype=np.float64) for name in ("lengths", "examples")}
        for name, column in columns.items():
            if column.shape != (len(who),) or not np.all((column > 0) & np.isfinite(column)):
                raise StateError(f"{name} must be one positive number per client; got {len(who)} ids, {column.shape}")
        self._memory.load_state_dict(state)
        sent = zip(*(column.tolist() for column in columns.values()), strict=True)
        self._sent = {client: _Sent(*each) for client, each in zip(who, sent, strict=True)}


def _evidence(cohort: Cohort, panel: Panel, findings: _Findings, weights: NDArray[np.float64]) -> list[Evidence]:
    """Say, for each client, what the tests saw."""
    total = float((weights * cohort.norms).sum())
    return [
        {
            "norm": float(cohort.norms[k]),
            "trust": float(panel.trust[k]),
            "nearest": None if np.isnan(findings.nearest[k]) else float(findings.nearest[k]),
            "copies": int(findings.group_size[k]),
            "share": float(weights[k] * cohort.norms[k] / total) if total else 0.0,
        }
        for k in range(len(cohort))
    ]


def _facts(panel: Panel, findings: _Findings, suspicions: list[Suspicion], typical: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "panel": len(panel),
        "largest_residual_cosine": None if np.isnan(findings.nearest).all() else float(np.nanmax(findings.nearest)),
        "largest_copied_group": int(findings.group_size.max()),
        "typical_length": typical,
    }
    if suspicions:
        worst = max(suspicions, key=lambda each: each.separation - each.needed)
        facts["separation"], facts["separation_needed"] = worst.separation, worst.needed
        facts["group_cosine"], facts["group_size"] = worst.cosine, len(worst.members)
    return facts
