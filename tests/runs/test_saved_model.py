"""``run --save-model``: the final model as a file that loads into the user's own module."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mabrfl.catalog import build_model
from mabrfl.config import RunConfig
from mabrfl.errors import StateError
from mabrfl.runs import run
from mabrfl.simulation.training.flat import flatten, trainable

MODEL = '''
from torch import nn


class Net(nn.Sequential):
    """Has a frozen layer, running statistics, and a counter beside its weights."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))
        self[1].bias.requires_grad = False
'''


def test_the_saved_model_loads_into_the_module_and_has_the_weights_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "saved_net.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules["mabrfl.recording.manifest"], "source_commit", lambda package: None)
    config = RunConfig(model="saved_net:Net", clients=4, rounds=1, workers=1, partition={"sizes": (8, 16)})
    result = run(config, tmp_path / "r", save_model=True)
    module = build_model("saved_net:Net", (1, 8, 8), 10)
    before = flatten(trainable(module))
    module.load_state_dict(load_file(tmp_path / "r" / "model.safetensors"))
    weights = flatten(trainable(module))
    assert not np.array_equal(weights, before)
    assert torch.isfinite(module(torch.zeros(2, 1, 8, 8))).all()
    again = run(config, tmp_path / "r", save_model=True)
    assert again.summary["weights_sha256"] == result.summary["weights_sha256"]
    (tmp_path / "r" / "model.safetensors").unlink()
    with pytest.raises(StateError, match="its model was not saved; --force runs it again"):
        run(config, tmp_path / "r", save_model=True)
