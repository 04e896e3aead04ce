"""What the keeper of leases does, and stops doing, when something goes wrong around it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from segmented import Lock, MemoryStore
from segmented.errors import StoreUnavailable
from segmented.operations import Operation, ReleaseLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Moody(MemoryStore):
    """A store that does not answer one release."""

    is_mute = True

    def execute(self, operation: Operation[Any]) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, ReleaseLock) and self.is_mute:
            self.is_mute = False
            message = "no answer"
            raise StoreUnavailable(message)
        return super().execute(operation)


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_renewing_lease_outlives_its_time_to_live_and_ends_with_its_release() -> None:
    store = MemoryStore()
    with Lock(store, "door", ttl=0.15, renew=True).acquire() as lease:
        assert not lease.lost.wait(0.5)
        assert Lock(store, "door").try_acquire() is None
    assert Lock(store, "door").try_acquire() is not None


def test_a_lost_lease_is_told_at_once() -> None:
    lease = Lock(MemoryStore(), "door", ttl=0.15).acquire()
    told = threading.Event()
    lease.on_lost(told.set)
    assert told.wait(5)
    assert lease.lost.is_set()


def test_a_release_that_fails_is_not_renewed_any_more() -> None:
    store = Moody()
    lease = Lock(store, "door", ttl=0.15, renew=True).acquire()
    with pytest.raises(StoreUnavailable):
        lease.release()
    assert Lock(store, "door").acquire(timeout=5).fencing_token > lease.fencing_token


def test_a_callback_that_raises_ends_neither_the_keeper_nor_the_other_callbacks() -> None:
    store, told = MemoryStore(), threading.Event()
    other = Lock(store, "window", ttl=0.15, renew=True).acquire()
    bad = Lock(store, "door", ttl=0.1).acquire()
    bad.on_lost(lambda: 1 / 0)  # type: ignore[arg-type]  # any callable
    bad.on_lost(told.set)
    assert told.wait(5)
    assert not other.lost.wait(0.5)
    other.release()


def test_the_keeper_ends_when_there_is_nothing_left_to_look_after() -> None:
    with Lock(MemoryStore(), "door", ttl=5, renew=True).acquire() as lease:
        assert lease.is_trusted
    wait_until(lambda: not any(thread.name == "segmented-keeper" for thread in threading.enumerate()))
