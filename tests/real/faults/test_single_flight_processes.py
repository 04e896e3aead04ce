"""Single flights across real processes, some of which are killed or paused. Row J7 of the catalogue."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from segmented import RedisStore
from segmented.keys import lock_keys
from segmented.locks.flights import single_flight
from segmented.servers import ValkeyServer
from tests.real.faults.dedup_caller import end_of
from tests.support.contract.parking import wait_until

SOON = 100.0
LONG = 600.0
"""A lease that no machine that stands still for a while ends."""
SHORT = 4.5
"""A lease that is to lapse."""
LOG = "log"


class Callers:
    """Processes that ask for one key, and the log of their loaders' calls."""

    def __init__(self, valkey: ValkeyServer) -> None:
        self.url = valkey.url
        self.server = redis.Redis.from_url(valkey.url, decode_responses=True)
        self.processes: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def start(self, colour: str, callers: int, *, lease: float = LONG) -> subprocess.Popen[str]:
        """Start a process; return once it is ready to begin. Its loader goes on until `end_calls`."""
        arguments = [self.url, "key", LOG, colour, str(callers), str(lease)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.faults.flight_caller", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def begin(self, *processes: subprocess.Popen[str]) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("begin\n")
            process.stdin.flush()

    def results(self, *processes: subprocess.Popen[str]) -> list[int]:
        """Wait for the processes' end, and return what all their callers got."""
        found: list[int] = []
        for process in processes:
            out, _ = process.communicate(timeout=SOON)
            found += json.loads(out.splitlines()[-1])
        return found

    def calls(self) -> list[int]:
        """Return the process of each call of a loader, in order."""
        return [int(process_id) for process_id in self._log()]

    def wait_for_calls(self, count: int) -> None:
        wait_until(lambda: len(self._log()) >= count, seconds=SOON)

    def wait_for_waiters(self, count: int) -> None:
        """Wait until so many processes have subscribed to the key's channel: their callers wait."""
        wait_until(lambda: self._subscribers() >= count, seconds=SOON)

    def end_calls(self) -> None:
        """Let the loaders end that run now, or begin later."""
        self.server.set(end_of(LOG), "1")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.server.close()

    def _log(self) -> list[str]:
        found: list[str] = self.server.lrange(LOG, 0, -1)  # type: ignore[assignment]  # the client is synchronous
        return found

    def _subscribers(self) -> int:
        found: Any = self.server.pubsub_numsub(lock_keys("key").freed)
        return int(found[0][1])


@pytest.fixture
def callers(valkey: ValkeyServer) -> Iterator[Callers]:
    made = Callers(valkey)
    yield made
    made.close()


def test_j7_eight_callers_in_two_processes_are_one_loader_call(callers: Callers) -> None:
    processes = [callers.start("sync", 4) for _ in range(2)]
    callers.begin(*processes)
    callers.wait_for_waiters(2)
    callers.end_calls()
    found = callers.results(*processes)
    (loaded,) = callers.calls()
    assert found == [loaded] * 8
    assert loaded in {process.pid for process in processes}


def test_j7_a_loader_that_is_killed_in_the_middle_costs_exactly_one_more_call(callers: Callers) -> None:
    victim = callers.start("async", 1, lease=LONG)
    callers.begin(victim)
    callers.wait_for_calls(1)
    processes = [callers.start("async", 4) for _ in range(2)]
    callers.begin(*processes)
    callers.wait_for_waiters(2)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait(SOON)
    callers.server.pexpire(lock_keys("key").lock, 1)  # now, and not in ten minutes
    callers.wait_for_calls(2)
    callers.end_calls()
    found = callers.results(*processes)
    first, second = callers.calls()
    assert first == victim.pid
    assert found == [second] * 8


def test_j7_a_loader_paused_past_its_lease_does_not_overwrite_its_successors_value(
    callers: Callers,
) -> None:
    sleeper = callers.start("sync", 1, lease=SHORT)
    callers.begin(sleeper)
    callers.wait_for_calls(1)
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)  # all its threads stand still
    callers.end_calls()
    processes = [callers.start("sync", 4) for _ in range(2)]
    callers.begin(*processes)
    found = callers.results(*processes)
    os.kill(sleeper.pid, signal.SIGCONT)
    assert callers.results(sleeper) == [sleeper.pid]  # what it loaded is good for its own caller
    first, second = callers.calls()
    assert (first, found) == (sleeper.pid, [second] * 8)
    with RedisStore.from_url(callers.url) as store:
        assert single_flight(store, keep=60).peek("key") == second
