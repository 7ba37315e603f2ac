"""How the cells of a sweep share the machine.

Cells with one process each use every core all the time. Several workers of one cell wait for each other at the end of
each round, and all of them for the server (``benchmarks/sharing.py`` measures it). So as many cells run at once as
there are cores, if the memory is enough. If cores are left over (few cells, large models), the cells get more workers.
On a GPU one cell runs at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mabrfl.config import ResolvedConfig
from mabrfl.config.defaults import available_cores
from mabrfl.errors import ConfigError
from mabrfl.sweeps.machine_memory import available_memory

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
    """How many cells run at once, and with how many processes each."""

    jobs: int = 1
    workers: int = 1

    def workers_for(self, cells_left: int) -> int:
        """Return the number of processes for the next cell; ``cells_left`` includes the running ones."""
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
