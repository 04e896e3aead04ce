"""Turns between processes, as the page on waiting tells them: no order, and no bound on how long one is passed over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Lock, RedisStore
from segmented.errors import AcquireTimeout
from tests.contract.parking import has_come_to_rest, wait_until

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

TURNS: Final = 200
THREADS: Final = 4
ROUNDS: Final = 6
"""In each, one that hears nothing looks three times by itself, and may find the lock free between two turns."""


@pytest.mark.full
def test_a_process_that_hears_of_releases_late_is_passed_over_far_more_often_than_sixteen_times(
    valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisStore.from_url(valkey.url) as near, RedisStore.from_url(valkey.url) as far:
        monkeypatch.setattr(far.wakeups, "hear", lambda _channel, _said: None)  # its messages are still on their way
        rounds = (turns_before(near, far) for _ in range(ROUNDS))
        passed_over = next(turns for outcome, turns in rounds if isinstance(outcome, AcquireTimeout))
    assert passed_over > TURNS


def turns_before(near: RedisStore, far: RedisStore) -> tuple[AcquireTimeout | None, int]:
    """Return what ended a wait of 2 s in one process, and how often four threads of another have had the lock."""
    held = Lock(near, "door", ttl=60).acquire(timeout=5)
    ended, turns, outcome = threading.Event(), [0] * THREADS, list[AcquireTimeout]()

    def wait_far() -> None:
        try:
            Lock(far, "door", ttl=60).acquire(timeout=2).release()
        except AcquireTimeout as error:
            outcome.append(error)
        ended.set()

    def take_turns(index: int) -> None:
        while not ended.is_set():
            with Lock(near, "door", ttl=60).acquire(timeout=10):
                turns[index] += 1

    threads = [threading.Thread(target=wait_far)]
    threads[0].start()
    wait_until(lambda: has_come_to_rest(far, 1))
    threads += [threading.Thread(target=take_turns, args=(index,)) for index in range(THREADS)]
    for thread in threads[1:]:
        thread.start()
    held.release()
    for thread in threads:
        thread.join(20)
    return next(iter(outcome), None), sum(turns)
