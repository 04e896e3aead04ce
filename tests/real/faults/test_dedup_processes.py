"""Deduplicated calls across real processes, some of which are killed or paused in the middle."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from segmented import Dedup, RedisStore
from segmented.dedup.identity import explicit_key
from segmented.errors import InFlight
from segmented.keys import once_keys
from segmented.servers import ValkeyServer
from tests.real.faults.dedup_caller import NAMESPACE, end_of
from tests.support.contract.parking import wait_until

SOON = 100.0
LONG = 600.0
"""A lease that no machine that stands still for a while ends."""
SHORT = 1.0
"""A lease that is to lapse."""
RENEWED = 15.0
"""A lease that is renewed every 5 s, and is left alone for 10 s without being lost."""
LOG = "log"
RECORD = once_keys(NAMESPACE, explicit_key(NAMESPACE, "key")).record


class Callers:
    """Processes that make a call each, and the log of those that ran."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.server = redis.Redis.from_url(url, decode_responses=True)
        self.stack = ExitStack()
        self.dedup = Dedup(self.stack.enter_context(RedisStore.from_url(url)), NAMESPACE, ttl=LONG)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, colour: str, *, lease: float = LONG) -> subprocess.Popen[str]:
        """Start a process whose call, if it runs, goes on until `end_calls`."""
        arguments = [self.url, "key", LOG, colour, str(lease)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.faults.dedup_caller", *arguments], stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def ran(self) -> list[int]:
        found: list[str] = self.server.lrange(LOG, 0, -1)  # type: ignore[assignment]  # the client is synchronous
        return [int(process_id) for process_id in found]

    def wait_for_runs(self, count: int) -> None:
        wait_until(lambda: len(self.ran()) >= count, seconds=SOON)

    def end_calls(self) -> None:
        """Let the calls end that run now, or begin later."""
        self.server.set(end_of(LOG), "1")

    def run_until_ms(self) -> int:
        """Return the time, by the server's clock, at which the lease of the run ends."""
        return int(str(self.server.hget(RECORD, "run_until")))

    def lapse(self) -> None:
        """Let the lease of the run be over."""
        self.server.hset(RECORD, "run_until", "1")

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.stack.close()
        self.server.close()


@pytest.fixture
def callers(valkey: ValkeyServer) -> Iterator[Callers]:
    made = Callers(valkey.url)
    yield made
    made.close()


def test_f13_a_call_killed_on_the_way_runs_again_after_its_lease_and_not_before(callers: Callers) -> None:
    victim = callers.start("sync")
    callers.wait_for_runs(1)
    victim.send_signal(signal.SIGKILL)
    victim.wait(SOON)
    with pytest.raises(InFlight) as refused:
        callers.dedup.begin("key")
    assert refused.value.free_in is not None
    assert 0 < refused.value.free_in <= LONG
    callers.lapse()
    assert callers.dedup.call("key", lambda: "again", timeout=SOON) == "again"
    assert callers.ran() == [victim.pid]


def test_f7_a_call_paused_past_its_lease_is_overtaken_and_its_outcome_not_kept(callers: Callers) -> None:
    sleeper = callers.start("async", lease=SHORT)
    callers.wait_for_runs(1)
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)  # all its threads stand still
    try:
        assert callers.dedup.call("key", lambda: "newer", timeout=SOON) == "newer"
        callers.end_calls()
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    assert sleeper.communicate(timeout=SOON)[0].strip() == "RunLost"
    assert callers.dedup.call("key", lambda: "third") == "newer"


def test_f7_a_call_that_goes_on_is_renewed_and_keeps_its_key(callers: Callers) -> None:
    worker = callers.start("sync", lease=RENEWED)
    callers.wait_for_runs(1)
    first_until = callers.run_until_ms()
    wait_until(lambda: callers.run_until_ms() > first_until, seconds=SOON)
    with pytest.raises(InFlight):
        callers.dedup.begin("key")
    callers.end_calls()
    assert callers.dedup.call("key", os.getpid, timeout=SOON) == worker.pid
    assert worker.communicate(timeout=SOON)[0].strip() == str(worker.pid)
