from __future__ import annotations

import numpy as np
import pytest

from helpers import random_rows
from mabrfl.attacks import LabelFlip
from mabrfl.errors import ConfigError
from mabrfl.testing import make_view

LABELS = np.array([0, 1, 2, 3, 4])


def poisoned(attack, labels=LABELS, num_classes=5):
    inputs = np.zeros((len(labels), 2))
    return attack.poison(inputs, labels, num_classes=num_classes, rng=np.random.default_rng(0))


def test_default_turns_each_label_round_and_leaves_the_middle_of_an_odd_number():
    assert poisoned(LabelFlip())[1].tolist() == [4, 3, 2, 1, 0]


def test_pair_moves_each_label_on_by_one():
    assert poisoned(LabelFlip(mapping="pair"))[1].tolist() == [1, 2, 3, 4, 0]


def test_targeted_changes_the_source_only():
    attack = LabelFlip(mapping="targeted", source=2, target=0)
    assert poisoned(attack)[1].tolist() == [0, 1, 0, 3, 4]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_type_of_the_labels_is_kept_and_the_given_ones_are_not_changed(dtype):
    labels = LABELS.astype(dtype)
    flips = [LabelFlip(), LabelFlip(mapping="pair"), LabelFlip(mapping="targeted", source=1, target=3)]
    for attack in flips:
        inputs, new = poisoned(attack, labels)
        assert new.dtype == dtype
        assert new.tolist() != labels.tolist()
        assert inputs.shape == (5, 2)
    assert labels.tolist() == LABELS.tolist()


def test_each_attacker_sends_its_own_training_result_and_no_other():
    own = random_rows(2, 4)
    attack = LabelFlip()
    assert attack.trains
    assert attack.poisons
    assert attack.poisoned_at(1)
    np.testing.assert_array_equal(attack(make_view(random_rows(3, 4, 1), own=own)), own)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mapping": "revers"}, "mapping has no variant 'revers'; did you mean 'reverse'"),
        ({"mapping": "targeted"}, "source must be a whole number >= 0; got None"),
        ({"mapping": "targeted", "source": 1, "target": -1}, "target must be a whole number >= 0; got -1"),
        ({"mapping": "targeted", "source": 1, "target": 1}, "source and target must differ; got 1"),
        ({"source": 1}, "source is only for mapping 'targeted'; got 1 with 'reverse'"),
    ],
)
def test_bad_options_are_refused_by_name(options, message):
    with pytest.raises(ConfigError, match=message):
        LabelFlip(**options)


def test_a_class_the_data_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="target must be a class below 5; got 7"):
        poisoned(LabelFlip(mapping="targeted", source=1, target=7))
