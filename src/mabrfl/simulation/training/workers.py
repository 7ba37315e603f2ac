"""Executors of tasks: the calling process itself, or a pool of worker processes.

A pool's workers live as long as the pool. For each round the parent writes the weights and the list of clients to the
board and sends every worker one message of three values. The workers take the tasks, longest first, from a shared
counter, and write the results to the board. No message is sent per client.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch

from mabrfl.errors import ConfigError, KilledError, MabRflError, StateError, was_killed
from mabrfl.simulation.training.shared_memory import SharedArray, StartMethod
from mabrfl.simulation.training.trainer import Task, Trainer

_PARENT_CHECK_SECONDS = 1.0
_EXIT_SECONDS = 2.0
_DEATH_SECONDS = 60.0
"""How long to wait for the exit code of a worker whose pipe is closed: it ends at once, but on a busy machine."""


class Executor(Protocol):
    """Something that does numbered tasks."""

    def run(self, task: Task, count: int, round: int) -> None:
        """Do tasks 0 to ``count - 1``; return when all are done."""

    def close(self) -> None:
        """Release all resources; may be called again."""


def default_start_method() -> StartMethod:
    """Return the start method of workers: fork if that is safe, because a forked model need not be pickled."""
    # Forking a process that has started CUDA or an autograd thread for it breaks PyTorch in the child.
    return "fork" if sys.platform == "linux" and not torch.cuda.is_available() else "spawn"


class InProcess:
    """Does the tasks in the calling process, on one thread, with the same results as a pool."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer: Trainer | None = trainer

    def run(self, task: Task, count: int, round: int) -> None:  # noqa: D102 (see Executor)
        if self._trainer is None:
            raise StateError("the engine is closed")
        with one_thread():
            for number in range(count):
                self._trainer.run(task, number, round)

    def close(self) -> None:  # noqa: D102 (see Executor)
        self._trainer = None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread in this block: its sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Pool:
    """Does the tasks in worker processes of one thread each."""

    def __init__(self, trainer: Trainer, workers: int, method: StartMethod) -> None:
        self._trainer = trainer
        context = multiprocessing.get_context(method)
        self._counter = context.Value("q", 0)
        self._at = SharedArray((workers,), "int64", method)
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._finish = weakref.finalize(self, _shut_down, self._processes, self._connections, os.getpid())
        try:
            with _interrupts_blocked():
                for number in range(workers):
                    self._start(context, number)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, number: int) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        # A forked child has copies of our ends of the pipes; with them open, its siblings would not
        # notice the end of this process.
        inherited = list(self._connections) if context.get_start_method() == "fork" else []
        process = context.Process(
            target=_Worker(self._trainer, self._counter, self._at, number, os.getpid()).serve,
            args=(theirs, inherited),
            name=f"mabrfl-worker-{number}",
            daemon=True,
        )
        with warnings.catch_warnings():
            # Python 3.12 warns about forking a process with threads; the child does not use them.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                process.start()
            except OSError as error:
                raise MabRflError(f"cannot start worker process {number}: {error}") from error
            except Exception as error:  # the class of pickling errors differs between versions of Python
                raise ConfigError(
                    f"the model cannot be sent to a worker process ({error}); define its class in a module "
                    f"that can be imported, or use workers=1"
                ) from error
        self._processes.append(process)
        theirs.close()

    def run(self, task: Task, count: int, round: int) -> None:  # noqa: D102 (see Executor)
        if not self._finish.alive:
            raise StateError("the engine is closed")
        self._counter.value = 0
        self._at.array[:] = -1
        try:
            failures = self._collect(task, count, round)
        except BaseException:
            # Interrupted, or a worker died: the others may be in the middle of a task.
            for process in self._processes:
                process.terminate()
            self.close()
            raise
        if failures:
            message, trace = failures[0]
            error = MabRflError(message)
            error.add_note(f"in a worker process:\n{trace}")
            raise error

    def _collect(self, task: Task, count: int, round: int) -> list[tuple[str, str]]:
        """Send the order to every worker and wait for all of them; return their failures."""
        failures = []
        waiting = dict(enumerate(self._connections))
        for number, connection in waiting.items():
            try:
                connection.send((task, count, round))
            except OSError:
                raise self._death(number, task, round) from None
        while waiting:
            wait([*waiting.values(), *(self._processes[number].sentinel for number in waiting)])
            for number, connection in list(waiting.items()):
                try:
                    failure = connection.recv() if connection.poll() else None
                    if failure is None:
                        if self._processes[number].exitcode is not None:
                            raise EOFError
                        continue
                except (EOFError, OSError):
                    raise self._death(number, task, round) from None
                del waiting[number]
                if failure:
                    failures.append(failure)
                    self._counter.value = count  # the others start no further task
        return failures

    def _death(self, number: int, task: Task, round: int) -> MabRflError:
        at, process = int(self._at.array[number]), self._processes[number]
        work = self._trainer.describe(task, at, round) if at >= 0 else "no task could be given out"
        process.join(_DEATH_SECONDS)
        code = process.exitcode
        hint = "; was it killed because memory ran out?" if code == -getattr(signal, "SIGKILL", 9) else ""
        kind = KilledError if was_killed(code) else MabRflError
        return kind(f"{work}: worker {number} died (exit code {code}){hint}")

    def close(self) -> None:  # noqa: D102 (see Executor)
        self._finish()


def _shut_down(processes: list[BaseProcess], connections: list[Connection], owner: int) -> None:
    """Stop the workers and wait for them; in a forked child, which owns none of them, do nothing."""
    if os.getpid() != owner:
        return
    for connection in connections:
        # Closing is not enough: other processes of the caller may hold copies of our end of the pipe.
        with contextlib.suppress(OSError):
            connection.send(None)
        connection.close()
    for process in processes:
        process.join(_EXIT_SECONDS)
        if process.exitcode is None:
            process.terminate()
            process.join(_EXIT_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
        process.close()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Delay Ctrl-C while processes are being started."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class _Worker:
    """The arguments of a worker process.

    Attributes
    ----------
    trainer
        Does the tasks.
    counter
        Number of the next task, shared and locked.
    at
        The task that each worker is doing.
    number
        The number of this worker.
    parent
        Process id of the parent.
    """

    trainer: Trainer
    counter: Any
    at: SharedArray
    number: int
    parent: int

    def serve(self, connection: Connection, inherited: list[Connection]) -> None:
        """Do the parent's orders until it sends None or ends."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops its workers
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for other in inherited:
            other.close()
        torch.set_num_threads(1)
        keep_freed_memory()
        with contextlib.suppress(EOFError, OSError):
            while True:
                while not connection.poll(_PARENT_CHECK_SECONDS):
                    if os.getppid() != self.parent:
                        return
                if (order := connection.recv()) is None:
                    return
                connection.send(self._work(*order))

    def _work(self, task: Task, count: int, round: int) -> tuple[()] | tuple[str, str]:
        """Do tasks until none is left; return nothing, or the error and its traceback."""
        while os.getppid() == self.parent:
            with self.counter.get_lock():
                number = self.counter.value
                self.counter.value += 1
            if number >= count:
                break
            self.at.array[self.number] = number
            try:
                self.trainer.run(task, number, round)
            except MabRflError as error:
                return str(error), traceback.format_exc()
        return ()


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory instead of returning it to the system: a tenth more speed.

    The activations of a batch are a few megabytes, freed and allocated again at every step; by default each time
    costs thousands of page faults. Only called in our own processes.
    """
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, 1 << 30)
        mallopt(top_pad, 64 << 20)
