"""Clients trained together: as in the loop up to rounding, and with bytes that depend on nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mabrfl.config import RunConfig, resolve
from mabrfl.errors import ConfigError, MabRflError
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.data.partition import dirichlet
from mabrfl.simulation.simulator import build_simulation
from mabrfl.simulation.training import MODELS, Engine, Shard, TrainingOptions, initialise, stacking
from mabrfl.simulation.training.local import batches
from mabrfl.simulation.training.stacked import LocalData, _Batches, width_of

STACKED = TrainingOptions(epochs=2, batch_size=16, learning_rate=0.01, engine="stacked")
SIZES = (17, 40, 3, 25, 33, 16, 1, 70)


def make_dataset(shape: tuple[int, ...] = (1, 6, 5), train: int = 250) -> Dataset:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (train + 20, *shape), dtype=np.uint8)
    labels = rng.integers(0, 4, train + 20)
    return Dataset("toy", inputs[:train], labels[:train], inputs[train:], labels[train:], 4)


def make_shards(sizes: tuple[int, ...] = SIZES) -> list[Shard]:
    return [Shard(np.arange(sum(sizes[:k]), sum(sizes[: k + 1]))) for k in range(len(sizes))]


def mlp() -> nn.Module:
    return initialise(MODELS["mlp"]((1, 6, 5), 4), seed=1)


def convolution() -> nn.Module:
    layers = nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)
    return initialise(nn.Sequential(*layers), seed=1)


class Residual(nn.Module):
    """Not a chain: with a shared layer, a frozen parameter, a layer without bias and a constant buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(30, 16, bias=False), nn.Linear(16, 16), nn.Linear(16, 4)
        self.again = self.middle
        self.frozen = nn.Parameter(torch.full((16,), 0.5), requires_grad=False)
        self.register_buffer("shift", torch.full((16,), 0.25))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs.flatten(1))) * self.frozen + self.shift
        outputs: torch.Tensor = self.last(hidden + self.again(torch.relu(self.middle(hidden))))
        return outputs


def residual() -> nn.Module:
    return initialise(Residual(), seed=1)


def trained(model: Any, options: TrainingOptions, *, rounds: int = 2, shards: list[Shard] | None = None) -> Any:
    """Train everybody for some rounds from the mean of the last one; return all updates, and the optimizer states."""
    found = []
    with Engine(model, make_dataset(), shards or make_shards(), options, seed=9) as engine:
        weights = engine.initial_weights
        for number in range(1, rounds + 1):
            updates = engine.train(range(len(SIZES)), weights, round=number).updates.copy()
            found.append(updates)
            weights = weights + updates.mean(axis=0)
        return np.stack(found), engine.state_dict()


def close(found: Any, expected: Any, tolerance: float = 1e-3) -> bool:
    return bool(np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected))


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (mlp, {}),
        (mlp, {"optimizer_state": "kept"}),
        (mlp, {"weight_decay": 0.1, "epochs": 1}),
        (mlp, {"optimizer": "sgd", "batch_size": 10}),
        (mlp, {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1}),
        (mlp, {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": "kept", "epochs": 3}),
        (mlp, {"batch_size": 1000}),
        (convolution, {"optimizer_state": "kept"}),
        (residual, {"optimizer_state": "kept"}),
        (residual, {"optimizer": "sgd"}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_stack_agrees_with_the_loop_up_to_rounding(model: Any, change: dict[str, Any]) -> None:
    options = replace(STACKED, **change)
    found, state = trained(model, options)
    expected, loops = trained(model, replace(options, engine="loop"))
    assert close(found, expected)
    assert not np.array_equal(found, expected) or not found.any()
    assert state.keys() == loops.keys()
    if state:
        assert np.array_equal(state["steps"], loops["steps"])
        assert close(state["moments"], loops["moments"])


def test_a_stack_agrees_with_the_loop_on_other_partitions_and_on_poisoned_data() -> None:
    dataset = make_dataset()
    parts = dirichlet(
        dataset.train_labels, num_classes=4, num_clients=6, concentration=0.5, sizes=(1, 80), draw="unique", seed=3
    )
    flipped = [3 - dataset.train_labels[part] for part in parts]
    darker = dataset.train_inputs[parts[1]].astype(np.float32) / 500  # not bytes, as the others'
    shards = [Shard(part) for part in parts]
    shards[1:3] = [Shard(parts[1], darker), Shard(parts[2], None, flipped[2], 0.3)]
    rows = {}
    for name in ("stacked", "loop"):
        with Engine(mlp, dataset, shards, replace(STACKED, engine=name), seed=4) as engine:
            clean = engine.train(range(6), engine.initial_weights, round=1).updates.copy()
            rows[name] = engine.train(range(6), engine.initial_weights, round=1, poisoned={1, 2}).updates.copy()
        changed = [not np.array_equal(before, after) for before, after in zip(clean, rows[name], strict=True)]
        assert changed == [False, True, True, False, False, False]
    assert close(rows["stacked"], rows["loop"])


@pytest.mark.parametrize("model", [mlp, convolution, residual], ids=lambda model: model.__name__)
def test_a_client_in_a_stack_has_the_same_bytes_whoever_else_trains(model: Any) -> None:
    rng = np.random.default_rng(1)
    with Engine(model, make_dataset(), make_shards(), replace(STACKED, optimizer_state="kept")) as engine:
        start = engine.state_dict()
        everybody = engine.train(range(len(SIZES)), engine.initial_weights, round=1).updates.copy()
        states = engine.state_dict()
        for count in (1, 1, 2, 3, 5, 7):
            engine.load_state_dict(start)
            some = rng.permutation(len(SIZES))[:count].tolist()
            assert np.array_equal(engine.train(some, engine.initial_weights, round=1).updates, everybody[some])
            kept = engine.state_dict()
            assert np.array_equal(kept["moments"], states["moments"][kept["clients"]])


def test_any_number_of_workers_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "_LEAST", 2)
    found = []
    for workers in (1, 2, 3):
        with Engine(mlp, make_dataset(), make_shards(), STACKED, workers=workers) as engine:
            found.append(engine.train([5, 1, 7, 0, 3, 4], engine.initial_weights, round=2).updates.copy())
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_a_model_whose_bytes_depend_on_the_stack_gets_stacks_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = make_shards()
    monkeypatch.setattr(stacking.torch, "equal", lambda first, second: True)
    with Engine(mlp, make_dataset(), shards, STACKED) as engine:
        together = engine.train(range(len(SIZES)), engine.initial_weights, round=1).updates.copy()
        assert [len(task) for task in engine._tasks(range(len(SIZES)))] == [len(SIZES)]
    monkeypatch.setattr(stacking.torch, "equal", lambda first, second: False)
    with Engine(mlp, make_dataset(), shards, STACKED) as engine:
        assert [len(task) for task in engine._tasks(range(len(SIZES)))] == [1] * len(SIZES)
        alone = engine.train(range(len(SIZES)), engine.initial_weights, round=1).updates
        assert close(alone, together)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)), "Batch norm"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.Dropout(), nn.Linear(8, 4)), "not those that it has"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Softmax(dim=0), nn.Linear(30, 4)), "not those that it has alone"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(30, 4)).double(), "float32"),
    ],
    ids=["batch norm", "dropout", "across examples", "double"],
)
def test_a_model_that_cannot_be_stacked_is_refused_and_the_loop_named(model: Any, message: str) -> None:
    if message == "float32":
        with pytest.raises(ConfigError, match=r"float32.*use engine 'loop'"):
            stacking.largest_stack(model(), torch.rand(1, 6, 5), 4, {16})
        return
    with pytest.raises(ConfigError, match=f"{message}.*use engine 'loop'"):
        Engine(model, make_dataset(), make_shards(), STACKED)


def test_the_batches_of_a_stack_are_those_of_the_loop() -> None:
    for size, batch_size in ((1, 16), (16, 16), (33, 16), (50, 7), (20, 1000)):
        options, width = TrainingOptions(epochs=3, batch_size=batch_size), width_of(size, batch_size)
        data = LocalData(np.arange(size, dtype=np.float32)[:, None], np.arange(size), np.arange(size))
        stacked = _Batches([data], options, [np.random.default_rng(5)], width)
        expected = list(batches(size, options, np.random.default_rng(5)))
        assert stacked.num_steps.tolist() == [len(expected)]
        for step, positions in enumerate(expected):
            batch = stacked.of(step, 1, torch.device("cpu"))
            used = batch.shares[0] > 0
            assert batch.labels[0][used].tolist() == batch.inputs[0, :, 0][used].tolist() == positions.tolist()
            assert batch.shares[0][used].tolist() == pytest.approx([1 / len(positions)] * len(positions))


def test_a_client_that_diverges_does_not_touch_the_others_in_its_stack() -> None:
    dataset = make_dataset()
    huge = dataset.train_inputs.astype(np.float32) / 255
    huge[17:57] *= 3e38
    wild = Dataset("toy", huge, dataset.train_labels, huge[:20], dataset.train_labels[:20], 4)
    with Engine(mlp, wild, make_shards(), replace(STACKED, optimizer="sgd")) as engine:
        everybody = engine.train(range(len(SIZES)), engine.initial_weights, round=1).updates.copy()
        others = [client for client in range(len(SIZES)) if client != 1]
        assert not np.isfinite(everybody[1]).all()
        assert np.array_equal(engine.train(others, engine.initial_weights, round=1).updates, everybody[others])


def test_the_error_of_a_stack_names_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **settings: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("mabrfl.simulation.training.trainer.train_stack", broken)
    with (
        Engine(mlp, make_dataset(), make_shards(), STACKED) as engine,
        pytest.raises(MabRflError, match="training of client 1 and 1 more in round 3 failed: RuntimeError: out of"),
    ):
        engine.train([4, 1], engine.initial_weights, round=3)


def test_auto_is_the_stack_for_the_small_network_alone_and_an_explicit_engine_stays() -> None:
    def engine(**settings: Any) -> str:
        return resolve(RunConfig(**settings)).training.engine

    assert engine() == engine(dataset="mnist", model="mlp") == "stacked"
    assert engine(training={"engine": "loop"}) == "loop"
    assert engine(dataset="mnist") == engine(dataset="cifar10") == "loop"
    assert engine(dataset="mnist", training={"engine": "stacked"}) == "stacked"
    assert engine(training={"precision": "bf16"}) == "loop"


def test_runs_of_both_engines_learn_the_same() -> None:
    accuracies = {}
    for engine in ("loop", "stacked"):
        config = RunConfig(rounds=4, workers=1, attack="label-flip", attackers=0.3, training={"engine": engine})
        with build_simulation(config) as simulation:
            accuracies[engine] = [record.accuracy for record in simulation.run()]
    assert np.allclose(accuracies["loop"], accuracies["stacked"], atol=1.0)
    assert accuracies["stacked"][-1] > 70
