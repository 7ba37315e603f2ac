"""Without Flower's private modules a run still works by the public interface, and one warning says what is lost."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from flwr.superlink.grid.http_grid import HttpGrid

from flower_faults import flat, run, set_aside, with_bad
from flower_grid import honest, key_name
from flower_replies import MALFORMED, UNPACKABLE
from flower_versions import ROOT, TESTED
from flower_wire import WireGrid
from mabrfl.flower import internals


@pytest.fixture
def pulls(monkeypatch):
    """The messages that were fetched by ``HttpGrid.pull_messages``."""
    original, calls = HttpGrid.pull_messages, []

    def pull_messages(self, message_ids):
        calls.extend(message_ids)
        return original(self, message_ids)

    monkeypatch.setattr(HttpGrid, "pull_messages", pull_messages)
    return calls


@pytest.fixture
def fresh():
    """Nothing is known of Flower's internals before the test, nor after it."""
    caches = (internals._private, internals._warn_of_connection)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def warnings_in(caplog):
    return [record.getMessage() for record in caplog.records if "internals of Flower" in record.getMessage()]


def module_missing(monkeypatch, name):
    monkeypatch.setitem(internals._NAMES, "flwr.renamed." + name, ("something",))


def name_missing(monkeypatch, name):
    monkeypatch.setitem(internals._NAMES, name, ("renamed",))


def format_changed(monkeypatch, name):
    monkeypatch.setattr(internals, "_unpacked_size", lambda *_: 0)


def call_renamed(monkeypatch, name):
    monkeypatch.setattr(internals, "_CALLS", ("PullMessages", "Renamed"))


CHANGES = [
    *[(change, name) for change in (module_missing, name_missing) for name in internals._NAMES],
    (format_changed, ""),
    (call_renamed, ""),
]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(("change", "name"), CHANGES)
def test_a_round_works_by_the_public_interface_if_a_release_lacks_something(change, name, monkeypatch, caplog, pulls):
    nodes = {k: honest(k) for k in range(1, 6)}
    _, usual = run(WireGrid(nodes))
    assert pulls == []
    internals._private.cache_clear()
    change(monkeypatch, name)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        _, result = run(WireGrid(nodes))
        run(WireGrid(nodes))
    assert len(pulls) == 10
    assert np.array_equal(flat(result.arrays), flat(usual.arrays))
    (warning,) = warnings_in(caplog)
    assert "size is checked only after Flower has unpacked them" in warning


@pytest.mark.usefixtures("fresh", "pulls")
@pytest.mark.parametrize("name", ["07 wrong shape", "12 NaN", "19 payload header bomb", "cannot be unpacked"])
def test_without_the_internals_a_bad_reply_still_costs_only_its_sender(name, monkeypatch, tmp_path):
    module_missing(monkeypatch, "x")
    bad, reasons = MALFORMED.get(name, (UNPACKABLE, "undecodable"))
    _, result = run(WireGrid(with_bad(lambda message: bad(message, honest(1)(message)))), tmp_path / "state")
    ((client, reason, blamed),) = set_aside(tmp_path / "state")
    assert (client, blamed) == (key_name(1), True)
    assert reason in reasons.split("|")
    assert result.train_metrics_clientapp[1]["replies-accepted"] == 4


def test_the_package_is_imported_and_a_round_runs_where_all_private_modules_are_missing():
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from flower_grid import MemoryGrid, honest, model, pretend_a_task
pretend_a_task()
missing = {list(internals._NAMES)!r}
sys.modules.update(dict.fromkeys(missing))
from mabrfl.flower import MabRflStrategy
strategy = MabRflStrategy(fraction_evaluate=0.0, min_available_nodes=4)
result = strategy.start(MemoryGrid({{k: honest(k) for k in range(1, 5)}}), model(), num_rounds=1, timeout=600)
print(result.train_metrics_clientapp[1]["replies-accepted"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "4"
    assert (done.stdout + done.stderr).count("internals of Flower") == 1


def test_importing_the_package_loads_no_private_grid():
    code = "import sys, mabrfl.flower; print('flwr.superlink.grid.http_grid' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_only_one_module_names_private_modules_of_flower():
    public = ("flwr.app", "flwr.clientapp", "flwr.clientapp.typing", "flwr.serverapp", "flwr.serverapp.strategy")
    for path in Path(internals.__file__).parent.glob("*.py"):
        words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        imports = [line[1] for line in words if line[:1] in (["import"], ["from"]) and line[1].startswith("flwr")]
        assert set(imports) - {*public, "flwr"} == set(), path.name
        assert path.name == "internals.py" or ".superlink." not in path.read_text(encoding="utf-8")


def test_the_range_in_pyproject_is_the_tested_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["optional-dependencies"].values()
    ranges = {entry.partition(">=")[2] for group in groups for entry in group if re.match(r"flwr\b(?!-)", entry)}
    oldest, newest = (version.split(".") for version in (TESTED[0], TESTED[-1]))
    assert ranges == {f"{oldest[0]}.{oldest[1]},<{newest[0]}.{int(newest[1]) + 1}"}
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {pin.partition("==")[2] for pin in pins if pin.startswith("flwr==")} <= set(TESTED)
