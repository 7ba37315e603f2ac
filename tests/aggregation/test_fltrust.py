"""FLTrust: its formula, its root data in the simulator, and what it withstands."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import make_cohort, rejected_rows, step_of
from mabrfl.aggregation import FLTrust
from mabrfl.catalog import build_dataset
from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError
from mabrfl.runs import simulate
from mabrfl.simulation.client_data import partition_of, root_of


def test_trust_is_the_positive_cosine_and_every_update_has_the_root_updates_norm() -> None:
    root = np.array([2.0, 0.0])
    cohort = make_cohort([[5.0, 0.0], [3.0, 4.0], [-7.0, 0.0], [0.0, 0.0]], root_update=root)
    decision = FLTrust()(cohort)
    # Trust 1, 0.6, 0, 0: (1 * (2, 0) + 0.6 * (1.2, 1.6)) / 1.6
    np.testing.assert_allclose(step_of(cohort, decision), [1.7, 0.6])
    assert rejected_rows(cohort, decision) == {2, 3}


def test_if_nobody_is_trusted_the_model_does_not_move() -> None:
    cohort = make_cohort([[-1.0, 0.0], [-1.0, 1.0]], root_update=np.array([1.0, 0.0]))
    decision = FLTrust()(cohort)
    assert not step_of(cohort, decision).any()
    assert decision.events == ("fltrust-nobody-trusted: the model does not move",)
    with pytest.raises(ConfigError, match="FLTrust needs the server's own update"):
        FLTrust()(make_cohort(np.eye(2)))


def test_a_majority_of_attackers_moves_the_step_by_no_more_than_its_cosine_buys() -> None:
    """Theorem 1 of Cao et al. rests on |g| <= |g_0|, whatever anybody sends."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=50)
    rows = np.vstack([root + 0.3 * rng.normal(size=(4, 50)), -1e6 * root + rng.normal(size=(12, 50))])
    cohort = make_cohort(rows, root_update=root)
    step = step_of(cohort, FLTrust()(cohort))
    assert np.linalg.norm(step) <= np.linalg.norm(root) * (1 + 1e-9)
    assert step @ root / np.linalg.norm(step) / np.linalg.norm(root) > 0.9


def test_the_root_data_of_a_run_are_training_examples_that_no_client_has() -> None:
    run = resolve(RunConfig(defense="fltrust", defense_options={"root_examples": 50}))
    data = build_dataset("digits")
    partition = partition_of(run, data)
    root = root_of(run, data, partition)
    assert root is not None
    assert len(set(root.tolist())) == 50
    assert not set(root.tolist()) & set(np.concatenate(partition).tolist())
    assert root_of(resolve(RunConfig(defense="krum")), data, partition) is None
    greedy = resolve(RunConfig(defense="fltrust", defense_options={"root_examples": 5000}))
    with pytest.raises(ConfigError, match=r"needs 5000 training examples that no client has; \d+ of 1437 are left"):
        root_of(greedy, data, partition)


def test_fltrust_learns_where_averaging_is_reversed() -> None:
    """Six of ten clients send their updates backwards and ten times as long."""
    settings = {"dataset": "digits", "clients": 10, "rounds": 6, "attack": "sign-flip", "attackers": 6, "workers": 1}
    settings |= {"allow_majority": True}
    trusted = simulate(RunConfig(defense="fltrust", **settings))[-1]  # type: ignore[arg-type]
    mean = simulate(RunConfig(defense="fedavg-uniform", **settings))[-1]  # type: ignore[arg-type]
    assert trusted.accuracy > 60
    assert trusted.accuracy > mean.accuracy + 20
    assert {each for each, verdict in trusted.verdicts.items() if not verdict.accepted} == set(trusted.attackers)
