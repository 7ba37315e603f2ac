"""How the cells of a sweep share the machine.

Cells with one process each use every core all the time. Several workers of one cell wait for each other at the end of
each round, and all of them for the server (``benchmarks/sharing.py`` measures it). So as many cells run at once as
there are cores, if the memory is enough. If cores are left over (few cells, large models), the cells get more workers.
On a GPU one cell runs at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mabrfl.config import ResolvedConfig
from mabrfl.config.defaults import available_cores
from mabrfl.errors import ConfigError

_V2, _V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
"""The files with the limit and the use of a control group, for versions 2 and 1."""
_CACHE = ("inactive_file", "total_inactive_file")
"""The entries for file caches, which the system frees when memory is needed, for both versions."""

PROCESS_BYTES = 700 * 2**20
"""Memory of Python, PyTorch and a data set."""
COPIES = 6
"""Float32 numbers per client and parameter: updates, momenta, two of a kept optimiser, and working memory."""
MEMORY_SHARE = 0.7
"""Share of the available memory for all cells together."""

Sizes = Mapping[tuple[str, str], int]
"""Number of parameters by data set and model."""


@dataclass(frozen=True)
class Sharing:
    """How many cells run at once, and with how many processes each.

    With ``spread``, the last cells get the processes of those that have ended; on a cluster they are on other machines.
    """

    jobs: int = 1
    workers: int = 1
    spread: bool = field(default=True, repr=False)

    def workers_for(self, cells_left: int) -> int:
        """Return the number of processes for the next cell; ``cells_left`` includes the running ones."""
        if not self.spread:
            return self.workers
        return max(self.workers, self.jobs * self.workers // max(1, min(self.jobs, cells_left)))


def share_machine(
    configs: Sequence[ResolvedConfig],
    *,
    jobs: int | None = None,
    workers: int | None = None,
    sizes: Sizes | None = None,
    cores: int | None = None,
    memory: int | None = None,
) -> Sharing:
    """Choose how many cells run at once, and with how many processes each.

    Parameters
    ----------
    configs
        The remaining runs.
    jobs, workers
        The user's choice; None to choose here.
    sizes
        Number of parameters of the models, if known.
    cores, memory
        Available cores and memory of the machine; measured if left out.

    Examples
    --------
    >>> from mabrfl.config import RunConfig, resolve
    >>> small, sizes = resolve(RunConfig()), {("digits", "mlp"): 4_810}
    >>> share_machine([small] * 100, sizes=sizes, cores=8, memory=16 * 2**30)
    Sharing(jobs=8, workers=1)
    >>> share_machine([small] * 2, sizes=sizes, cores=8, memory=16 * 2**30)
    Sharing(jobs=2, workers=4)
    >>> share_machine([small] * 100, sizes={("digits", "mlp"): 20_000_000}, cores=8, memory=16 * 2**30)
    Sharing(jobs=1, workers=8)
    """
    check_wishes(jobs, workers)
    cores = cores or available_cores()
    if jobs is None:
        memory = memory or available_memory()
        largest = max((cell_bytes(config, sizes or {}) for config in configs), default=PROCESS_BYTES)
        fitting = max(1, int(MEMORY_SHARE * memory) // largest)
        on_cpu = all(config.device == "cpu" for config in configs)
        jobs = max(1, min(cores // (workers or 1), len(configs), fitting)) if on_cpu else 1
    return Sharing(jobs, workers or max(1, cores // jobs))


def check_wishes(jobs: int | None, workers: int | None) -> None:
    """Refuse numbers of cells at once, or of processes per cell, out of range."""
    for name, value in (("jobs", jobs), ("workers", workers)):
        if value is not None and not 1 <= value <= 4096:
            raise ConfigError(f"{name} must be from 1 to 4096; got {value}")


def cell_bytes(config: ResolvedConfig, sizes: Sizes) -> int:
    """Return an estimate of the memory of a cell."""
    parameters = sizes.get((config.dataset, config.model), 0)
    return PROCESS_BYTES + 4 * COPIES * config.clients * parameters


def available_memory(root: Path | str = "/") -> int:
    """Return the bytes of memory that can be used without swapping and without being killed.

    Parameters
    ----------
    root
        The folder with the operating system's ``proc`` and ``sys``.
    """
    root = Path(root)
    return max(0, min([_of_machine(root), *_of_groups(root)]))


def _of_machine(root: Path) -> int:
    try:
        lines = (root / "proc" / "meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # pragma: no cover (neither Linux nor another Unix)
        return 4 * 2**30


def _of_groups(root: Path) -> Iterator[int]:
    """Yield the free memory of each control group of this process that has a limit."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    mounted = root / "sys" / "fs" / "cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            places, names = [mounted, mounted / "unified"], _V2
        elif "memory" in controllers.split(","):
            places, names = [mounted / "memory"], _V1
        else:
            continue
        for place in places:
            yield from _left_in_parents(place, path, names)


def _left_in_parents(place: Path, path: str, names: tuple[str, str]) -> Iterator[int]:
    """Yield the free memory of a group and of its parents; a container may see only the outermost one."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts), -1, -1):
        folder = place.joinpath(*parts[:depth])
        try:
            limit, used = (int((folder / name).read_text(encoding="ascii")) for name in names)
        except (OSError, ValueError):
            continue  # no such group here, or it says "max": no limit
        yield limit - max(0, used - _cache(folder))


def _cache(folder: Path) -> int:
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        return max((int(line.split()[1]) for line in lines if line.split()[0] in _CACHE), default=0)
    except (OSError, ValueError, IndexError):
        return 0
