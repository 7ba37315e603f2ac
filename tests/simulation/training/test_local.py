import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from mabrfl.errors import ConfigError
from mabrfl.rng import digest, generator
from mabrfl.simulation.training import MODELS, TrainingOptions, flatten, initialise, train_client, trainable
from mabrfl.simulation.training.local import batches, make_optimizer, to_tensor


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def literal_training(model, inputs, labels, make_optimizer, *, epochs, batch_size, key):
    """What any tutorial would write."""
    optimizer = make_optimizer(model.parameters())
    rng = generator(*key[:1], "train", *key[1:])
    torch.manual_seed(digest(*key[:1], "dropout", *key[1:]))
    inputs = torch.from_numpy(inputs).float() / 255
    model.train()
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(inputs)))
        for start in range(0, len(inputs), batch_size):
            chosen = order[start : start + batch_size]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), torch.from_numpy(labels)[chosen]).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("options", "make_optimizer"),
    [
        (TrainingOptions(epochs=2, batch_size=8), lambda p: torch.optim.Adam(p, 1e-3)),
        (
            TrainingOptions(epochs=2, batch_size=8, learning_rate=0.01, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
        ),
        (
            TrainingOptions(epochs=2, batch_size=8, optimizer="sgd", learning_rate=0.1, momentum=0.9),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        ),
    ],
)
def test_local_training_is_the_literal_loop(options, make_optimizer):
    rng = np.random.default_rng(0)
    inputs, labels = rng.integers(0, 256, (20, 1, 12, 12), dtype=np.uint8), rng.integers(0, 10, 20)

    def new_model():
        return initialise(MODELS["vgg-tiny"]((1, 12, 12), 10), seed=1)  # it has dropout

    start, ours, literal = flatten(trainable(new_model())), new_model(), new_model()
    train_client(ours, inputs, labels, options, seed=7, round=3, client=5)
    literal_training(literal, inputs, labels, make_optimizer, epochs=2, batch_size=8, key=(7, 3, 5))
    moved = flatten(trainable(literal)) - start
    assert np.abs(moved).max() > 1e-3
    np.testing.assert_allclose(flatten(trainable(ours)) - start, moved, atol=1e-5)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_the_optimizer_takes_the_steps_of_pytorchs_own_to_the_bit(name):
    momentum = {"momentum": 0.9} if name == "sgd" else {}
    options = TrainingOptions(optimizer=name, learning_rate=0.05, weight_decay=0.1, **momentum)
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name]
    models = [initialise(MODELS["mlp"]((1, 8, 8), 10), seed=1) for _ in range(2)]
    own = kind(trainable(models[1]), lr=0.05, weight_decay=0.1, fused=True, **momentum)
    for model, optimizer in zip(models, (make_optimizer(models[0], options), own), strict=True):
        for step in range(5):
            optimizer.zero_grad()
            model(torch.full((3, 1, 8, 8), 0.1 * step)).square().sum().backward()
            optimizer.step()
    assert np.array_equal(*(flatten(trainable(model)) for model in models))


def test_training_does_not_import_pytorchs_compiler():
    script = (
        "import sys; from mabrfl.runs import simulate; from mabrfl.config import RunConfig; "
        "simulate(RunConfig(rounds=1, workers=1)); print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("change", [{"seed": 1}, {"round": 2}, {"client": 1}])
def test_seed_round_and_client_each_name_another_stream(change):
    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((20, 4)).astype(np.float32), rng.integers(0, 3, 20)

    def result(**key):
        model = initialise(MODELS["mlp"]((4,), 3))
        train_client(model, inputs, labels, TrainingOptions(batch_size=4), **key)
        return flatten(trainable(model))

    key = {"seed": 0, "round": 1, "client": 0}
    assert np.array_equal(result(**key), result(**key))
    assert not np.array_equal(result(**key), result(**{**key, **change}))


def test_training_on_positions_is_training_on_their_rows():
    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((20, 4)).astype(np.float32), rng.integers(0, 3, 20)
    positions = np.array([3, 17, 4, 9, 9])

    def result(inputs, labels, examples):
        model = initialise(MODELS["mlp"]((4,), 3))
        train_client(model, inputs, labels, TrainingOptions(), seed=0, round=1, client=0, examples=examples)
        return flatten(trainable(model))

    assert np.array_equal(result(inputs, labels, positions), result(inputs[positions], labels[positions], None))


class Watching(nn.Module):
    """Notes the types that a layer computes with."""

    def __init__(self):
        super().__init__()
        self.layer, self.seen = nn.Linear(4, 3), set()

    def forward(self, rows):
        outputs = self.layer(rows)
        self.seen.add(outputs.dtype)
        return outputs


@pytest.mark.parametrize(("precision", "inside"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_bf16_is_the_arithmetic_inside_and_the_weights_stay_float32(precision, inside):
    model, rng = Watching(), np.random.default_rng(0)
    options = TrainingOptions(epochs=1, precision=precision, learning_rate=1e-3)
    optimizer = make_optimizer(model, options)
    inputs, labels = rng.standard_normal((20, 4)).astype(np.float32), rng.integers(0, 3, 20)
    train_client(model, inputs, labels, options, seed=0, round=1, client=0, optimizer=optimizer)
    assert model.seen == {inside}
    tensors = [*model.parameters(), *(parameter.grad for parameter in model.parameters())]
    moments = [value for state in optimizer.state.values() for value in state.values()]
    assert {tensor.dtype for tensor in (*tensors, *moments)} == {torch.float32}
    # A bf16 number has 8 bits of mantissa: weights stored as such would be their own rounding.
    assert not torch.equal(model.layer.weight, model.layer.weight.bfloat16().float())


def test_an_update_in_bf16_is_close_to_the_float32_one_and_not_the_same():
    rng = np.random.default_rng(0)
    inputs, labels = rng.integers(0, 256, (40, 3, 9, 9), dtype=np.uint8), rng.integers(0, 10, 40)
    updates = {}
    for precision in ("float32", "bf16"):
        model = initialise(MODELS["vgg-tiny"]((3, 9, 9), 10), seed=1)
        start = flatten(trainable(model))
        options = TrainingOptions(epochs=1, optimizer="sgd", learning_rate=0.1, precision=precision)
        train_client(model, inputs, labels, options, seed=0, round=1, client=0)
        updates[precision] = flatten(trainable(model)) - start
    error = np.linalg.norm(updates["bf16"] - updates["float32"]) / np.linalg.norm(updates["float32"])
    assert 0 < error < 0.3  # rectifiers and pools near a tie decide otherwise


def test_training_leaves_the_global_random_state_alone():
    model = MODELS["vgg-tiny"]((1, 8, 8), 2)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    data = np.zeros((2, 1, 8, 8), dtype=np.uint8)
    train_client(model, data, np.array([0, 1]), TrainingOptions(epochs=1), seed=0, round=1, client=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_every_epoch_shows_every_example_once_in_a_new_order():
    seen = list(batches(10, TrainingOptions(epochs=2, batch_size=4), generator(0, "train", 1, 0)))
    assert [len(batch) for batch in seen] == [4, 4, 2, 4, 4, 2]
    first, second = np.concatenate(seen[:3]), np.concatenate(seen[3:])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(("count", "sizes"), [(9, [4, 5]), (8, [4, 4]), (10, [4, 4, 2]), (1, [1]), (5, [5])])
def test_a_last_batch_of_one_can_be_joined_to_the_one_before(count, sizes):
    options = TrainingOptions(epochs=1, batch_size=4)
    seen = list(batches(count, options, generator(0, "train", 1, 0), join_single=True))
    assert [len(batch) for batch in seen] == sizes


def test_batch_normalisation_survives_a_last_batch_of_one():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    inputs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    train_client(model, inputs, np.array([0, 1, 2, 0, 1]), TrainingOptions(batch_size=4), seed=0, round=1, client=0)
    assert model[1].num_batches_tracked == 3


def test_bytes_are_scaled_and_floats_are_not():
    assert to_tensor(np.array([[0, 51, 255]], dtype=np.uint8)).tolist() == [[0.0, pytest.approx(0.2), 1.0]]
    assert to_tensor(np.array([[-3.0, 255.0]], dtype=np.float32)).tolist() == [[-3.0, 255.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer of at least 1; got 0"),
        ({"batch_size": 2.0}, "batch_size must be an integer of at least 1; got 2.0"),
        ({"epochs": True}, "epochs must be an integer of at least 1; got True"),
        ({"optimizer": "adamw"}, "unknown optimizer 'adamw'; did you mean 'adam'"),
        ({"optimizer_state": "keep"}, "unknown optimizer_state 'keep'; did you mean 'kept'"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0; got 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number above 0; got nan"),
        ({"learning_rate": "0.1"}, "learning_rate must be a finite number above 0; got '0.1'"),
        ({"momentum": 1.0, "optimizer": "sgd"}, r"momentum must be a number in \[0, 1\); got 1.0"),
        ({"momentum": 0.9}, "momentum belongs to optimizer 'sgd'; got momentum=0.9 with 'adam'"),
        ({"weight_decay": -1}, "weight_decay must be a finite number of at least 0; got -1"),
        ({"precision": "bf-16"}, "unknown precision 'bf-16'; did you mean 'bf16'"),
        ({"precision": "bf16", "engine": "stacked"}, "precision 'bf16' is for engine 'loop'; got engine 'stacked'"),
    ],
)
def test_options_out_of_range_are_refused_by_name_and_value(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainingOptions(**settings)
