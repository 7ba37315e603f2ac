"""The aggregator in NVFlare's own simulator: one site sends NaN, two send the opposite of their update.

NVFlare has an environment of its own: ``make test-nvflare`` makes it and runs these tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare.apis", reason="NVFlare is not installed here; make test-nvflare tests it")

JOBS = Path(__file__).parents[2] / "examples" / "nvflare-job"
LIARS = {"site-2": "quarantined", "site-3": "rejected", "site-5": "rejected"}

pytestmark = pytest.mark.slow


def run(folder, *arguments):
    """Run the example; return the accuracy of the last model, and the rows of its audit."""
    command = [sys.executable, str(JOBS / "job.py"), "--workspace", str(folder), "--rounds", "5", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("accuracy ")]
    audit = folder / "server" / "simulate_job" / "audit.jsonl"
    rows = [json.loads(row) for row in audit.read_text("utf-8").splitlines()] if audit.exists() else []
    return float(line.split()[1]), [row for row in rows if row["kind"] == "reply"]


@pytest.mark.parametrize("workflow", ["robust", "aggregator", "scatter"])
def test_lying_sites_are_found_and_the_model_learns(tmp_path, workflow):
    honest, _ = run(tmp_path / "honest", "--workflow", "plain", "--honest")
    attacked, rows = run(tmp_path / workflow, "--workflow", workflow)
    assert attacked > honest - 0.03
    assert len(rows) == 8 * 5
    assert {row["verdict"] for row in rows if row["client"] == "site-2"} == {"quarantined"}
    assert {row["client"] for row in rows if row["blamed"]} == set(LIARS)


def test_a_site_that_fails_does_not_end_the_job(tmp_path):
    attacked, rows = run(tmp_path / "crash", "--crash")
    assert attacked > 0.7
    assert "site-8" not in {row["client"] for row in rows if row["blamed"]}


def test_the_same_sites_ruin_plain_averaging(tmp_path):
    plain, _ = run(tmp_path / "plain", "--workflow", "plain")
    assert plain < 0.3
