import numpy as np
import pytest
import torch
from torch import nn

from mabrfl.global_model import merge_buffers
from mabrfl.layout import Layout
from mabrfl.simulation.training import flatten, float_buffers, trainable, unflatten
from mabrfl.simulation.training.flat import layout_of


def test_parameters_come_in_order_of_their_names_and_row_major():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.arange(6.0).view(2, 3))
        model.bias.copy_(torch.tensor([10.0, 20.0]))
    assert flatten(trainable(model)).tolist() == [0, 1, 2, 3, 4, 5, 10, 20]


def test_the_layout_names_what_the_vector_is_made_of():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 3))
    model[0].bias.requires_grad_(False)
    layout = layout_of(model)
    assert layout == Layout(
        {"0.weight": (2, 1, 3, 3), "1.weight": (2,), "1.bias": (2,), "2.weight": (3, 4), "2.bias": (3,)}
    )
    vector = flatten(trainable(model))
    assert layout.size == len(vector)
    assert vector[layout.slices["2.bias"]].tolist() == model[2].bias.tolist()


def test_the_order_in_memory_does_not_change_the_vector():
    model = nn.Conv2d(3, 4, 2)
    plain = flatten(trainable(model))
    model.to(memory_format=torch.channels_last)
    assert not model.weight.is_contiguous()
    assert np.array_equal(flatten(trainable(model)), plain)
    unflatten(plain + 1, trainable(model))
    assert np.array_equal(flatten(trainable(model)), plain + 1)
    assert not model.weight.is_contiguous()


def test_frozen_parameters_are_left_out():
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    assert [tensor.shape for tensor in trainable(model)] == [(2,)]


def test_float_buffers_travel_and_integer_buffers_do_not():
    model = nn.BatchNorm1d(2)
    assert flatten(float_buffers(model)).tolist() == [0, 0, 1, 1]
    unflatten(np.array([5, 6, 7, 8], dtype=np.float32), float_buffers(model))
    assert model.running_mean.tolist() == [5, 6]
    assert model.running_var.tolist() == [7, 8]
    assert model.num_batches_tracked == 0


def test_read_only_and_strided_vectors_can_be_loaded():
    model = nn.Linear(1, 1)
    vector = np.arange(4, dtype=np.float32)[::2]
    vector.flags.writeable = False
    unflatten(vector, trainable(model))
    assert flatten(trainable(model)).tolist() == [0, 2]


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"length 2; got shape \(3,\)"):
        unflatten(np.zeros(3, dtype=np.float32), trainable(nn.Linear(1, 1)))


def test_merged_buffers_are_the_median_of_the_finite_rows():
    rows = np.array([[1, 10], [2, 40], [100, 20], [np.inf, 0], [0, np.nan]], dtype=np.float32)
    merged = merge_buffers(rows)
    assert merged.tolist() == [2, 20]
    assert merged.dtype == np.float32


def test_buffers_stay_as_they_were_if_no_row_is_finite():
    rows = np.full((2, 2), np.nan, dtype=np.float32)
    current = np.array([3, 4], dtype=np.float32)
    assert merge_buffers(rows, current).tolist() == [3, 4]
    assert merge_buffers(rows[:0], current).tolist() == [3, 4]
    with pytest.raises(ValueError, match="no finite row among 2"):
        merge_buffers(rows)
