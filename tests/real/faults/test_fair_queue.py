"""Processes that die, or stand still, at the head of a fair lock's queue: those behind them have the lock in time.

The bounds are those of `segmented.locks.fair`: nothing for any number of dead waiters whose connections have ended; one
claim for a process that stands still, or has died unnoticed, with any number of waiters; a dead holder's lease; and one
look more where the process that minded it has died too.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final

import pytest

from segmented.clock import SystemClock
from segmented.keys import fair_keys
from segmented.locks import Lease
from segmented.locks.fair import TIMES, AsyncFairLock, FairLock
from segmented.protocol.fair import ReleaseFair
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.paths import ROOT

LONG: Final = 600.0
"""Seconds of a lease that lapses in no test by itself."""
START_SECONDS: Final = 60.0
PATIENCE: Final = 200.0

Process = subprocess.Popen[str]
Start = Callable[..., Process]
"""Starts a process with so many waiters for a name, all at rest, or with its holder too."""


@pytest.fixture(params=[REDIS[0], pytest.param(REDIS[-1], marks=pytest.mark.long)], ids=str)
def side(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[Side]:
    made = make_side(request.param, SystemClock(), valkey_url)
    yield made
    made.close()


@pytest.fixture
def start(valkey_url: str) -> Iterator[Start]:
    """Start processes that do not outlive the test."""
    started: list[Process] = []

    def start(name: str, count: int, *, ttl: float | None = None) -> Process:
        command = [sys.executable, "-m", "tests.real.faults.fair_waiters", valkey_url, name, str(count)]
        command += [] if ttl is None else [str(ttl)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert next_word(process) == "waiting"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(START_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def next_word(process: Process) -> str:
    """Return what the process says next."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def made(side: Side, name: str) -> FairLock:
    return side.made(lambda store: FairLock(store, name, ttl=LONG), lambda store: AsyncFairLock(store, name, ttl=LONG))


def start_waiting(side: Side, lock: FairLock) -> Future[Lease]:
    call = side.start(lambda: lock.acquire(timeout=PATIENCE))
    wait_until(partial(has_come_to_rest, side.store, 1))
    return call


def listeners(side: Side, name: str) -> int:
    return len(side.raw().pubsub_channels(f"{fair_keys(name).turn}:*"))


def got(call: Future[Lease], seconds: float) -> None:
    """Wait until a waiter has the lock, and release it."""
    call.result(seconds).release()


def lapse(side: Side, name: str) -> None:
    """Let the lease of a dead holder lapse."""
    assert side.raw().pexpire(fair_keys(name).lock, 1)


def test_d12_d13_fifty_waiters_that_are_killed_at_the_head_cost_the_next_one_nothing(side: Side, start: Start) -> None:
    name = side.name("lock")
    held = made(side, name).acquire(timeout=0)
    processes = [start(name, count) for count in (48, 1, 1)]
    living = start_waiting(side, made(side, name))
    assert listeners(side, name) == 51
    for process in processes:
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: listeners(side, name) == 1)
    # A waiter has ten minutes to claim the lock. None of the fifty dead ones is given that time.
    side.execute(ReleaseFair(name, held.holder_id, replace(TIMES, claim_ms=round(LONG * 1000))))
    got(living, PATIENCE)


def test_d13_50_stopped_waiters_cost_one_claim_and_have_their_turns_when_they_go_on(side: Side, start: Start) -> None:
    name = side.name("lock")
    queue = fair_keys(name).queue
    held = made(side, name).acquire(timeout=0)
    stopped = start(name, 50)
    second = start_waiting(side, made(side, name))
    stopped.send_signal(signal.SIGSTOP)
    held.release()
    held = second.result(PATIENCE)
    third = start_waiting(side, made(side, name))
    assert side.raw().zcard(queue) == 1
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: side.raw().zcard(queue) == 51)
    held.release()
    assert [next_word(stopped) for _ in range(50)] == ["acquired"] * 50
    got(third, PATIENCE)


def test_d3_a_holder_that_dies_with_fifty_waiters_of_its_process_costs_its_lease(side: Side, start: Start) -> None:
    name = side.name("lock")
    process = start(name, 50, ttl=LONG)
    living = start_waiting(side, made(side, name))
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: listeners(side, name) == 1)
    lapse(side, name)
    got(living, PATIENCE)
