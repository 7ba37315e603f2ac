"""The records of a run as columns: one list per quantity over the rounds, and one per quantity over the clients."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mabrfl.recording import RoundRecord
from mabrfl.recording.evaluation import attacker_ids
from mabrfl.rng import ClientId
from mabrfl.updates import canonical

Column = list[int | float | None]

_DIGITS = 6
"""Significant digits of measured numbers: enough for every comparison, and a third of the bytes."""
_QUANTILES = {"low": 0.1, "high": 0.9}


def per_round(records: Sequence[RoundRecord]) -> dict[str, Column]:
    """Return one column per quantity with an entry per round; None if a round does not have it.

    Counts: ``selected``, ``selected_malicious``, ``sybils``, ``outliers``, ``malformed``, ``caught``, ``missed``,
    ``honest_rejected``, ``judged``. Measured: ``accuracy``, ``loss``, ``seconds``, ``attack_success`` if the attack has
    a goal, every number among the records' facts, and B/(B+M) of the honest and of the malicious clients, as
    ``mean_belief_*``, ``low_belief_*`` and ``high_belief_*`` (the 10th and the 90th percentile).
    """
    columns: dict[str, Column] = {
        "round": [record.round for record in records],
        "accuracy": [compact(record.accuracy) for record in records],
        "loss": [compact(record.loss) for record in records],
        "selected": [len(record.selected) for record in records],
        "selected_malicious": [len(record.attackers.intersection(record.selected)) for record in records],
        "judged": [len(record.verdicts) for record in records],
        "sybils": [record.sybils for record in records],
        "outliers": [record.outliers for record in records],
        "malformed": [record.malformed for record in records],
        "caught": [record.caught for record in records],
        "missed": [record.missed for record in records],
        "honest_rejected": [record.honest_rejected for record in records],
        "seconds": [compact(sum(record.seconds.values())) for record in records],
    }
    if any(record.attack_success is not None for record in records):
        columns["attack_success"] = [compact(record.attack_success) for record in records]
    columns |= _beliefs(records)
    names = sorted({name for record in records for name, value in record.facts.items() if _is_number(value)})
    for name in names:
        if name not in columns:
            columns[name] = [compact(record.facts.get(name)) for record in records]
    return columns


def per_client(records: Sequence[RoundRecord]) -> dict[str, list[Any]]:
    """Return one column per quantity with an entry per client in the records, in canonical order of the ids.

    ``attacker`` (the truth), ``selected``, ``rejected``, and ``last_selected`` and ``last_accepted``: the last round
    in which that happened, 0 if it never did.
    """
    selected: Counter[ClientId] = Counter()
    rejected: Counter[ClientId] = Counter()
    last_selected: dict[ClientId, int] = {}
    last_accepted: dict[ClientId, int] = {}
    attackers: set[ClientId] = set()
    known: set[ClientId] = set()
    for record in records:
        attackers |= record.attackers
        known.update(record.reputation, record.selected, record.verdicts)
        selected.update(record.selected)
        last_selected |= dict.fromkeys(record.selected, record.round)
        for client, verdict in record.verdicts.items():
            if verdict.accepted:
                last_accepted[client] = record.round
            else:
                rejected[client] += 1
    ids = canonical(known | attackers)
    return {
        "id": ids,
        "attacker": [client in attackers for client in ids],
        "selected": [selected[client] for client in ids],
        "rejected": [rejected[client] for client in ids],
        "last_selected": [last_selected.get(client, 0) for client in ids],
        "last_accepted": [last_accepted.get(client, 0) for client in ids],
    }


def event_counts(records: Sequence[RoundRecord]) -> dict[str, int]:
    """Return the number of rounds with each kind of event; details after a colon are left out."""
    kinds = ({text.partition(":")[0] for text in record.events} for record in records)
    counts = Counter(event for events in kinds for event in events)
    return {event: counts[event] for event in sorted(counts)}


def compact(value: Any) -> int | float | None:
    """Return a number with few digits; None for anything else, or if it is not finite.

    Examples
    --------
    >>> compact(97.55999755859375), compact(15), compact(float("nan"))
    (97.56, 15, None)
    """
    if not _is_number(value) or not abs(value) <= sys.float_info.max:
        return None
    return int(value) if isinstance(value, int | np.integer) else float(f"{value:.{_DIGITS}g}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _beliefs(records: Sequence[RoundRecord]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    attackers = attacker_ids(records)
    for side in ("honest", "malicious"):
        beliefs = [_beliefs_of(record, attackers, malicious=side == "malicious") for record in records]
        columns[f"mean_belief_{side}"] = [compact(float(np.mean(one))) if one else None for one in beliefs]
        for name, level in _QUANTILES.items():
            columns[f"{name}_belief_{side}"] = [
                compact(float(np.quantile(one, level))) if one else None for one in beliefs
            ]
    return columns


def _beliefs_of(record: RoundRecord, attackers: Collection[ClientId], *, malicious: bool) -> list[float]:
    """Return the beliefs about one side's clients; former ids of attackers belong to neither side."""
    counts: Collection[tuple[float, float]] = [
        belief
        for client, belief in record.reputation.items()
        if (client in record.attackers if malicious else client not in attackers)
    ]
    return [good / (good + bad) for good, bad in counts if good + bad > 0]
