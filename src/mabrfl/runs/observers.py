"""Observers: objects that watch a run. Those of users can neither stop it nor change it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from mabrfl.errors import ConfigError

if TYPE_CHECKING:
    from mabrfl.config import ResolvedConfig
    from mabrfl.recording import RoundRecord

Hook = Literal["started", "round_done", "finished", "failed"]
HOOKS: tuple[Hook, ...] = get_args(Hook)
Notify = Callable[[str], None]
"""Takes a message for the user."""


@dataclass(frozen=True)
class RunStart:
    """The start of a session of a run.

    Attributes
    ----------
    config
        All settings of the run.
    path
        Its folder; None if it is not recorded.
    after_round
        The last finished round of earlier sessions; 0 if the run starts at its beginning.
    notes
        Messages for the user about the start: a refused checkpoint, say.
    """

    config: ResolvedConfig
    path: Path | None = None
    after_round: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class RunResult:
    """A finished run.

    Attributes
    ----------
    config
        All settings of the run.
    path
        Its folder; None if it was not recorded.
    records
        One per round, in order; those of earlier sessions included.
    summary
        The run in a few numbers, as ``summary.json`` has them.
    notes
        Messages for the user: a refused checkpoint, an observer that failed.
    """

    config: ResolvedConfig
    path: Path | None = None
    records: list[RoundRecord] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Observer:
    """Watches a run.

    Every method is optional: an object of any class that has at least one of them is an observer. It is called in the
    process of the run, between two rounds, and gets copies: changing them changes nothing. If it raises an error, the
    run goes on, and the first error is reported.

    Examples
    --------
    >>> from mabrfl.config import RunConfig
    >>> from mabrfl.runs import run
    >>> class Best:
    ...     def started(self, run):
    ...         self.best = 0.0
    ...
    ...     def round_done(self, record):
    ...         self.best = max(self.best, record.accuracy)
    >>> best = Best()
    >>> result = run(RunConfig(rounds=2, workers=1), observers=[best])
    >>> best.best == result.summary["best_accuracy"]
    True
    """

    def started(self, run: RunStart) -> None:
        """Take note that a session of the run starts; called before its first round."""

    def round_done(self, record: RoundRecord) -> None:
        """Take note of a round that is done, and is in the run's folder."""

    def finished(self, result: RunResult) -> None:
        """Take note of the result: the last round is done, and the summary is in the run's folder."""

    def failed(self, error: BaseException) -> None:
        """Take note that the run stops before its last round: an error, or Ctrl-C. There is no ``finished`` then."""


class ObserverGroup:
    """All observers of one run, called in order.

    Parameters
    ----------
    essential
        Observers of this package, without which the run must not go on (its folder, the terminal, the sweep that it
        belongs to): their errors stop the run.
    others
        Observers of users: their errors are reported, once for each observer.
    report
        Called with each report.
    """

    def __init__(self, essential: Sequence[Observer], others: Sequence[Any], report: Notify) -> None:
        self._essential, self._others, self._report = essential, others, report
        self._reported: set[int] = set()

    def call(self, hook: Hook, event: Any) -> None:
        """Call one method of all observers."""
        with ExitStack() as stack:
            if hook == "failed":
                # Each of them is called, even if the one before it raises an error.
                stack.callback(self._call_others, hook, event)
                for observer in reversed(self._essential):
                    stack.callback(observer.failed, event)
            else:
                for observer in self._essential:
                    getattr(observer, hook)(event)
                self._call_others(hook, event)

    def _call_others(self, hook: Hook, event: Any) -> None:
        for observer in self._others:
            method = getattr(observer, hook, None)
            if method is None:
                continue
            try:
                method(event if hook == "failed" else copy.deepcopy(event))
            except (Exception, SystemExit) as error:  # noqa: BLE001 (a user's code may raise anything)
                if id(observer) not in self._reported:
                    self._reported.add(id(observer))
                    name = f"{type(observer).__module__}:{type(observer).__qualname__}"
                    self._report(f"observer {name} failed in {hook}{_cause(error)}; the run goes on")


def build_observers(observers: Iterable[Any], report: Notify) -> list[Any]:
    """Return the observers of users as objects.

    Parameters
    ----------
    observers
        Each one is an object, a class or function without arguments that makes one, or the name of any of these: that
        of an entry point in the group ``mabrfl.observers``, or ``module:Name``.
    report
        Called if a class or function raises an error; the run does without that observer.

    Raises
    ------
    ConfigError
        If a name is unknown, cannot be imported, or gives something that is no observer.
    """
    objects = []
    for given in observers:
        name = f"'{given}'" if isinstance(given, str) else repr(given)[:80]
        target = find_observer(given) if isinstance(given, str) else given
        if isinstance(target, type) or (callable(target) and not _has_hook(target)):
            try:
                target = target()
            except (Exception, SystemExit) as error:  # noqa: BLE001 (a user's code may raise anything)
                report(f"observer {name} cannot be made{_cause(error)}; the run goes on without it")
                continue
        if not _has_hook(target):
            raise _not_an_observer(name, type(target).__name__)
        objects.append(target)
    return objects


def find_observer(name: str) -> Any:
    """Return the class, function or object that the name of an observer stands for; nothing is called.

    Raises
    ------
    ConfigError
        If the name is unknown, cannot be imported, or is that of a class without any method of an observer.
    """
    from mabrfl.catalog import resolve_name  # noqa: PLC0415 (the catalogue is only needed for names)

    target = resolve_name("observers", name)
    if not callable(target) and not _has_hook(target):
        raise _not_an_observer(f"'{name}'", type(target).__name__)
    if isinstance(target, type) and not _has_hook(target):
        raise _not_an_observer(f"'{name}'", f"class {target.__name__}")
    return target


def report_on_stderr(message: str) -> None:
    """Print a report on standard error."""
    sys.stderr.write(f"note: {message}\n")


def _has_hook(candidate: Any) -> bool:
    return any(callable(getattr(candidate, hook, None)) for hook in HOOKS)


def _not_an_observer(name: str, got: str) -> ConfigError:
    return ConfigError(f"observer {name} must have at least one of the methods {', '.join(HOOKS)}; got {got}")


def _cause(error: BaseException) -> str:
    """Return where in the user's code an error was raised, and its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
    message = " ".join(str(error).split())
    return f"{where}: {type(error).__name__}{': ' if message else ''}{message}"
