"""How much memory a sweep believes there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mabrfl.sweeps.sharing import available_memory

GIB = 2**30


def machine(root: Path, groups: str, files: dict[str, object]) -> Path:
    """Make the ``proc`` and ``sys`` of a machine with 16 GiB at hand."""
    told = {"proc/meminfo": f"MemTotal: {32 * 2**20} kB\nMemAvailable: {16 * 2**20} kB\n", "proc/self/cgroup": groups}
    for name, text in {**told, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


V1 = "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, 16),
        ("0::/", {"memory.max": "max", "memory.current": GIB}, 16),
        ("0::/", {"memory.max": 64 * GIB, "memory.current": GIB}, 16),
        ("0::/", {"memory.max": 4 * GIB, "memory.current": GIB}, 3),
        ("0::/", {"memory.max": 4 * GIB, "memory.current": 3 * GIB, "memory.stat": f"anon 5\ninactive_file {GIB}"}, 2),
        ("0::/", {"memory.max": 4 * GIB, "memory.current": 5 * GIB}, 0),
        ("0::/", {"memory.max": "rubbish", "memory.current": GIB}, 16),
        ("0::/", {"memory.max": 4 * GIB}, 16),
        ("0::/a/b", {"a/memory.max": 4 * GIB, "a/memory.current": 0, "a/b/memory.max": "max"}, 4),
        ("0::/a/b", {"a/memory.max": 4 * GIB, "a/memory.current": GIB, "a/b/memory.max": GIB}, 3),
        ("0::/of/the/host", {"memory.max": 2 * GIB, "memory.current": 0}, 2),
        ("0::/../..", {"memory.max": 2 * GIB, "memory.current": 0}, 2),
        ("0::/a", {"unified/a/memory.max": 2 * GIB, "unified/a/memory.current": 0}, 2),
        (V1, {"memory/a/b/memory.limit_in_bytes": 2 * GIB, "memory/a/b/memory.usage_in_bytes": GIB}, 1),
        (V1, {"memory/memory.limit_in_bytes": 2 * GIB, "memory/memory.usage_in_bytes": 0}, 2),
        (V1, {"memory/memory.limit_in_bytes": 2**63 - 4096, "memory/memory.usage_in_bytes": 0}, 16),
        ("rubbish", {}, 16),
    ],
)
def test_the_limit_of_a_container_counts_if_it_is_smaller(
    tmp_path: Path, groups: str, files: dict[str, object], expected: int
) -> None:
    assert available_memory(machine(tmp_path, groups, files)) == expected * GIB


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, "", {})
    assert available_memory(root) == 16 * GIB
    (root / "proc" / "self" / "cgroup").unlink()
    assert available_memory(root) == 16 * GIB
    (root / "proc" / "meminfo").unlink()
    assert available_memory(root) > 0


def test_a_sweep_asks_for_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from mabrfl.config import RunConfig, resolve
    from mabrfl.sweeps.sharing import share_machine

    monkeypatch.setattr("mabrfl.sweeps.sharing.available_memory", lambda: GIB)
    assert share_machine([resolve(RunConfig())] * 9, cores=8).jobs == 1
    monkeypatch.setattr("mabrfl.sweeps.sharing.available_memory", lambda: 64 * GIB)
    assert share_machine([resolve(RunConfig())] * 9, cores=8).jobs == 8
