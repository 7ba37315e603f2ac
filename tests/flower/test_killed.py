"""Killed at any write, a run that is started again ends as one that was never stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import flower_killing

LEAST = 50
"""Writes of a run, at the least: fewer, and the count of them has broken."""


def stories(folder, *points, step=1):
    places = [str(Path(__file__).parent.parent), *[place for place in sys.path if place.endswith("src")]]
    each = [",".join(map(str, story)) for story in points]
    command = [sys.executable, flower_killing.__file__, str(folder), str(step), *each]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(told, whole):
    """Return what differs from the whole run, by story."""
    found = {tuple(story["points"]): [key for key in whole if story[key] != whole[key]] for story in told}
    return {points: parts for points, parts in found.items() if parts}


@pytest.fixture
def whole(tmp_path):
    """A run that nothing stops: it never comes to its millionth write."""
    (told,) = stories(tmp_path, [10**6])
    del told["points"]
    assert told["problem"] is None
    assert [list(history) for history in told["histories"]] == [["1", "2"], ["1", "2"], ["0", "1", "2"]]
    return told


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_at_any_write_it_goes_on_and_ends_the_same(tmp_path, whole, step):
    (tmp_path / "killed").mkdir()
    told = stories(tmp_path / "killed", step=step)
    assert len(told) * step >= LEAST
    assert wrong(told, whole) == {}


@pytest.mark.slow
def test_killed_again_while_it_recovers_it_ends_the_same(tmp_path, whole):
    (tmp_path / "killed").mkdir()
    chance = random.Random(0)
    points = [[chance.randrange(1, LEAST) for _ in range(chance.randrange(2, 5))] for _ in range(200)]
    assert wrong(stories(tmp_path / "killed", *points), whole) == {}
