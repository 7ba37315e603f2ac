from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mabrfl.errors import ConfigError, MabRflError, StateError
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.training import (
    MODELS,
    Engine,
    Shard,
    TrainingOptions,
    engine_checks,
    flatten,
    initialise,
    train_client,
    trainable,
)
from mabrfl.simulation.training import engine as engine_module
from mabrfl.simulation.training.shared_memory import SharedArray

OPTIONS = TrainingOptions(epochs=2, batch_size=8, learning_rate=0.01)


def make_dataset(shape=(6,), classes=4, train=120, test=600, dtype=np.uint8):
    rng = np.random.default_rng(0)

    def inputs(count):
        return rng.integers(0, 256, (count, *shape)).astype(dtype)

    return Dataset(
        "toy", inputs(train), rng.integers(0, classes, train), inputs(test), rng.integers(0, classes, test), classes
    )


def make_shards(*sizes):
    ends = np.cumsum(sizes)
    return [Shard(np.arange(end - size, end)) for end, size in zip(ends, sizes, strict=True)]


def mlp():
    return initialise(MODELS["mlp"]((6,), 4), seed=1)


def small_vgg():
    return initialise(MODELS["vgg-tiny"]((3, 9, 9), 4), seed=1)


def with_batch_norm():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None), nn.ReLU(), nn.Linear(5, 4))


def rounds(engine, count=2):
    """Train everybody for some rounds, averaging; return all there is to compare."""
    weights, buffers, seen = engine.initial_weights, engine.initial_buffers, []
    for number in range(1, count + 1):
        trained = engine.train([3, 0, 2, 1], weights, buffers, round=number)
        seen += [trained.updates.copy()] + ([] if trained.buffers is None else [trained.buffers.copy()])
        weights = weights + trained.updates.mean(axis=0)
        buffers = buffers if trained.buffers is None else np.median(trained.buffers, axis=0)
        result = engine.evaluate(weights, buffers)
        seen += [np.array([result.accuracy, result.loss]), result.per_class]
    return seen


CASES = {
    "mlp on bytes": (mlp, make_dataset(), OPTIONS),
    "mlp on floats": (mlp, make_dataset(dtype=np.float32), OPTIONS),
    "convolutions and dropout": (small_vgg, make_dataset((3, 9, 9)), OPTIONS),
    "convolutions in bf16": (small_vgg, make_dataset((3, 9, 9)), replace(OPTIONS, precision="bf16")),
    "batch norm": (with_batch_norm, make_dataset(), OPTIONS),
    "kept adam": (mlp, make_dataset(), TrainingOptions(batch_size=8, optimizer_state="kept")),
    "kept sgd": (
        mlp,
        make_dataset(),
        TrainingOptions(batch_size=8, optimizer="sgd", momentum=0.9, optimizer_state="kept"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_two_workers_give_the_bits_of_one_and_a_repetition_too(case):
    model, dataset, options = CASES[case]
    shards = make_shards(17, 40, 3, 25)
    results = []
    for workers in (1, 2, 2) if case == "kept adam" else (1, 2):
        with Engine(model, dataset, shards, options, seed=9, workers=workers) as engine:
            results.append(rounds(engine))
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            assert expected.tobytes() == found.tobytes()


@pytest.mark.slow
def test_spawned_workers_give_the_same_bits():
    dataset, shards = make_dataset((3, 9, 9), test=300), make_shards(17, 40, 3, 25)
    with Engine(small_vgg, dataset, shards, OPTIONS) as alone:
        expected = rounds(alone, 1)
    with Engine(small_vgg, dataset, shards, OPTIONS, workers=2, start_method="spawn") as engine:
        found = rounds(engine, 1)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(expected, found, strict=True))


def test_a_row_is_what_local_training_alone_gives():
    dataset, shards = make_dataset(), make_shards(17, 40, 3, 25)
    with Engine(mlp, dataset, shards, OPTIONS, seed=9) as engine:
        updates = engine.train([2, 1], engine.initial_weights, round=4).updates
    for row, client in zip(updates, [2, 1], strict=True):
        model, indices = mlp(), shards[client].indices
        start = flatten(trainable(model))
        train_client(
            model, dataset.train_inputs[indices], dataset.train_labels[indices], OPTIONS, seed=9, round=4, client=client
        )
        assert np.array_equal(row, flatten(trainable(model)) - start)
    assert updates.dtype == np.float32


def test_a_client_does_not_depend_on_who_else_trains():
    dataset, shards = make_dataset(), make_shards(17, 40, 3, 25)
    with Engine(with_batch_norm, dataset, shards, OPTIONS) as engine:
        alone = engine.train([1], engine.initial_weights, round=1)
        row, buffers = alone.updates[0].copy(), alone.buffers[0].copy()
        crowd = engine.train([3, 0, 1, 2], engine.initial_weights, round=1)
        assert np.array_equal(crowd.updates[2], row)
        assert np.array_equal(crowd.buffers[2], buffers)
        assert engine.train([], engine.initial_weights, round=1).updates.shape == (0, engine.dimension)


def test_poisoned_data_is_used_only_when_asked_for():
    dataset = make_dataset()
    clean = make_shards(10, 10)
    flipped = 3 - dataset.train_labels[clean[1].indices]
    darkened = dataset.train_inputs[clean[1].indices] // 2
    shards = [clean[0], Shard(clean[1].indices, poisoned_inputs=darkened, poisoned_labels=flipped)]
    labels_only = [clean[0], Shard(clean[1].indices, poisoned_labels=flipped)]
    with Engine(mlp, dataset, clean, OPTIONS) as honest:
        expected = honest.train([0, 1], honest.initial_weights, round=1).updates.copy()
    with Engine(mlp, dataset, shards, OPTIONS) as engine:
        assert np.array_equal(engine.train([0, 1], engine.initial_weights, round=1).updates, expected)
        poisoned = engine.train([0, 1], engine.initial_weights, round=1, poisoned={1}).updates.copy()
        with pytest.raises(ConfigError, match="client 0 cannot train on poisoned data: it has none"):
            engine.train([0, 1], engine.initial_weights, round=1, poisoned=[0])
    with Engine(mlp, dataset, labels_only, OPTIONS) as engine:
        half = engine.train([0, 1], engine.initial_weights, round=1, poisoned=[1]).updates.copy()
    assert np.array_equal(poisoned[0], expected[0])
    model = mlp()
    train_client(model, darkened, flipped, OPTIONS, seed=0, round=1, client=1)
    assert np.array_equal(poisoned[1], flatten(trainable(model)) - flatten(trainable(mlp())))
    assert not np.array_equal(half[1], expected[1])
    assert not np.array_equal(half[1], poisoned[1])


def test_kept_adam_goes_on_where_the_client_stopped_and_reset_adam_does_not():
    dataset, shards = make_dataset(), make_shards(16, 16)
    kept = TrainingOptions(epochs=1, batch_size=8, optimizer_state="kept")

    def second_round(options, others_between):
        with Engine(mlp, dataset, shards, options) as engine:
            weights = engine.initial_weights
            engine.train([0], weights, round=1)
            if others_between:
                engine.train([1], weights, round=2)
            return engine.train([0], weights, round=3).updates.copy()

    model = mlp()
    start = flatten(trainable(model))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    for number in (1, 3):
        with torch.no_grad():
            for parameter, first in zip(model.parameters(), mlp().parameters(), strict=True):
                parameter.copy_(first)
        train_client(
            model, dataset.train_inputs[:16], dataset.train_labels[:16], kept,
            seed=0, round=number, client=0, optimizer=optimizer,
        )  # fmt: skip
    expected = flatten(trainable(model)) - start
    assert np.array_equal(second_round(kept, others_between=True)[0], expected)
    assert np.array_equal(second_round(kept, others_between=False)[0], expected)
    assert not np.array_equal(second_round(TrainingOptions(epochs=1, batch_size=8), others_between=False)[0], expected)


@pytest.mark.parametrize("case", ["kept adam", "kept sgd"])
def test_a_resumed_engine_goes_on_bit_for_bit(case):
    model, dataset, options = CASES[case]
    shards = make_shards(17, 40, 3)
    with Engine(model, dataset, shards, options) as engine:
        engine.train([2, 0], engine.initial_weights, round=1)
        state = engine.state_dict()
        expected = engine.train([0, 1, 2], engine.initial_weights, round=2).updates.copy()
    assert state["clients"].tolist() == [0, 2]
    with Engine(model, dataset, shards, options, workers=2) as resumed:
        resumed.train([1], resumed.initial_weights, round=7)
        resumed.load_state_dict(state)
        assert np.array_equal(resumed.train([0, 1, 2], resumed.initial_weights, round=2).updates, expected)


def test_a_state_that_does_not_fit_is_refused():
    dataset, shards = make_dataset(), make_shards(17, 40)
    kept = TrainingOptions(optimizer_state="kept")
    with Engine(mlp, dataset, shards, OPTIONS) as reset:
        assert reset.state_dict() == {}
        reset.load_state_dict({})
        with pytest.raises(StateError, match=r"optimizer_state='reset' .* keys \[\]; got \['clients'\]"):
            reset.load_state_dict({"clients": np.zeros(0, np.int64)})
    with Engine(mlp, dataset, shards, kept) as engine:
        engine.train([0], engine.initial_weights, round=1)
        good = engine.state_dict()
        with pytest.raises(StateError, match=r"'moments' must be a float32 array of shape \(1, 2, 708\); got float64"):
            engine.load_state_dict({**good, "moments": good["moments"].astype(np.float64)})
        with pytest.raises(StateError, match="distinct numbers from 0 to 1"):
            engine.load_state_dict({**good, "clients": np.array([2])})
        with pytest.raises(StateError, match=r"'steps' must be a int64 array of shape .* got list"):
            engine.load_state_dict({**good, "steps": [1]})


def test_buffers_travel_beside_the_update_and_start_from_what_is_given():
    dataset, shards = make_dataset(), make_shards(17, 40)
    momentum = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))
    with Engine(lambda: momentum, dataset, shards, OPTIONS) as engine:
        assert engine.dimension == 6 * 5 + 5 + 5 + 5 + 5 * 4 + 4
        assert engine.num_buffers == 10
        assert engine.initial_buffers.tolist() == [0] * 5 + [1] * 5
        first = engine.train([1], engine.initial_weights, round=1).buffers.copy()
        shifted = engine.train([1], engine.initial_weights, engine.initial_buffers + 1, round=1).buffers.copy()
        # 2 epochs of 5 batches, each keeping nine tenths of what was there before
        np.testing.assert_allclose(shifted - first, 0.9**10, atol=1e-5)
        plain = engine.evaluate(engine.initial_weights)
        assert plain.loss != engine.evaluate(engine.initial_weights, engine.initial_buffers + 1).loss
        assert plain.loss == engine.evaluate(engine.initial_weights, engine.initial_buffers).loss


def test_evaluation_counts_what_a_plain_loop_counts():
    dataset = make_dataset(test=601)
    with Engine(mlp, dataset, make_shards(17), OPTIONS) as engine:
        result = engine.evaluate(engine.initial_weights)
    outputs = mlp()(torch.from_numpy(dataset.test_inputs).float() / 255)
    right = (outputs.argmax(1).numpy() == dataset.test_labels).astype(float)
    assert result.accuracy == pytest.approx(100 * right.mean())
    labels = torch.from_numpy(dataset.test_labels)
    assert result.loss == pytest.approx(float(nn.functional.cross_entropy(outputs, labels).detach()), rel=1e-5)
    by_class = [100 * right[dataset.test_labels == label].mean() for label in range(4)]
    np.testing.assert_allclose(result.per_class, by_class)
    assert len(set(by_class)) > 1
    counts = np.zeros((4, 4), dtype=int)
    for label, predicted in zip(dataset.test_labels, outputs.argmax(1).numpy(), strict=True):
        counts[label, predicted] += 1
    assert result.confusion == tuple(map(tuple, counts.tolist()))


def test_a_confusion_matrix_is_left_out_where_there_are_many_classes(monkeypatch):
    monkeypatch.setattr(engine_module, "MOST_CLASSES", 3)
    with Engine(mlp, make_dataset(), make_shards(17), OPTIONS) as engine:
        assert engine.evaluate(engine.initial_weights).confusion is None


def test_a_model_with_more_outputs_than_classes_is_evaluated():
    def wide():
        model = nn.Sequential(nn.Flatten(), nn.Linear(make_dataset().test_inputs[0].size, 6))
        nn.init.zeros_(model[1].weight)
        with torch.no_grad():
            model[1].bias.copy_(torch.arange(6.0))  # always class 5, of which there are no examples
        return model

    with Engine(wide, make_dataset(), make_shards(17), OPTIONS) as engine:
        result = engine.evaluate(engine.initial_weights)
    assert (result.accuracy, sum(map(sum, result.confusion))) == (0.0, 0)


def test_a_class_without_test_examples_has_no_accuracy():
    data = make_dataset()
    keep = data.test_labels != 2
    dataset = Dataset("toy", data.train_inputs, data.train_labels, data.test_inputs[keep], data.test_labels[keep], 4)
    with Engine(mlp, dataset, make_shards(17), OPTIONS) as engine:
        per_class = engine.evaluate(engine.initial_weights).per_class
    assert np.isnan(per_class).tolist() == [False, False, True, False]


def test_a_diverged_client_is_a_row_that_is_not_finite():
    options = TrainingOptions(optimizer="sgd", learning_rate=1e30)
    with Engine(mlp, make_dataset(), make_shards(17, 40), options) as engine:
        updates = engine.train([0, 1], engine.initial_weights, round=1).updates
        assert not np.isfinite(updates).all(axis=1).any()
        evaluation = engine.evaluate(updates[0])
    assert np.isnan(evaluation.loss)


def test_any_module_from_a_closure_will_do_even_one_that_uses_view():
    hidden = 7

    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, hidden, 3)
            self.head = nn.Linear(hidden * 49, 4)

        def forward(self, images):
            features = self.conv(images).relu()
            return self.head(features.view(len(images), -1))

    with Engine(Viewing, make_dataset((3, 9, 9)), make_shards(17, 40), OPTIONS, workers=2) as engine:
        updates = engine.train([0, 1], engine.initial_weights, round=1).updates.copy()
        first = engine.initial_weights
    assert updates.any(axis=1).all()
    with Engine(Viewing, make_dataset((3, 9, 9)), make_shards(17, 40), OPTIONS) as engine:
        assert np.array_equal(engine.initial_weights, first)  # drawn from the engine's seed


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (small_vgg, True),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 9), nn.Unflatten(1, (2, 2)), nn.Flatten()), True),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(243, 4)), False),
    ],
)
def test_images_are_laid_out_channels_last_where_there_are_convolutions(model, expected):
    module = model()
    assert engine_checks.fit(module, make_dataset((3, 9, 9)), torch.device("cpu")) is expected
    assert module[-1 if not expected else 0].weight.is_contiguous() is not expected


def test_a_model_that_learns_its_shape_from_the_data_will_do():
    def lazy():
        return nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(4))

    results = []
    for workers in (1, 2):
        with Engine(lazy, make_dataset((3, 9, 9)), make_shards(17, 4), OPTIONS, workers=workers) as engine:
            assert engine.dimension == 3 * 4 * 9 + 4 + 4 * 49 * 4 + 4
            results.append(engine.train([0, 1], engine.initial_weights, round=1).updates.copy())
    assert np.array_equal(*results)


def test_the_callers_threads_and_random_state_stay_as_they_were():
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with Engine(lambda: nn.Linear(6, 4), make_dataset(), make_shards(17), OPTIONS) as engine:
            engine.train([0], engine.initial_weights, round=1)
            engine.evaluate(engine.initial_weights)
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1; got 0"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here: "),
        ({"device": "meta"}, "device 'meta' cannot be used here: "),
        ({"model": lambda: 3}, "must return a torch.nn.Module; got int"),
        ({"model": lambda: nn.Linear(5, 4)}, r"cannot take inputs of shape \(6,\): RuntimeError: "),
        ({"model": lambda: nn.Linear(6, 3)}, r"each of 4 classes, shape \(2, 4\) .* got shape \(2, 3\)"),
        ({"model": lambda: nn.Sequential(nn.Linear(6, 4), nn.Flatten(0))}, r"got shape \(8,\)"),
        ({"model": nn.Identity}, "the model has no trainable parameters"),
        ({"shards": []}, "at least one client; got no shards"),
        ({"shards": make_shards(4, 0)}, "client 1 has no training examples"),
        ({"shards": make_shards(4, 117)}, "client 1: indices must be from 0 to 119; got 4 to 120"),
        ({"shards": [Shard(np.array([0.5]))]}, "client 0: indices must be a flat array of integers; got float64"),
        (
            {"shards": [Shard(np.arange(3), poisoned_labels=np.array([0, 4, 1]))]},
            "client 0: poisoned labels must be from 0 to 3; got 0 to 4",
        ),
        (
            {"shards": [Shard(np.arange(3), poisoned_labels=np.array([0, 1]))]},
            r"client 0: poisoned labels must be 3 int64; got int64 \(2,\)",
        ),
        (
            {"shards": [Shard(np.arange(3), poisoned_inputs=np.zeros((3, 5)))]},
            r"client 0: poisoned inputs must have shape \(3, 6\); got \(3, 5\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(arguments, message):
    settings = {"model": mlp, "dataset": make_dataset(), "shards": make_shards(4), **arguments}
    with pytest.raises(ConfigError, match=message):
        Engine(**settings)


def test_calls_that_make_no_sense_are_refused():
    with Engine(mlp, make_dataset(), make_shards(4, 5), OPTIONS) as engine:
        weights = engine.initial_weights
        with pytest.raises(ConfigError, match="numbered 0 to 1; got 2"):
            engine.train([0, 2], weights, round=1)
        with pytest.raises(ConfigError, match=r"at most once a round; got \[1, 1\]"):
            engine.train([1, 1], weights, round=1)
        with pytest.raises(ConfigError, match=r"has 708 weights; got an array of shape \(707,\)"):
            engine.train([1], weights[1:], round=1)
        with pytest.raises(ConfigError, match=r"has 0 buffers; got an array of shape \(3,\)"):
            engine.evaluate(weights, np.zeros(3))
    engine.close()
    with pytest.raises(StateError, match="the engine is closed"):
        engine.train([1], weights, round=1)


def test_training_error_names_the_client_in_the_calling_process_too():
    class Moody(nn.Linear):
        def forward(self, rows):
            if self.training and len(rows) == 5:
                raise RuntimeError("not five")
            return super().forward(rows)

    with Engine(lambda: Moody(6, 4), make_dataset(), make_shards(4, 5), OPTIONS) as engine:
        with pytest.raises(MabRflError, match="training of client 1 in round 6 failed: RuntimeError: not five"):
            engine.train([0, 1], engine.initial_weights, round=6)
        assert engine.train([0], engine.initial_weights, round=6).updates.any()


def test_the_longest_clients_are_handed_out_first():
    dataset, shards = make_dataset(), make_shards(5, 30, 12)
    with Engine(mlp, dataset, shards, TrainingOptions(epochs=1)) as engine:
        engine.train([0, 1, 2], engine.initial_weights, round=1)
        assert engine._board.order.array[:3].tolist() == [1, 2, 0]


def test_a_federation_too_large_for_the_machine_is_told_before_any_memory_is_taken(monkeypatch):
    monkeypatch.setattr("mabrfl.simulation.training.engine_checks.machine_memory", lambda: 2 * 28 * 4 * 3)
    linear, kept = (lambda: nn.Linear(6, 4)), TrainingOptions(optimizer_state="kept")
    # 28 parameters, 4 bytes each; Adam remembers two more numbers of each.
    Engine(linear, make_dataset(), make_shards(1, 1), kept).close()
    with pytest.raises(ConfigError, match=r"3 clients with 28 parameters each need .* GiB of memory, and this machine"):
        Engine(linear, make_dataset(), make_shards(1, 1, 1), kept)
    Engine(linear, make_dataset(), make_shards(1, 1, 1), OPTIONS).close()


def test_memory_that_the_system_refuses_is_one_error():
    with pytest.raises(ConfigError, match=r"this machine does not give .* GiB of memory to one array"):
        SharedArray((2**62,), "int8")


def test_no_more_workers_are_started_than_can_have_something_to_do(monkeypatch):
    started = []
    pool = engine_module.Pool
    monkeypatch.setattr(
        engine_module, "Pool", lambda trainer, workers, method: started.append(workers) or pool(trainer, 2, method)
    )
    # 600 test examples are three slices.
    for shards, expected in ((make_shards(1, 1), 3), (make_shards(*[1] * 5), 5)):
        Engine(mlp, make_dataset(), shards, OPTIONS, workers=100).close()
        assert started.pop() == expected
