"""The launcher for a Ray cluster: one task for each cell, on any of its machines, without a shared disk.

The machines of the cluster are trusted: Ray sends objects between them as pickles.
"""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mabrfl.errors import ConfigError, DatasetError, KilledError, SweepError, extra_needed
from mabrfl.sweeps.launchers import Assignment, CellEnded, CellEvent, CellNote
from mabrfl.sweeps.remote_cell import check_data, read_files, run_remotely, write_files
from mabrfl.sweeps.sharing import Sharing

_STOP_SECONDS = 10.0
"""How long a cell may take to end before its process is killed."""
_CLIENT = "ray://"


@dataclass
class _Task:
    """A cell on the cluster: the sweep's folder, and the reports that come."""

    results: Path
    reports: Any


class RayCluster:
    """Runs cells on an existing Ray cluster; see :class:`~mabrfl.sweeps.launchers.Launcher`.

    Use it in a ``with`` statement: it disconnects at the end. Each machine of the cluster needs this package and the
    data sets. A cell runs in a temporary folder of its machine; its files come to the sweep's folder every half minute
    and at its end. If its machine dies, the cell goes on from these on another one.

    Parameters
    ----------
    address
        The cluster's, ``HOST:PORT``; by default that in ``RAY_ADDRESS``, or the one that runs on this machine.
    cpus, gpus
        What a cell needs; Ray runs as many at once as have room.

    Raises
    ------
    ConfigError
        If there is no cluster there, or none of its machines has room for a cell.
    """

    def __init__(self, address: str | None = None, *, cpus: float = 1.0, gpus: float = 0.0) -> None:
        if not 0 < cpus <= 4096:
            raise ConfigError(f"a cell's CPUs must be above 0, and at most 4096; got {cpus:g}")
        if not 0 <= gpus <= 4096:
            raise ConfigError(f"a cell's GPUs must be from 0 to 4096; got {gpus:g}")
        if address is not None and address.startswith(_CLIENT):
            raise ConfigError(
                f"{address!r:.80} is for Ray's client, which cannot return files as they come; start the sweep on a "
                "machine of the cluster, with --address HOST:PORT"
            )
        with extra_needed("a sweep on a cluster"):
            import ray  # noqa: PLC0415 (an extra, and slow)
        self._ray: Any = ray
        self._needs = {"num_cpus": cpus, "num_gpus": gpus}
        self._workers = max(1, int(cpus))
        self._tasks: dict[str, _Task] = {}
        _connect(ray, address or "auto")
        if not self.places:
            largest = max((node["Resources"].get("CPU", 0.0) for node in self._nodes()), default=0.0)
            self.close()
            raise ConfigError(
                f"no machine of the cluster has the {cpus:g} CPUs and {gpus:g} GPUs of a cell; the largest has "
                f"{largest:g} CPUs"
            )

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._ray.shutdown()

    @property
    def places(self) -> int:
        """How many cells have room on the cluster as it is now."""
        return sum(_room(node["Resources"], self._needs) for node in self._nodes())

    def sharing(self, jobs: int | None = None, workers: int | None = None) -> Sharing:
        """Return how many cells run at once, and with how many processes each: as many as the cluster has room for."""
        return Sharing(jobs or self.places, workers or self._workers, spread=False)

    def inspect(self, pairs: Iterable[tuple[str, str]], deadline: float | None = None) -> Mapping[tuple[str, str], int]:
        """Look whether every machine that has room for cells has the data sets. Sizes of models are not returned."""
        ray = self._ray
        look = ray.remote(max_retries=0, num_cpus=0)(check_data)
        nodes = [node for node in self._nodes() if _room(node["Resources"], self._needs)]
        looks = {look.options(scheduling_strategy=_on(node)).remote(sorted(pairs)): node for node in nodes}
        timeout = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        ready, late = ray.wait(list(looks), num_returns=len(looks), timeout=timeout)
        for each in late:
            ray.cancel(each, force=True)
        for each in ready:
            name = looks[each]["NodeManagerHostname"]
            try:
                ray.get(each)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, DatasetError):
                    raise DatasetError(f"on machine {name} of the cluster: {error.cause}") from error
                raise SweepError(f"machine {name} of the cluster cannot run cells: {error.cause}") from error
            except ray.exceptions.RayError:
                continue  # it died meanwhile
        return {}

    def start(self, assignment: Assignment) -> None:
        """Submit a cell, with its files as far as it has come."""
        run = self._ray.remote(max_retries=0, num_returns="streaming", **self._needs)(run_remotely)
        results = Path(assignment.results)
        reports = run.options(name=f"mabrfl {assignment.label}").remote(assignment, read_files(results, assignment.key))
        self._tasks[assignment.key] = _Task(results, reports)

    def poll(self, timeout: float) -> list[CellEvent]:
        """Wait for reports; write the files that come with them."""
        ray, keys = self._ray, {task.reports: key for key, task in self._tasks.items()}
        if not keys:
            return []
        ray.wait(list(keys), num_returns=1, timeout=timeout, fetch_local=False)
        ready, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0, fetch_local=False)
        return [event for reports in ready for event in self._take(keys[reports])]

    def _take(self, key: str) -> Sequence[CellEvent]:
        """Take the next report of a cell."""
        ray, task = self._ray, self._tasks[key]
        try:
            report = ray.get(next(task.reports))
        except StopIteration:  # the last report ends the cell, so there was none
            return self._lose(key, CellEnded(key, message="its task ended without a word"))
        except ray.exceptions.RayTaskError as error:
            killed = isinstance(error.cause, KilledError)
            return self._lose(key, CellEnded(key, killed, f"its task failed: {error.cause}"))
        except ray.exceptions.RayError as error:
            note = CellNote(key, f"its machine or its process there died ({type(error).__name__})")
            return [note, *self._lose(key, CellEnded(key, killed=True))]
        if report.files is not None:
            write_files(task.results, key, report.files)
        if any(isinstance(event, CellEnded) for event in report.events):
            del self._tasks[key]
        return list(report.events)

    def _lose(self, key: str, end: CellEnded) -> list[CellEvent]:
        """Forget a cell that will send nothing more, and make sure that it does not run."""
        self._ray.cancel(self._tasks.pop(key).reports, force=True)
        return [end]

    def stop(self) -> None:
        """Cancel all cells. Their processes end with their tasks; those that do not end in time are killed."""
        left = [task.reports for task in self._tasks.values()]
        self._tasks.clear()
        for force in (False, True):
            for reports in left:
                self._ray.cancel(reports, force=force)
            deadline = time.monotonic() + _STOP_SECONDS
            left = [reports for reports in left if not self._has_ended(reports, deadline)]

    def _has_ended(self, reports: Any, deadline: float) -> bool:
        """Drop what a cancelled task has still sent; return whether it has ended before the deadline."""
        while True:
            ready, _ = self._ray.wait([reports], timeout=max(deadline - time.monotonic(), 0.0), fetch_local=False)
            if not ready:
                return False
            try:
                self._ray.get(next(reports))
            except (StopIteration, self._ray.exceptions.RayError):
                return True

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]


def _connect(ray: Any, address: str) -> None:
    """Connect to a cluster; signals stay as they are, of which Ray takes SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # advice on Ray's own settings
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        said = str(error).strip().splitlines()
        where = "on this machine" if address == "auto" else f"at {address!r:.80}"
        raise ConfigError(
            f"there is no Ray cluster {where}: {said[0] if said else type(error).__name__}; `ray start --head` starts "
            "one, and --address names it"
        ) from error
    signal.signal(signal.SIGTERM, before)


def _on(node: Mapping[str, Any]) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 (as above)

    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


def _room(has: Mapping[str, float], needs: Mapping[str, float]) -> int:
    """Return how many cells a machine has room for.

    Examples
    --------
    >>> _room({"CPU": 8.0, "GPU": 1.0}, {"num_cpus": 2.0, "num_gpus": 0.5})
    2
    """
    kinds = {"num_cpus": "CPU", "num_gpus": "GPU"}
    return min(int(has.get(kind, 0.0) // needs[name]) for name, kind in kinds.items() if needs[name])
