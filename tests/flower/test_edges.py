"""Odd models, odd functions of the user's, and what of them reaches the log."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from flower_grid import MemoryGrid, arrays_in, honest, model, reply_to
from mabrfl import Decision, Defense
from mabrfl.flower import RobustStrategy
from mabrfl.flower.messages import SentMessages
from mabrfl.flower.round_report import RoundReport, figures, log_round

QUIET = {"fraction_evaluate": 0.0}


def run(strategy, nodes, rounds=1, initial=None):
    return strategy.start(MemoryGrid(nodes), initial or model(), num_rounds=rounds, timeout=600)


def test_a_users_metric_function_that_returns_something_else_does_not_end_the_run():
    strategy = RobustStrategy("fedavg", train_metrics_aggr_fn=lambda contents, key: {"loss": "low"}, **QUIET)
    metrics = run(strategy, {1: honest(1), 2: honest(2)}, 1).train_metrics_clientapp[1]
    assert "loss" not in metrics
    assert metrics["replies-accepted"] == 2


def test_what_a_metric_function_raises_is_logged_as_one_short_line(caplog):
    def failing(contents, key):
        raise KeyError("\x1b[31mforged\nline" + "x" * 5000)

    strategy = RobustStrategy("fedavg", train_metrics_aggr_fn=failing, **QUIET)
    with caplog.at_level("WARNING", logger="flwr"):
        run(strategy, {1: honest(1), 2: honest(2)}, 1)
    (line,) = [record.getMessage() for record in caplog.records if "could not be aggregated" in record.getMessage()]
    assert len(line) < 400
    assert line.strip().isprintable()


def test_a_round_logs_no_more_than_twenty_events(caplog):
    report = RoundReport(SentMessages(1), (), None, tuple(f"event {k}" for k in range(500)), {}, {})
    with caplog.at_level("INFO", logger="flwr"):
        log_round(report, figures(report, moved=False))
    lines = [record.getMessage() for record in caplog.records]
    assert sum("> event" in line for line in lines) == 20
    assert lines[-1].strip() == "> and 480 more events"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_model_that_its_own_type_cannot_hold_is_not_taken_over_and_nobody_is_blamed(dtype):
    def triple(cohort):
        return Decision(weights=np.full(len(cohort), 3.0 / len(cohort)))

    def rising(message):
        values = arrays_in(message)["w"].astype(np.float32)
        return reply_to(message, {"w": (values + 20_000).astype(dtype)})

    strategy = RobustStrategy(Defense(triple), **QUIET)
    initial = ArrayRecord({"w": Array(np.full(2, 20_000, dtype))})
    result = run(strategy, {1: rising, 2: rising}, 1, initial)
    fits = dtype is np.float32
    assert result.train_metrics_clientapp[1]["model-moved"] == int(fits)
    assert result.arrays["w"].numpy().tolist() == ([80_000] * 2 if fits else [20_000] * 2)
    assert set(strategy.defense.reputation.values()) == {(2, 1)}
