"""One federated round, stage by stage. Read this file first: it shows where everything is."""

from __future__ import annotations

import time
from typing import TypeVar

from mabrfl.attacks import Attack
from mabrfl.defense import Defense
from mabrfl.global_model import GlobalModel
from mabrfl.recording import RoundRecord
from mabrfl.simulation.federation import Federation

T = TypeVar("T")


def run_round(
    number: int, model: GlobalModel, federation: Federation, defense: Defense, attack: Attack | None
) -> tuple[GlobalModel, RoundRecord]:
    """Run one round; each line is one stage, in order. Return the new model and the round's record."""
    clock = Stopwatch()
    chosen = clock.lap("select", defense.select(federation.client_ids, round=number))
    trained = clock.lap("train", federation.train(chosen, model, attack, round_number=number))
    sent = clock.lap("attack", federation.corrupt(trained, model, attack, defense))
    screening = clock.lap("screen", defense.screen(sent.updates, round=number))
    defense.reward(screening)
    outcome = clock.lap("aggregate", defense.combine(screening))
    model = federation.move(model, trained, outcome)
    scores = clock.lap("evaluate", federation.evaluate(model))
    attackers = federation.attacker_ids
    renewed = federation.renew_identities(outcome, attack)
    record = RoundRecord(
        round=number,
        accuracy=scores.accuracy,
        loss=scores.loss,
        selected=tuple(chosen),
        verdicts=outcome.verdicts,
        reputation=defense.reputation,
        attackers=attackers,
        events=(*sent.events, *outcome.events, *renewed),
        facts=outcome.facts,
        seconds=clock.seconds,
        per_class=tuple(float(share) for share in scores.per_class),
        attack_success=scores.attack_success,
        confusion=scores.confusion,
    )
    return model, record


class Stopwatch:
    """Wall-clock seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, stage: str, result: T) -> T:
        """Record the time since the last lap for this stage, and return the stage's result."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._since
        self._since = now
        return result
