import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from mabrfl.errors import ConfigError, MabRflError, StateError
from mabrfl.simulation.data.dataset import Dataset
from mabrfl.simulation.training import Engine, Shard, TrainingOptions
from waiting import wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes the Linux way")

DATA = Dataset("toy", np.zeros((40, 6), np.uint8), np.zeros(40, int), np.zeros((8, 6), np.uint8), np.zeros(8, int), 4)
SHARDS = [Shard(np.arange(size)) for size in (3, 4, 5, 6)]


class Special(nn.Linear):
    """Does something unusual when it trains on a batch of five."""

    def __init__(self, unusual):
        super().__init__(6, 4)
        self.unusual = unusual

    def forward(self, rows):
        if self.training and len(rows) == 5:
            self.unusual()
        return super().forward(rows)


def special_engine(unusual):
    return Engine(lambda: Special(unusual), DATA, SHARDS, TrainingOptions(epochs=1), workers=2)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def worker_pids(engine):
    return [process.pid for process in engine._executor._processes]


def fail():
    raise RuntimeError("five is too many")


def test_an_error_in_a_worker_arrives_with_client_and_message_and_the_engine_goes_on():
    with special_engine(fail) as engine:
        message = "training of client 2 in round 7 failed: RuntimeError: five is too many"
        with pytest.raises(MabRflError, match=message) as caught:
            engine.train([0, 1, 2, 3], engine.initial_weights, round=7)
        assert "in fail" in caught.value.__notes__[0]
        assert engine.train([0, 1, 3], engine.initial_weights, round=7).updates.any(axis=1).all()


def test_a_worker_that_dies_is_an_error_with_the_client_and_not_a_hang():
    with special_engine(lambda: os.kill(os.getpid(), signal.SIGKILL)) as engine:
        pids = worker_pids(engine)
        message = r"training of client 2 in round 1 failed: worker \d died \(exit code -9\); was it killed"
        with pytest.raises(MabRflError, match=message):
            engine.train([0, 1, 2, 3], engine.initial_weights, round=1)
        assert not any(is_alive(pid) for pid in pids)
        with pytest.raises(StateError, match="the engine is closed"):
            engine.evaluate(engine.initial_weights)


def test_a_worker_that_died_between_rounds_is_noticed():
    with special_engine(fail) as engine:
        victim = worker_pids(engine)[1]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not is_alive(victim), "it does not end")
        with pytest.raises(MabRflError, match=r"no task could be given out: worker 1 died \(exit code -9\)"):
            engine.train([0], engine.initial_weights, round=1)


def test_closing_ends_all_workers_and_may_be_repeated():
    engine = special_engine(fail)
    pids = worker_pids(engine)
    assert all(is_alive(pid) for pid in pids)
    engine.close()
    engine.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # not even zombies


def test_an_engine_that_is_forgotten_takes_its_workers_along():
    engine = special_engine(fail)
    pids = worker_pids(engine)
    del engine
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_two_engines_do_not_keep_each_others_workers_alive():
    first, second = special_engine(fail), special_engine(fail)
    pids = worker_pids(first)
    first.close()
    assert not any(is_alive(pid) for pid in pids)
    assert second.train([0], second.initial_weights, round=1).updates.any()
    second.close()


def train_until_interrupted(connection):
    def stay():
        connection.send("at work")
        while os.getppid() == parent:
            time.sleep(0.01)

    parent = os.getpid()
    try:
        with special_engine(stay) as engine:
            connection.send(worker_pids(engine))
            engine.train([0, 1, 2, 3], engine.initial_weights, round=1)
    except KeyboardInterrupt:
        connection.send("interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_a_parent_that_is_interrupted_or_killed(number):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    parent = context.Process(target=train_until_interrupted, args=(theirs,))
    parent.start()
    theirs.close()  # so that nothing is waited for in vain
    pids = ours.recv()
    assert ours.recv() == "at work"
    # Ctrl-C in a terminal reaches the whole group; of a killed parent the workers have to notice themselves.
    for pid in [*pids, parent.pid] if number == signal.SIGINT else [parent.pid]:
        os.kill(pid, number)
    wait_until(lambda: parent.exitcode is not None, "the parent does not end")
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "the workers do not end")
    if number == signal.SIGINT:
        assert ours.recv() == "interrupted"
        assert parent.exitcode == 0


def test_a_model_that_cannot_be_sent_to_a_spawned_worker_is_refused():
    class Local(nn.Linear):
        pass

    with pytest.raises(ConfigError, match=r"cannot be sent to a worker process .* workers=1"):
        Engine(lambda: Local(6, 4), DATA, SHARDS, workers=2, start_method="spawn")
