"""Who types the names of redis-py's lock is told ours, and a name that does not exist stays an AttributeError."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from segmented import AsyncLock, AsyncMemoryStore, Lock, MemoryStore
from segmented.locks.hints import LEASE_HINTS, LOCK_HINTS

LOCK: Any = Lock(MemoryStore(), "door")
ASYNC_LOCK: Any = AsyncLock(AsyncMemoryStore(), "door")
LEASE: Any = LOCK.acquire()


@pytest.mark.parametrize(
    ("found", "name", "sentence"),
    [
        (LOCK, "release", "Lock has no 'release': the lease that acquire() returned has it: lease.release()"),
        (LOCK, "locked", "Lock has no 'locked': the lock tells it: lock.is_locked()"),
        (LOCK, "owned", "Lock has no 'owned': use the lease that acquire() returned: lease.is_trusted"),
        (ASYNC_LOCK, "blocking", "AsyncLock has no 'blocking': use await lock.try_acquire() to try without waiting"),
        (LEASE, "reacquire", "Lease has no 'reacquire': it is called renew: lease.renew()"),
        (LEASE, "adopt", "Lease has no 'adopt': the lock has it: lock.adopt(holder_id)"),
        (LOCK, "nonsense", "'Lock' object has no attribute 'nonsense'"),
    ],
)
def test_a_missing_name_is_told_in_one_sentence(found: Any, name: str, sentence: str) -> None:  # noqa: ANN401  # has none of the names
    with pytest.raises(AttributeError) as missing:
        getattr(found, name)
    assert str(missing.value) == sentence
    assert (missing.value.name, missing.value.obj) == (name, found)
    assert not hasattr(found, name)


def test_no_hint_hides_a_name_that_exists() -> None:
    for name in LOCK_HINTS:
        assert not hasattr(LOCK, name)
    for name in LEASE_HINTS:
        assert not hasattr(LEASE, name)


def test_a_handle_is_copied_as_before() -> None:
    assert copy.copy(LOCK).name == "door"
