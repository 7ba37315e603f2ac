"""Fast equals slow: the library, its literal twins, and the one-file example decide the same."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mabrfl import MabRfl, Updates
from mabrfl.selection.thompson import beta_draws
from mabrfl.updates import Candidates
from reference import PaperTwin, ReferenceTwin

ONE_FILE = Path(__file__).parents[2] / "examples" / "one_file.py"


def planted_round(rng, common, ids, num_parameters):
    """A cohort with anything in it: honest clients, sybil groups, opposed outliers, lone noise, odd sizes."""
    n = len(ids)
    rho = rng.uniform(0.0, 0.6)
    matrix = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.normal(size=(n, num_parameters))
    for _ in range(rng.integers(0, 3)):
        group = rng.choice(n, size=min(n, rng.integers(1, 6)), replace=False)
        matrix[group] = rng.normal(size=num_parameters) + rng.choice([0, 0.01, 0.5]) * rng.normal(
            size=(len(group), num_parameters)
        )
    if rng.random() < 0.5:
        opposed = rng.choice(n, size=rng.integers(1, n // 2 + 1), replace=False)
        matrix[opposed] = -rng.uniform(0.2, 1.5) * common + 0.5 * rng.normal(size=(len(opposed), num_parameters))
    return (matrix * rng.lognormal(sigma=1.0, size=(n, 1))).astype(np.float32)


@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("runs", [range(30), pytest.param(range(30, 100), marks=pytest.mark.slow)], ids=str)
def test_library_and_literal_twin_agree_on_ten_cohorts_of_each_run(preset, runs):
    removed = {"sybil": 0, "outlier": 0}
    for run in runs:
        rng = np.random.default_rng([run, 17])
        shield = MabRfl(preset, seed=run)
        twin = PaperTwin(seed=run) if preset == "paper" else ReferenceTwin()
        num_parameters = int(rng.integers(20, 200))
        common = rng.normal(size=num_parameters)
        for t in range(1, 40, 4):
            ids = sorted(rng.choice(40, size=rng.integers(2, 25), replace=False).tolist())
            matrix = planted_round(rng, common, ids, num_parameters)
            outcome = shield.aggregate(Updates(ids, matrix), round=t)
            step, accepted = twin.aggregate(ids, matrix, t)
            assert outcome.accepted == accepted, (run, t)
            np.testing.assert_allclose(outcome.step, step, atol=1e-5 * max(1.0, np.linalg.norm(step)))
            for reason in removed:
                removed[reason] += len(outcome.rejected(reason))
        assert shield.reputation == {k: (twin.B[k], twin.M[k]) for k in sorted(twin.B)}
    assert min(removed.values()) > 3 * len(runs), "the cohorts must exercise both screens"


def test_in_the_one_file_example_the_liars_fall_and_no_honest_client_does():
    printed = subprocess.run([sys.executable, str(ONE_FILE)], capture_output=True, text=True, check=True).stdout
    rounds = re.findall(r"(\d+) of them liars; rejected: (\d+) liars, (\d+) honest", printed)
    liars, caught, honest = np.array(rounds, dtype=int).sum(axis=0)
    assert caught > 0.8 * liars
    assert honest == 0
    plain, shielded = re.findall(r"([\d.]+) %", printed.splitlines()[-1])
    assert float(shielded) > float(plain) + 10


def test_one_file_example_decides_as_the_library_does():
    spec = importlib.util.spec_from_file_location("one_file", ONE_FILE)
    one_file = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(one_file)
    library = MabRfl("paper", c_max=0.9, c_min=0.85, component_ties="lowest-id", seed=0)

    class Same(one_file.Shield):
        def draw(self, t):
            candidates = Candidates(tuple(range(self.num_clients)), self.B, self.M, t, seed=0)
            return beta_draws(candidates), candidates.uniforms("inclusion")

    def watch(t, chosen, g, *result):
        step, good, shield = result
        assert library.select(range(one_file.K), round=t) == chosen.tolist()
        outcome = library.aggregate(Updates(chosen.tolist(), g), round=t)
        assert outcome.accepted == good.tolist()
        np.testing.assert_allclose(outcome.step, step, atol=1e-5)
        assert [library.reputation[k] for k in range(one_file.K)] == list(zip(shield.B, shield.M, strict=True))
        for reason in rejected:
            rejected[reason] += len(outcome.rejected(reason))

    rejected = {"sybil": 0, "outlier": 0}
    accuracy = one_file.simulate("mab-rfl", watch, Same(one_file.K))
    assert len(accuracy) == one_file.ROUNDS
    assert min(rejected.values()) >= 10, "the run must exercise both screens"


def test_one_file_example_is_short_and_its_defense_needs_numpy_alone():
    lines = ONE_FILE.read_text().splitlines()
    assert len(lines) < 250
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert {line.split()[1].split(".")[0] for line in imports} == {"collections", "dataclasses", "numpy", "sklearn"}
    defense = "\n".join(lines).split("the federation")[0]
    assert "load_digits(" not in defense
