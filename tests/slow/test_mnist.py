"""The paper's setting on MNIST, 25 rounds: what the command line promises, measured. About 20 minutes on 2 cores."""

import json
import subprocess
import sys

import pytest

from mabrfl.simulation.data import check

pytestmark = pytest.mark.slow

RUNS = {
    "fedavg, no attack": (["--defense", "fedavg"], 96.0),
    "paper, no attack": (["--preset", "paper"], 95.5),
    "paper, lie": (["--preset", "paper", "--attack", "lie", "--attackers", "0.3"], 95.5),
    "paper, label flip": (["--preset", "paper", "--attack", "label-flip", "--attackers", "0.3"], 95.5),
    "paper, agrt": (["--preset", "paper", "--attack", "agrt", "--attackers", "0.3"], 95.5),
    # The released code's thresholds are for CIFAR-10 and do not fit this model; that it runs is all that is asked.
    "reference, no attack": (["--preset", "reference"], 0.0),
    "reference, lie": (["--preset", "reference", "--attack", "lie", "--attackers", "0.3"], 0.0),
    "reference, label flip": (["--preset", "reference", "--attack", "label-flip", "--attackers", "0.3"], 0.0),
    "reference, agrt": (["--preset", "reference", "--attack", "agrt", "--attackers", "0.3"], 0.0),
}


@pytest.mark.parametrize("name", RUNS)
def test_25_rounds_on_mnist_reach(name, tmp_path):
    if not check("mnist").usable:
        pytest.skip("mnist is not on this machine: set MABRFL_DATA to a folder that has it")
    arguments, target = RUNS[name]
    command = ["run", "--dataset", "mnist", "--model", "mnist-cnn", "--rounds", "25", "--out", "run", "--quiet"]
    subprocess.run([sys.executable, "-m", "mabrfl", *command, *arguments], cwd=tmp_path, check=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 25
    assert summary["final_accuracy"] >= target
