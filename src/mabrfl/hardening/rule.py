"""The hardened rule: too long, copied, foreign; then a step in which nobody and no group has much to say."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mabrfl.errors import StateError
from mabrfl.hardening import influence
from mabrfl.hardening.copies import (
    Group,
    copied_groups,
    copy_blame,
    representative,
    residual_cosines,
    similar_groups,
)
from mabrfl.hardening.foreign import Suspicion, foreign_clients
from mabrfl.hardening.options import HardenedOptions
from mabrfl.hardening.panel import Panel, convene
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Cohort, Decision, Evidence, Reason

_ALONE = 1
_CREDIBLE = 0.5
"""Reputation from which a client may speak for a group of copies: more likely honest than not."""
_UNANIMOUS = 0.9
"""Median cosine from which momenta differ mostly by when their owners were selected, not by what they want."""


@dataclass
class _Findings:
    """What the tests found, seat by seat."""

    reasons: list[Reason]
    credit: NDArray[np.float64]
    group_size: NDArray[np.intp]
    nearest: NDArray[np.float64]
    silent: NDArray[np.bool_]
    """Seats that are spoken for by another: they are not compared any further."""
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

    def reject(self, seats: NDArray[np.intp], reason: Reason, credit: float = 1.0) -> None:
        for seat in seats:
            self.reasons[seat] = reason
        self.credit[seats] = credit
        self.silent[seats] = True


class HardenedRule:
    """Judge a round by what its clients sent now and lately, weighed by their reputation.

    Use :class:`mabrfl.MabRfl` for the whole method; this is its rule alone, for other selectors.

    Parameters
    ----------
    options
        See :class:`~mabrfl.hardening.options.HardenedOptions`.
    """

    name = "mab-rfl"

    def __init__(self, options: HardenedOptions | None = None) -> None:
        self.options = options or HardenedOptions()
        self._memory = MomentumMemory()

    def __call__(self, cohort: Cohort) -> Decision:
        """Judge one round."""
        chosen = self.options
        panel = convene(cohort, self._memory, history=chosen.memory, rounds=chosen.panel_rounds, size=chosen.panel_size)
        found = _Findings.none(len(panel))
        found.reject(np.flatnonzero(influence.too_long(cohort.norms, chosen.norm_limit)), "outlier")
        groups = self._find_copies(cohort, panel, found)
        self._judge_copies(groups, panel, found)
        suspicions = self._find_foreign(groups, panel, found)
        weights, step_size = self._weights(cohort, panel, found)
        reasons = found.reasons[: len(cohort)]
        if all(reason != "accepted" for reason in reasons):
            found.events.append("no-survivors")
        return Decision(
            weights=weights,
            reasons=reasons,
            evidence=_evidence(cohort, panel, found, weights),
            credit=found.credit[: len(cohort)],
            events=tuple(found.events),
            facts=_facts(panel, found, suspicions, step_size),
        )

    def _find_copies(self, cohort: Cohort, panel: Panel, found: _Findings) -> list[Group]:
        """Look for copies among this round's updates, and among the momenta of the whole panel."""
        chosen, n = self.options, len(cohort)
        candidates: list[tuple[NDArray[np.intp], float]] = []
        compared = [(cohort.cosines, panel.trust[:n])]
        if np.median(cohort.cosines) < _UNANIMOUS:
            compared.append((panel.cosines, panel.trust))
        for cosines, trust in compared:
            similarity = residual_cosines(cosines, trust) if chosen.copy_vectors == "residual" else cosines
            if len(similarity) > 1:
                others = similarity - 3 * np.eye(len(similarity))
                found.nearest[: len(others)] = np.fmax(found.nearest[: len(others)], others.max(axis=1))
            if chosen.copy_similarity:
                mass = float(trust.sum())
                candidates += [
                    (group, mass) for group in similar_groups(similarity, chosen.copy_similarity, chosen.grouping)
                ]
        usable = [(group[~found.silent[group]], mass) for group, mass in candidates]
        return copied_groups(usable, panel.trust, guard=chosen.majority_guard, seats=len(panel))

    def _judge_copies(self, groups: list[Group], panel: Panel, found: _Findings) -> None:
        """Leave each group of copies one voice, or none, and blame the others by how sure it is that they copied."""
        chosen = self.options
        for group in groups:
            found.group_size[group.members] = len(group.members)
            if group.guarded:
                found.events.append("majority-guard")
                found.credit[group.members] = 0.0
                continue
            speaker, original = representative(group.members, panel.trust, panel.consistency, chosen.told_apart)
            blame = 1.0 if original else copy_blame(len(group.members))
            silenced = group.members[group.members != speaker]
            heard = original or (chosen.copies == "collapse" and panel.trust[speaker] >= _CREDIBLE)
            if not heard:
                silenced = group.members
            found.reject(silenced, "sybil", blame)
            if not original:
                found.credit[speaker] = blame if speaker in silenced else -blame

    def _find_foreign(self, groups: list[Group], panel: Panel, found: _Findings) -> list[Suspicion]:
        """Look for foreign groups among all who still have a voice; whoever copied one of their members is foreign."""
        chosen = self.options
        voices = np.flatnonzero(~found.silent)
        mass = panel.trust[voices] if chosen.majority == "reputation" else np.ones(len(voices))
        foreign, suspicions = foreign_clients(
            panel.cosines[np.ix_(voices, voices)],
            mass,
            separation=chosen.separation,
            small_group=chosen.small_group,
            aligned=chosen.aligned,
            suspicion=chosen.suspicion,
            groups=chosen.groups,
            present=voices < panel.present,
        )
        rejected = voices[foreign]
        for group in groups:
            if not group.guarded and np.isin(group.members, rejected).any():
                rejected = np.union1d(rejected, group.members)
        found.reject(rejected, "outlier")
        return [Suspicion(voices[each.members], each.separation, each.needed, each.cosine) for each in suspicions]

    def _weights(self, cohort: Cohort, panel: Panel, found: _Findings) -> tuple[NDArray[np.float64], float]:
        """Return what each update is multiplied by in the step, and the median length of those used."""
        chosen, n = self.options, len(cohort)
        weights = np.zeros(n)
        used = np.flatnonzero(~found.silent[:n])
        if not len(used):
            return weights, 0.0
        votes = panel.trust[used] if chosen.trust_weights else np.ones(len(used))
        if chosen.independence:
            votes = influence.independent_votes(panel.cosines[np.ix_(used, used)], votes)
        lengths = influence.clipped_lengths(cohort.norms[used], chosen.step_size, chosen.clip)
        weights[used] = votes / votes.sum() * lengths / cohort.norms[used]
        return weights, float(np.median(cohort.norms[used]))

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the momenta as plain values, lists and arrays."""
        return {"options": asdict(self.options), **self._memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the momenta; those of another set of options are refused."""
        for name, value in asdict(self.options).items():
            if state["options"].get(name) != value:
                raise StateError(f"the state's {name} is {state['options'].get(name)!r}, this rule's is {value!r}")
        self._memory.load_state_dict(state)


def _evidence(cohort: Cohort, panel: Panel, found: _Findings, weights: NDArray[np.float64]) -> list[Evidence]:
    """Say, for each client, what the tests saw."""
    total = float((weights * cohort.norms).sum())
    return [
        {
            "norm": float(cohort.norms[k]),
            "trust": float(panel.trust[k]),
            "nearest": None if np.isnan(found.nearest[k]) else float(found.nearest[k]),
            "copies": int(found.group_size[k]),
            "share": float(weights[k] * cohort.norms[k] / total) if total else 0.0,
        }
        for k in range(len(cohort))
    ]


def _facts(panel: Panel, found: _Findings, suspicions: list[Suspicion], step_size: float) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "panel": len(panel),
        "largest_residual_cosine": None if np.isnan(found.nearest).all() else float(np.nanmax(found.nearest)),
        "largest_copied_group": int(found.group_size.max()),
        "step_size": step_size,
    }
    if suspicions:
        worst = max(suspicions, key=lambda each: each.separation - each.needed)
        facts["separation"], facts["separation_needed"] = worst.separation, worst.needed
        facts["group_cosine"], facts["group_size"] = worst.cosine, len(worst.members)
    return facts
