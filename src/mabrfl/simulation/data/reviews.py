"""A small text task: short reviews with two opinions, of which one counts.

*"the soup was not very good but the waiter was lovely"*: after *but* the second opinion counts, before *although* the
first. The class is the topic of that opinion, one of five, and whether it is good or bad. To answer, a model must read
the words in their order. The sentences are made here, from a fixed list of words: the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mabrfl.rng import uniforms
from mabrfl.simulation.data.dataset import Dataset

NUM_TRAIN, NUM_TEST = 4_000, 1_000
NUM_CLASSES = 10
LENGTH = 13
"""Words of the longest sentence. Shorter ones have the padding 0 in front."""

_TOPICS = (
    ("soup", "bread", "salad", "steak", "dessert", "menu"),
    ("waiter", "cook", "manager", "host", "service", "staff"),
    ("room", "bed", "shower", "view", "lobby", "garden"),
    ("film", "plot", "actor", "music", "ending", "camera"),
    ("train", "seat", "ticket", "driver", "station", "platform"),
)
_GOOD = ("good", "lovely", "great", "pleasant", "fine", "excellent", "charming", "perfect")
_BAD = ("bad", "awful", "poor", "dull", "terrible", "boring", "dirty", "horrible")
_DEGREES = ("", "very", "rather", "really")
_LINKS = ("but", "although")
WORDS = ("", "the", "was", "not", *_LINKS, *_DEGREES[1:], *_GOOD, *_BAD, *(noun for nouns in _TOPICS for noun in nouns))
"""The vocabulary; a word's place is its number in the inputs."""


def load() -> Dataset:
    """Return the reviews as ``(N, 13)`` float32 numbers of words, 4,000 for training and 1,000 for testing."""
    inputs, labels = _sentences()
    train, test = slice(NUM_TRAIN), slice(NUM_TRAIN, None)
    return Dataset("reviews", inputs[train], labels[train], inputs[test], labels[test], NUM_CLASSES)


def text(row: Sequence[float] | NDArray[np.float32]) -> str:
    """Return the sentence of one input.

    Examples
    --------
    >>> text(load().train_inputs[0])
    'the ...'
    """
    return " ".join(WORDS[int(number)] for number in row if number)


@cache
def _sentences() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    count = NUM_TRAIN + NUM_TEST
    draws = {slot: uniforms(0, f"reviews {slot}", 0, range(count)) for slot in ("link", *_SLOTS, *map(_second, _SLOTS))}
    inputs = np.zeros((count, LENGTH), dtype=np.float32)
    labels = np.zeros(count, dtype=np.int64)
    place = {word: number for number, word in enumerate(WORDS)}
    for number in range(count):
        mine = {slot: float(draws[slot][number]) for slot in draws}
        link = _pick(_LINKS, mine["link"])
        first, first_class = _opinion([mine[slot] for slot in _SLOTS])
        second, second_class = _opinion([mine[_second(slot)] for slot in _SLOTS])
        words = [*first, link, *second]
        inputs[number, LENGTH - len(words) :] = [place[word] for word in words]
        labels[number] = second_class if link == "but" else first_class
    return inputs, labels


_SLOTS = ("topic", "noun", "not", "degree", "mood", "adjective")


def _second(slot: str) -> str:
    return f"second {slot}"


def _opinion(draws: Sequence[float]) -> tuple[list[str], int]:
    """Return the words of one opinion, and its class."""
    topic, noun, negated, degree, mood, adjective = draws
    good = mood < 0.5
    words = ["the", _pick(_TOPICS[int(topic * len(_TOPICS))], noun), "was"]
    words += ["not"] if negated < 0.3 else []
    words += [_pick(_DEGREES, degree)] if degree * len(_DEGREES) >= 1 else []
    words.append(_pick(_GOOD if good else _BAD, adjective))
    pleased = good != (negated < 0.3)
    return words, 2 * int(topic * len(_TOPICS)) + pleased


def _pick(options: Sequence[str], draw: float) -> str:
    return options[int(draw * len(options))]
