"""The errors of this package: one class per kind of cause, each with the exit code of the command line."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

EXTRAS = {
    "torch": ("torch", "sim"),
    "sklearn": ("scikit-learn", "sim"),
    "matplotlib": ("matplotlib", "sim"),
    "jinja2": ("Jinja2", "sim"),
    "safetensors": ("safetensors", "sim"),
    "pandas": ("pandas", "frames"),
    "datasets": ("Hugging Face datasets", "hf"),
    "flwr_datasets": ("Flower Datasets", "flwr-datasets"),
    "torchvision": ("torchvision", "torchvision"),
    "tensorboard": ("TensorBoard", "tensorboard"),
    "mlflow": ("MLflow", "mlflow"),
    "wandb": ("Weights & Biases", "wandb"),
    "flwr": ("Flower", "flower"),
    "ray": ("Ray", "ray"),
    "nvflare": ("NVFlare", "nvflare"),
}
"""Optional modules: the name of each package, and the extra of ``pip install 'mabrfl[...]'`` that installs it."""

KILL_SIGNALS = {getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGKILL", "SIGHUP")}
"""Signals that a user or the system sends to end a process; any other signal means that the process crashed."""


class MabRflError(Exception):
    """Base class of every error that this package raises on purpose; the message is written for a person."""

    exit_code = 1


class ConfigError(MabRflError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""

    exit_code = 3


class DatasetError(MabRflError):
    """A data set is missing, corrupt, truncated, or cannot be partitioned as requested."""

    exit_code = 4


class StateError(MabRflError):
    """A saved state does not fit, or calls come in the wrong order."""

    exit_code = 5


class OutputError(MabRflError):
    """Results cannot be written to the requested place."""

    exit_code = 6


class DiskError(OutputError):
    """The disk for the results is full or has become read-only; the run itself did nothing wrong."""


class KilledError(MabRflError):
    """A user or the system (out of memory) killed a process; the work itself did nothing wrong."""


class QuorumError(MabRflError):
    """The theorem of a rule requires more clients than there are (raised in strict mode only)."""

    exit_code = 7


class KnowledgeError(MabRflError):
    """An attack read something that its declared knowledge does not include."""

    exit_code = 8


class SweepError(MabRflError):
    """Some cells of a sweep failed, or their processes were killed; all others were run."""

    exit_code = 9


class MissingExtraError(MabRflError, ImportError):
    """An optional dependency is not installed; the message says which extra installs it."""

    exit_code = 10


class OwnCodeError(MabRflError):
    """A defense, selector, attack, model or data set of the user's own raised an error; the message says where."""

    exit_code = 11


@contextmanager
def extra_needed(purpose: str) -> Iterator[None]:
    """Import optional modules in this block; if one is not installed, say which extra installs it.

    Parameters
    ----------
    purpose
        The part of the package that needs the import: the subject of the message.

    Raises
    ------
    MissingExtraError
        If a module of :data:`EXTRAS` is missing. Other import errors stay as they are.

    Examples
    --------
    >>> with extra_needed("the simulator"):
    ...     raise ModuleNotFoundError(name="torch.nn")
    Traceback (most recent call last):
    mabrfl.errors.MissingExtraError: the simulator needs torch: pip install 'mabrfl[sim]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        package, extra = EXTRAS[module]
        raise MissingExtraError(f"{purpose} needs {package}: pip install 'mabrfl[{extra}]'", name=module) from error


def require(module: str, purpose: str) -> None:
    """Check that an optional module is installed, without importing it.

    Raises
    ------
    MissingExtraError
        If it is not.
    """
    with extra_needed(purpose):
        if find_spec(module) is None:
            raise ModuleNotFoundError(name=module)


def was_killed(code: int | None) -> bool:
    """Return whether an exit code, as :mod:`multiprocessing` reports it, is that of a killed process.

    Examples
    --------
    >>> was_killed(-9), was_killed(-11), was_killed(1), was_killed(None)
    (True, False, False, False)
    """
    return code is not None and code < 0 and -code in KILL_SIGNALS


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known name, or the list of names.

    Examples
    --------
    >>> suggest("krumm", ["krum", "median"])
    "; did you mean 'krum'?"
    >>> suggest("zzz", ["krum", "median"])
    '; known: krum, median'
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(known) or 'none'}"
