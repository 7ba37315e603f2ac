"""The manifest of a run: versions, seed, data, source commit, the user's own code, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from mabrfl._version import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pydantic")


def manifest(
    *,
    seed: int,
    config_hash: str,
    data_fingerprint: str | None,
    arguments: Sequence[str],
    code: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Return what is needed to repeat a run, as plain values, without paths of this machine.

    Parameters
    ----------
    seed, config_hash
        Of the resolved configuration.
    data_fingerprint
        SHA-256 over the data set's arrays.
    arguments
        The command line without the program's name; of absolute paths only the last part is kept.
    code
        Fingerprints of the user's own code by name, see :func:`mabrfl.catalog.code_of`; None if there is none.
    """
    return {
        "versions": {"mabrfl": __version__, "python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "seed": seed,
        "config_hash": config_hash,
        "data_fingerprint": data_fingerprint,
        "source": source_commit(Path(__file__).resolve().parents[1]),
        **({"code": dict(code)} if code else {}),
        "arguments": [_without_folders(argument) for argument in arguments],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "ended": None,
    }


def source_commit(package: Path) -> dict[str, Any] | None:
    """Return the commit of the checkout that holds this package, and whether files differ from it.

    None if the package was installed from elsewhere, even if a repository happens to surround it.
    """
    checkout = package.parents[1]
    if package.parent.name != "src" or not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "--verify", "HEAD")
    changes = _git(checkout, "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _git(checkout: Path, *command: str) -> str | None:
    # Variables such as GIT_DIR, which hooks set, would make git use another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        answer = subprocess.run(
            ["git", "-C", str(checkout), *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout.strip()


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _without_folders(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return option + equals + (PurePath(value).name if PurePath(value).is_absolute() else value)
