"""A process that is suspended for longer than its lease, and goes on."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import pytest

from segmented import Lock, RedisStore

TTL: Final = 1.0
SOON: Final = 100.0


@pytest.fixture
def holder(valkey_url: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "tests.real.faults.suspended_holder", valkey_url, "suspended", str(TTL)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_holder_that_was_suspended_for_longer_than_its_lease_never_trusts_it_again(
    holder: subprocess.Popen[str], valkey_url: str
) -> None:
    assert holder.stdin is not None
    assert holder.stdout is not None
    first = int(holder.stdout.readline())
    holder.send_signal(signal.SIGSTOP)
    until = time.monotonic() + 1.5 * TTL  # it knows by its clock that it was suspended for longer than its lease
    with RedisStore.from_url(valkey_url) as store, Lock(store, "suspended", ttl=600).acquire(timeout=SOON) as successor:
        time.sleep(max(0.0, until - time.monotonic()))
        holder.stdin.write("go on\n")
        holder.stdin.flush()
        holder.send_signal(signal.SIGCONT)
        trusted, told, is_lost, released = json.loads(holder.stdout.readline())
        assert (trusted, told, is_lost, released) == (0, True, True, "lost")
        assert successor.is_trusted
        assert successor.fencing_token > first
    assert holder.wait(SOON) == 0
