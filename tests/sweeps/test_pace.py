"""What a sweep's estimate is judged by."""

from __future__ import annotations

from pathlib import Path

import pytest

from mabrfl.sweeps.scheduler import run_sweep
from mabrfl.sweeps.sweep_file import parse_sweep
from mabrfl.sweeps.sweep_progress import Monitor, SweepProgress

pytestmark = pytest.mark.usefixtures("ready_to_fork")


TEXT = """
[base]
dataset = "digits"
clients = 6
rounds = 2
training.epochs = 1
partition.sizes = [8, 16]
[axes]
seed = [0, 1]
"""


class First(Monitor):
    """Remembers how many cells nothing was known of when the sweep began."""

    unknown = -1

    def begin(self, progress: SweepProgress) -> None:
        self.unknown = progress.remaining().unknown


def test_a_sweep_judges_by_all_rounds_measured_in_its_folder(tmp_path: Path) -> None:
    for rounds, cell, unknown in ((2, 0, 1), (2, 1, 0), (3, 0, 0)):
        wanted, first = parse_sweep(TEXT.replace("rounds = 2", f"rounds = {rounds}").encode()), First()
        run_sweep(wanted, tmp_path, only=[wanted.cells[cell]], jobs=1, workers=1, monitor=first, start_method="fork")
        assert first.unknown == unknown
