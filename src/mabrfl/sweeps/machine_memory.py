"""The available memory of the machine, or of the container of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_V2, _V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
"""The files with the limit and the use of a control group, for versions 2 and 1."""
_CACHE = ("inactive_file", "total_inactive_file")
"""The entries for file caches, which the system frees when memory is needed, for both versions."""


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
