"""Killed with SIGKILL at any moment, a run that is started again ends as one that was never stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flower_killing
from killing import SEED, STRATEGY_KILLS


def stories(folder, *options):
    """Kill and go on; return what came out of each story, and of the run that nothing stops."""
    places = [str(Path(__file__).parent.parent), *[place for place in sys.path if place.endswith("src")]]
    command = [sys.executable, flower_killing.__file__, str(folder), *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    whole, *told = [json.loads(line) for line in done.stdout.splitlines()]
    assert whole["problem"] is None
    assert [list(history) for history in whole["histories"]] == [["1", "2"], ["1", "2"], ["0", "1", "2"]]
    return told, whole


def different(told, whole):
    """Return what differs from the whole run, by story."""
    keys = whole.keys() - {"moments", "kills"}
    found = {str(story["moments"]): [key for key in keys if story[key] != whole[key]] for story in told}
    return {moments: parts for moments, parts in found.items() if parts}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_at_any_write_it_goes_on_and_ends_the_same(tmp_path, step):
    told, whole = stories(tmp_path, "--step", step)
    assert len(told) * step >= flower_killing.LEAST
    assert all(story["kills"] for story in told)
    assert different(told, whole) == {}


@pytest.mark.slow
def test_killed_again_and_again_at_random_moments_it_ends_the_same(tmp_path):
    told, whole = stories(tmp_path, "--kills", STRATEGY_KILLS, "--seed", SEED)
    assert sum(story["kills"] for story in told) >= STRATEGY_KILLS
    assert {kind for story in told for kind, _ in story["moments"]} == {"writes", "calls"}
    assert different(told, whole) == {}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 12])
def test_when_the_disk_is_full_it_ends_with_our_error_and_goes_on_when_there_is_room(tmp_path, step):
    told, whole = stories(tmp_path, "--full", "--step", step)
    assert len(told) * step >= flower_killing.LEAST // 2
    assert different(told, whole) == {}
