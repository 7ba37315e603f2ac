"""Measures of a defense, against the truth about who attacks. No defense may import this module."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mabrfl.config import RunConfig, config_hash, resolve
from mabrfl.rng import ClientId
from mabrfl.updates import canonical

if TYPE_CHECKING:
    from mabrfl.recording.record import RoundRecord

LAST = 10
"""Rounds in the mean accuracy at the end of a run."""


@dataclass(frozen=True)
class Detection:
    r"""Verdicts against the truth, counted over all verdicts of all rounds.

    With c the attackers' updates that were rejected (caught), m those accepted (missed), h the honest
    updates rejected and a those accepted:

    .. math:: \text{precision} = \frac{c}{c + h}, \qquad \text{recall} = \frac{c}{c + m}, \qquad
        \text{honest\_rejected\_rate} = \frac{h}{h + a}

    A rate whose denominator is zero is None: nobody was rejected, or there were no attackers.
    """

    caught: int
    missed: int
    honest_rejected: int
    honest_accepted: int

    @property
    def precision(self) -> float | None:
        """Share of the rejected updates that came from attackers."""
        return ratio(self.caught, self.caught + self.honest_rejected)

    @property
    def recall(self) -> float | None:
        """Share of the attackers' updates that were rejected."""
        return ratio(self.caught, self.caught + self.missed)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall."""
        return ratio(2 * self.caught, 2 * self.caught + self.missed + self.honest_rejected)

    @property
    def honest_rejected_rate(self) -> float | None:
        """Share of the honest updates that were rejected."""
        return ratio(self.honest_rejected, self.honest_rejected + self.honest_accepted)


def detection(records: Sequence[RoundRecord]) -> Detection:
    """Count right and wrong verdicts over these rounds; pass one record for the numbers of a single round."""
    judged = sum(len(record.verdicts) for record in records)
    caught = sum(record.caught for record in records)
    missed = sum(record.missed for record in records)
    honest_rejected = sum(record.honest_rejected for record in records)
    return Detection(caught, missed, honest_rejected, judged - caught - missed - honest_rejected)


@dataclass(frozen=True)
class SelectionRates:
    """Mean share of rounds in which a client was selected: of honest clients, and of attackers."""

    honest: float | None
    malicious: float | None


def selection_rates(
    records: Sequence[RoundRecord], attackers: Collection[ClientId], num_clients: int
) -> SelectionRates:
    """Return the mean share of rounds in which an honest client, and an attacker, was selected.

    ``attackers`` may hold more ids than there are attackers, if some changed theirs; a record has the ids of its round.
    """
    malicious = sum(client in attackers for record in records for client in record.selected)
    honest = sum(len(record.selected) for record in records) - malicious
    present = sum(len(record.attackers.intersection(attackers)) for record in records)
    return SelectionRates(
        honest=ratio(honest, len(records) * num_clients - present),
        malicious=ratio(malicious, present),
    )


def attacker_ids(records: Sequence[RoundRecord]) -> frozenset[ClientId]:
    """Return every id under which an attacker took part in these rounds."""
    return frozenset().union(*(record.attackers for record in records))


def regret(records: Sequence[RoundRecord]) -> list[int]:
    r"""Return, after each round, how many times a malicious client has been selected so far.

    The paper's Eq. 2, :math:`\sum_t 1\{k_t \neq k^*\}`, counts the choices of a wrong arm; with several
    arms per round a wrong arm is a malicious client.
    """
    wrong = (sum(client in record.attackers for client in record.selected) for record in records)
    return list(accumulate(wrong))


def ratio(part: float, whole: float) -> float | None:
    """Return ``part / whole``, or None if ``whole`` is zero."""
    return part / whole if whole else None


def summarize(
    records: Sequence[RoundRecord], config: RunConfig, seconds: float, interrupted: bool = False
) -> dict[str, Any]:
    """Return the numbers of ``summary.json``; accuracies in percent.

    A number that cannot be computed (no finished round, nobody rejected, ...) is None.
    """
    config = resolve(config)
    accuracies = [record.accuracy for record in records]
    last = accuracies[-LAST:]
    finite = [accuracy for accuracy in accuracies if math.isfinite(accuracy)]
    attackers = canonical(attacker_ids(records))
    counts = detection(records)
    selected = selection_rates(records, attackers, config.clients or 0)
    return {
        "dataset": config.dataset,
        "model": config.model,
        "defense": config.defense,
        "preset": config.preset,
        "selector": config.selector,
        "attack": config.attack,
        "seed": config.seed,
        "final_accuracy": accuracies[-1] if accuracies else None,
        "mean_last10": sum(last) / len(last) if last else None,
        "best_accuracy": max(finite, default=None),
        "final_loss": records[-1].loss if records else None,
        "attack_success": records[-1].attack_success if records else None,
        "rounds": len(records),
        "rounds_planned": config.rounds,
        "detection_precision": counts.precision,
        "detection_recall": counts.recall,
        "honest_rejected_rate": counts.honest_rejected_rate,
        "detection": asdict(counts),
        "selection_rate_honest": selected.honest,
        "selection_rate_malicious": selected.malicious,
        "malicious_selections": regret(records)[-1] if records else 0,
        "clients": config.clients,
        "attackers": attackers,
        "seconds": seconds,
        "config_hash": config_hash(config),
        "interrupted": interrupted,
    }
