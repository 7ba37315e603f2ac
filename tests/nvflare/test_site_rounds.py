"""From NVFlare's tables of arrays to a defense and back, without NVFlare."""

from __future__ import annotations

import numpy as np
import pytest

from mabrfl import Defense, FedAvg, MabRfl, Median
from mabrfl.errors import ConfigError, StateError
from mabrfl.nvflare.model_arrays import MalformedModel, ModelArrays
from mabrfl.nvflare.site_rounds import SiteRounds, numeric

MODEL = {
    "layer.weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
    "norm.running_mean": np.array([10.0, 20.0], np.float32),
    "norm.num_batches_tracked": np.array(7),
    "layer.bias": np.array([5.0, 6.0], np.float32),
}


def moved(by, statistics=0.0):
    """The model after a training that moved every weight by this much."""
    return {
        **{name: MODEL[name] + np.float32(by) for name in ("layer.weight", "layer.bias")},
        "norm.running_mean": MODEL["norm.running_mean"] + np.float32(statistics),
        "norm.num_batches_tracked": np.array(9),
    }


def changes(by, statistics=0.0):
    return {
        **{name: np.full_like(MODEL[name], by) for name in ("layer.weight", "layer.bias")},
        "norm.running_mean": np.full(2, statistics, np.float32),
    }


def begun(rule=None, **options):
    rounds = SiteRounds(Defense(rule or Median(), **options))
    rounds.begin(1, MODEL)
    return rounds


def test_weights_and_buffers_become_two_vectors_and_other_types_stay():
    arrays = ModelArrays.of(MODEL)
    assert arrays.weights.tolist() == [1, 2, 3, 4, 5, 6]
    assert arrays.statistics.tolist() == [10, 20]
    assert list(arrays.layout.shapes) == ["layer.weight", "layer.bias"]
    assert arrays.weights.dtype == np.float32


def test_a_model_and_its_change_give_the_same_update():
    arrays = ModelArrays.of(MODEL)
    for ours, theirs in zip(
        arrays.update(moved(0.5, 2), full=True), arrays.update(changes(0.5, 2), full=False), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_a_step_has_the_models_names_shapes_and_types():
    arrays = ModelArrays.of({**MODEL, "layer.bias": MODEL["layer.bias"].astype(np.float16)})
    step = arrays.step(np.arange(6, dtype=np.float32), np.array([1, 2], np.float32))
    assert {name: (part.shape, part.dtype.name) for name, part in step.items()} == {
        "layer.weight": ((2, 2), "float32"),
        "layer.bias": ((2,), "float16"),
        "norm.running_mean": ((2,), "float32"),
    }
    assert step["layer.bias"].tolist() == [4, 5]
    assert arrays.step(np.full(6, 1e6, np.float32), np.zeros(2, np.float32)) is None  # too large for float16


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({**changes(1), "layer.bias": np.array([np.nan, 0], np.float32)}, "not-finite"),
        ({**changes(1), "layer.bias": np.array([1e60, 0])}, "not-finite"),
        ({**changes(1), "layer.bias": np.zeros(3, np.float32)}, "shape"),
        ({**changes(1), "layer.bias": np.zeros(2, np.int64)}, "dtype"),
        ({**changes(1), "layer.bias": np.array([None, None])}, "dtype"),
        ({**changes(1), "other": np.zeros(2)}, "keys"),
        ({"layer.weight": np.zeros((2, 2), np.float32)}, "keys"),
        ({}, "keys"),
        ([1, 2], "records"),
    ],
    ids=["nan", "too large", "shape", "whole numbers", "objects", "unknown", "missing", "empty", "no table"],
)
def test_a_reply_that_does_not_fit_is_quarantined_and_says_why(params, reason):
    with pytest.raises(MalformedModel) as malformed:
        ModelArrays.of(MODEL).update(params, full=False)
    assert malformed.value.reason == reason


@pytest.mark.parametrize("model", [{"count": np.array(3)}, {"weight": np.array([np.inf])}])
def test_a_global_model_that_cannot_be_trained_is_an_error(model):
    with pytest.raises(ConfigError, match="the global model"):
        ModelArrays.of(model)


def test_a_round_takes_the_median_and_a_bad_site_has_no_part_in_it():
    rounds = begun()
    for site, by in (("a", 1), ("b", 2), ("c", 9)):
        assert rounds.take(site, moved(by, by), full=True, metrics={"accuracy": by, "name": "x"}) == ""
    bad = moved(1)
    bad["layer.weight"][0, 0] = np.nan
    assert "NaN" in rounds.take("d", bad, full=True)
    done = rounds.finish()
    assert done.step["layer.weight"].tolist() == [[2, 2], [2, 2]]
    assert done.step["norm.running_mean"].tolist() == [2, 2]
    assert "norm.num_batches_tracked" not in done.step
    assert done.metrics == {"accuracy": 4}
    assert rounds.defense.reputation["d"] == (1, 2)
    rows = {row["client"]: row for row in done.rows() if row["kind"] == "reply"}
    assert [(rows[site]["verdict"], rows[site]["blamed"]) for site in "ad"] == [
        ("accepted", False),
        ("quarantined", True),
    ]
    assert rows["d"]["reason"] == "not-finite"
    assert done.figures()["replies-quarantined"] == 1


def test_a_site_that_raises_while_it_is_read_costs_only_itself():
    class Hostile:
        def __array__(self, *_, **__):
            raise RuntimeError("\x1b[31mboo")

    rounds = begun()
    rounds.take("a", moved(1), full=True)
    assert rounds.take("b", {**changes(1), "layer.bias": Hostile()}, full=False) == "RuntimeError: \\x1b[31mboo"
    assert rounds.finish().step["layer.bias"].tolist() == [1, 1]


def test_only_the_first_reply_of_a_site_counts():
    rounds = begun(FedAvg())
    rounds.take("a", moved(1), full=True)
    assert "already" in rounds.take("a", moved(100), full=True)
    assert rounds.finish().step["layer.bias"].tolist() == [1, 1]


def test_a_round_without_replies_leaves_the_model():
    done = begun().finish()
    assert all(not part.any() for part in done.step.values())
    assert (done.outcome, done.events) == (None, ("no-usable-updates",))


def test_a_reply_before_any_model_was_sent_is_an_error_that_says_what_to_do():
    with pytest.raises(StateError, match="component of the server's job"):
        SiteRounds(Defense(FedAvg())).take("a", moved(1), full=True)


def test_selected_sites_that_send_nothing_are_missing_and_not_blamed():
    rounds = SiteRounds(Defense(FedAvg()))
    assert sorted(rounds.select(["a", "b"], 1)) == ["a", "b"]
    rounds.begin(1, MODEL)
    rounds.take("a", moved(1), full=True)
    [row] = [row for row in rounds.finish().rows() if row.get("client") == "b"]
    assert (row["verdict"], row["blamed"], row["reputation_after"]) == ("missing", False, (1, 1))


def test_sites_that_flip_their_updates_lose_their_reputation():
    rounds, random = SiteRounds(MabRfl(seed=0)), np.random.default_rng(0)
    sites = [f"site-{k}" for k in range(8)]
    for number in range(1, 6):
        chosen = rounds.select(sites, number)
        rounds.begin(number, {"weight": np.zeros(40)})
        for site in chosen:
            update = 1 + 0.5 * random.normal(size=40)
            rounds.take(site, {"weight": -update if site in sites[:2] else update}, full=False)
        assert rounds.finish().step["weight"].mean() > 0
    trust = {site: good / (good + bad) for site, (good, bad) in rounds.defense.reputation.items()}
    assert max(trust[site] for site in sites[:2]) < min(trust[site] for site in sites[2:])


def test_metrics_that_are_no_finite_numbers_are_left_out():
    assert numeric({"a": 1, "b": np.float32(0.5), "c": float("nan"), "d": "1", "e": None}) == {"a": 1, "b": 0.5}
    assert numeric(None) == {}
