"""Turns between processes, as the page on waiting tells them: no order, and no bound on how long one is passed over."""

import threading
from typing import Final

import pytest

from segmented import Lock, RedisStore
from segmented.keys import lock_keys
from segmented.locks.lock import LockClaim
from segmented.servers import ValkeyServer
from tests.support.contract.parking import has_come_to_rest, wait_until

TURNS: Final = 200
THREADS: Final = 4
SOON: Final = 120.0


def test_a_process_that_hears_late_of_releases_is_passed_over_far_more_than_16_times(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LockClaim, "look_seconds", 600.0)  # it does not look by itself meanwhile
    turns, ended = [0] * THREADS, threading.Event()
    with RedisStore.from_url(valkey.url) as near, RedisStore.from_url(valkey.url) as far:
        monkeypatch.setattr(far.wakeups, "hear", lambda _channel, _said: None)  # its messages are still on their way

        def take_turns(index: int) -> None:
            while not ended.is_set():
                with Lock(near, "door", ttl=60).acquire(timeout=SOON):
                    turns[index] += 1

        held = Lock(near, "door", ttl=60).acquire(timeout=SOON)
        waiting = threading.Thread(target=lambda: Lock(far, "door", ttl=60).acquire(timeout=2 * SOON).release())
        waiting.start()
        wait_until(lambda: has_come_to_rest(far, 1))
        passing = [threading.Thread(target=take_turns, args=(index,)) for index in range(THREADS)]
        for thread in passing:
            thread.start()
        held.release()
        wait_until(lambda: sum(turns) > TURNS)
        assert waiting.is_alive()
        ended.set()
        for thread in passing:
            thread.join(SOON)
        far.wakeups.signal(lock_keys("door").freed)  # it hears at last
        waiting.join(SOON)
        assert not waiting.is_alive()
