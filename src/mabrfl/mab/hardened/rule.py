"""The hardened rule: it rejects copies and clients that point elsewhere, then takes a step of bounded influence."""

from __future__ import annotations

from dataclasses import asdict
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
from mabrfl.mab.hardened.findings import Copies, Findings, evidence, facts
from mabrfl.mab.hardened.groups import outlying_groups
from mabrfl.mab.hardened.hardened_options import HardenedOptions
from mabrfl.mab.hardened.opposed import mean_cosines, opposed_clients
from mabrfl.mab.hardened.panel import Panel, convene
from mabrfl.mab.hardened.views import AT_ONCE, BLOCKS, Name
from mabrfl.rng import ClientId
from mabrfl.screening.momentum import MomentumMemory
from mabrfl.updates import Cohort, Decision, as_client_id
from mabrfl.vectors.pairs import largest_beside, median_is_below

_SAME = 0.9999
"""Residual cosine of updates that are the same but for rounding."""
_MARGIN = 0.2
"""The guard looks for groups of honest clients at a similarity that is lower by this much."""
_CREDIBLE = 0.5
"""A client needs this reputation to represent a group of copies: more likely honest than not."""
_UNANIMOUS = 0.9
"""At a median cosine of this or more, momenta differ mostly by when their clients were selected."""
_SILENT = 1e-6
"""An update shorter than this many typical lengths says nothing, like one of zeros."""
_FEWEST_AT_ONCE = 20
"""Clients of a round among which a group can be seen without the past."""
_CHANCE = 3.0
"""Deviations of a cosine by chance, 1 / sqrt(numbers), that a single client must be opposed by."""
_SMALLEST = 2
_SMALLEST_IN_FIRST = 5
"""The first layer is small, and honest updates of it nearly agree: a few that differ there are chance."""
_MOST_IN_A_BLOCK = 0.45
"""Share of the reputation up to which a group is rejected for one layer. Attackers of nearly half who choose what they
send can make the other half differ in some layer."""
_CLEAR = 2 / 3
"""Share of the separation, over rounds, that a group need not have where the others do not differ at all."""
_ALIKE, _BY_LABEL = 1.0, ("last", "labels")
"""How much more separation is asked of a group that looks like honest clients who share a label, in the blocks in which
such clients differ from others."""
_FEW, _MORE_AMONG_FEW = 20, 1.5
"""Among fewer clients than this, chance makes groups that differ in a layer, and the others seem to agree: the lines in
layers are higher by this factor, and that in the whole does not shrink."""
_LARGE_BLOCK = 1000
"""A block of so many numbers is like the whole update: honest clients differ in it by their data, not by chance."""
_LONE: tuple[Name, ...] = ("whole", "last", "labels")
"""The blocks in which a single client may oppose the others."""


class _Sent(NamedTuple):
    """What a client sent last, beside its direction."""

    length: float
    examples: float


class _View(NamedTuple):
    """The cosines between clients in one block, over the ``rounds`` (momenta) or of ``this round``."""

    block: Name
    over: str
    cosines: NDArray[np.float64]


class HardenedRule:
    """Judge a round by what its clients sent now and lately, weighed by their reputation.

    Use :class:`mabrfl.MabRfl` for the whole method; this is its rule alone, for other selectors.

    Parameters
    ----------
    options
        See :class:`~mabrfl.mab.hardened.hardened_options.HardenedOptions`.
    momenta
        Where momenta are kept; in memory if left out.
    """

    name = "mab-rfl"

    def __init__(self, options: HardenedOptions | None = None, momenta: MomentumMemory | None = None) -> None:
        self.options = options or HardenedOptions()
        self._memory = MomentumMemory() if momenta is None else momenta
        self._sent: dict[ClientId, _Sent] = {}

    @property
    def momenta(self) -> MomentumMemory:
        """Where momenta are kept."""
        return self._memory

    def __call__(self, cohort: Cohort) -> Decision:
        """Judge one round."""
        panel = convene(cohort, self._memory, history=self.options.memory, rounds=self.options.panel_rounds)
        findings = Findings.none(len(panel))
        self._find_silent(cohort, panel, findings)
        copies = self._find_copies(panel, findings)
        self._judge_copies(copies, panel, findings)
        self._find_outliers(copies, panel, findings)
        self._spare(panel, findings)
        typical = self._typical(cohort, panel, findings)
        weights = self._weights(cohort, panel, findings, typical)
        return Decision(
            weights=weights,
            reasons=findings.reasons[: len(cohort)],
            evidence=evidence(cohort, panel, findings, weights),
            credit=findings.credit[: len(cohort)],
            events=tuple(findings.events),
            facts=facts(panel, findings, typical.length),
        )

    def _find_silent(self, cohort: Cohort, panel: Panel, findings: Findings) -> None:
        """Set aside updates that are next to nothing beside the others: they are not used, and cost nothing."""
        typical = influence.weighted_median(cohort.norms, panel.trust[: len(cohort)])
        silent = np.flatnonzero(cohort.norms < _SILENT * typical)
        findings.reject(silent, "malformed")
        findings.credit[silent] = 0.0
        for member in silent.tolist():
            findings.why[member] = {"cause": f"norm {cohort.norms[member]:.3g} is next to nothing beside {typical:.3g}"}

    def _typical(self, cohort: Cohort, panel: Panel, findings: Findings) -> _Sent:
        """Return the medians, by reputation, of the lengths and claims sent last by all who are not rejected now."""
        self._sent = {client: sent for client, sent in self._sent.items() if client in cohort.reputation}
        arrived = zip(cohort.norms.tolist(), cohort.num_examples.tolist(), strict=True)
        self._sent.update(zip(cohort.ids, (_Sent(*each) for each in arrived), strict=True))
        rejected = {client for client, out in zip(panel.ids, findings.rejected, strict=True) if out}
        heard = [client for client in self._sent if client not in rejected]
        sent, trust = np.array([self._sent[client] for client in heard]), cohort.trust(heard)
        return _Sent(*(influence.weighted_median(column, trust) for column in sent.T))

    def _find_copies(self, panel: Panel, findings: Findings) -> Copies:
        """Look for copies among this round's updates, and among the momenta of the whole panel."""
        threshold, n = self.options.copy_similarity, panel.present
        compared = [(panel.now["whole"], panel.trust[:n])]
        if n > 1 and median_is_below(panel.now["whole"], _UNANIMOUS):
            compared.append((panel.views["whole"], panel.trust))
        exact: Copies = []
        close: Copies = []
        grouped = np.zeros(len(panel), dtype=bool)
        for view, (cosines, trust) in enumerate(compared):
            similarity = residual_cosines(cosines, trust)
            if len(similarity) > 1:
                nearest = findings.nearest[: len(similarity)]
                np.fmax(nearest, largest_beside(similarity), out=nearest)
            if threshold:
                same, alike, nearly = similar_groups(similarity, max(_SAME, threshold), threshold, threshold - _MARGIN)
                if view == 0:  # momenta may be the same by chance of selection; this round's updates are not
                    exact = same
                close += alike
                for group in nearly:
                    grouped[group] = True
        return self._believable(exact, close, grouped, panel, findings)

    def _believable(
        self,
        exact: Copies,
        close: Copies,
        grouped: NDArray[np.bool_],
        panel: Panel,
        findings: Findings,
    ) -> Copies:
        """Return the groups of copies that are not more likely the honest majority, or honest groups of like data.

        Updates that are the same but for rounding are copies even where honest clients come in groups.
        """
        members = len(panel)
        nothing = np.zeros(members, dtype=bool)
        if not close:
            return []
        for groups, alike in ((disjoint([*exact, *close], members), grouped), (disjoint(exact, members), nothing)):
            apart = nothing.copy()
            for group in groups:
                apart[group] = True
            if majority_is_coherent(panel.trust, apart, alike):
                for group in groups:
                    findings.group_size[group] = len(group)
                return groups
            findings.events = ["majority-guard"]
        return []

    def _judge_copies(self, groups: Copies, panel: Panel, findings: Findings) -> None:
        """Leave each group of copies one vote, or none, and blame its members by how likely they copied."""
        for members in groups:
            findings.credit[members] = copy_blame(panel.trust[members])
            present = members[members < panel.present]
            silenced = members
            if len(present):
                speaker = representative(present, panel.trust, panel.consistency)
                if panel.trust[speaker] >= _CREDIBLE:
                    silenced = members[members != speaker]
                    findings.credit[speaker] *= -1
            findings.reject(silenced, "sybil")

    def _find_outliers(self, copies: Copies, panel: Panel, findings: Findings) -> None:
        """Look for groups, and for single clients, that point elsewhere: in each block of the model.

        First by the momenta of the panel, then by this round's updates alone, which show a new push at once. Attackers
        may be a majority of a round by chance; so those who stay must hold most of the reputation of the panel, absent
        clients included.
        """
        for block in BLOCKS:
            if block in panel.views:
                self._reject_groups(_View(block, "rounds", panel.views[block]), copies, panel, findings)
        for block in _LONE:
            if block in panel.views:
                self._reject_opposed(_View(block, "rounds", panel.views[block]), copies, panel, findings)
        for block in AT_ONCE if self.options.memory and panel.present >= _FEWEST_AT_ONCE else ():
            if block in panel.now:
                self._reject_groups(_View(block, "this round", panel.now[block]), copies, panel, findings)

    def _reject_groups(self, view: _View, copies: Copies, panel: Panel, findings: Findings) -> None:
        """Reject the groups that stand out in one block."""
        block, over, cosines = view
        like_whole = block == "whole" or (block == "first" and panel.columns["first"] >= _LARGE_BLOCK)
        few = len(panel) < _FEW
        separation = getattr(self.options, f"separation_{block}") * (_MORE_AMONG_FEW if few and block != "whole" else 1)
        compared = np.flatnonzero(~findings.rejected[: len(cosines)])
        groups, most = outlying_groups(
            cosines,
            panel.trust,
            members=compared,
            separation=min(separation, self.options.separation_whole or separation) if like_whole else separation,
            suspicion=self.options.suspicion,
            smallest=_SMALLEST_IN_FIRST if block == "first" else _SMALLEST,
            most=0.5 if block == "whole" else _MOST_IN_A_BLOCK,
            spent=float(np.delete(panel.trust, compared).sum()),
            clear=_CLEAR if like_whole and over == "rounds" and not few else 0.0,
            alike=_ALIKE if block in _BY_LABEL else 0.0,
            whole=panel.views["whole"] if block == "first" and not like_whole else None,
        )
        for group in groups or ([most] if most else []):
            why = {
                "block": block,
                "over": over,
                "separation": group.excess,
                "separation_needed": group.needed,
                "group_cosine": group.cosine,
                "group_size": len(group.members),
            }
            if group.excess - group.needed > findings.closest.get("margin", -np.inf):
                findings.closest = {**why, "margin": group.excess - group.needed}
            if groups:
                findings.reject_outliers(group.members, why, copies)

    def _reject_opposed(self, view: _View, copies: Copies, panel: Panel, findings: Findings) -> None:
        """Reject single clients that oppose all others in one block."""
        block, over, cosines = view
        compared = np.flatnonzero(~findings.rejected[: len(cosines)])
        spent = float(np.delete(panel.trust, compared).sum())
        # An honest client that alone has some label differs from all others, but not against them in the last layer.
        against = mean_cosines(panel.views.get("last", cosines), compared) < 0
        # Among few numbers, honest updates point against each other by chance.
        opposed = self.options.opposed and max(self.options.opposed, _CHANCE / np.sqrt(panel.columns[block]))
        for found in opposed_clients(
            cosines, panel.trust, opposed=opposed, among=against, spent=spent, members=compared
        ):
            why = {"block": block, "over": over, "cosine": found.cosine, "cosine_needed": -opposed}
            findings.reject_outliers(np.array([found.member]), why, copies)

    def _spare(self, panel: Panel, findings: Findings) -> None:
        """Blame nobody if half of the clients present, or more, are rejected; reject nobody if all would be.

        The rejected are a minority of all known clients, and may be a majority of this round by chance.
        """
        rejected = findings.rejected[: panel.present]
        mass = panel.trust[: panel.present]
        if rejected.all():
            findings.events.append("nobody-left")
            findings.reasons[: panel.present] = ["accepted"] * panel.present
            findings.rejected[: panel.present] = False
            findings.credit[: panel.present] = 0.0
        elif not minority(mass[rejected].sum(), mass.sum()):
            findings.events.append("majority-present")
            # The representative of a group of copies is accepted, and would be the only one blamed.
            credit = findings.credit[: panel.present]
            findings.credit[: panel.present] = np.where(rejected, 0.0, np.maximum(credit, 0.0))

    def _weights(self, cohort: Cohort, panel: Panel, findings: Findings, typical: _Sent) -> NDArray[np.float64]:
        """Return what each update is multiplied by in the step."""
        chosen, n = self.options, len(cohort)
        weights = np.zeros(n)
        used = np.flatnonzero(~findings.rejected[:n])
        votes = panel.trust[used] * influence.bounded_claims(cohort.num_examples[used], typical.examples, chosen.claims)
        lengths = influence.clipped_lengths(cohort.norms[used], typical.length, chosen.clip)
        weights[used] = influence.bounded_shares(votes / votes.sum() * lengths) / cohort.norms[used]
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
