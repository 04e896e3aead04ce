"""Who types the names of redis-py's lock is told ours, and a name that does not exist stays an AttributeError."""

from __future__ import annotations

import asyncio
import copy
import inspect
from typing import Any

import pytest

from segmented import AsyncLock, AsyncMemoryStore, InvalidInput, Lock, MemoryStore, locks
from segmented.locks import read_write
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


LOCK_KINDS = [
    getattr(module, f"{prefix}{name}")
    for module, name in (
        *(
            (locks, f"{name}Lock")
            for name in ("", "Fair", "GetSet", "Multi", "Quorum", "Reentrant", "SqlRow", "ZooKeeper")
        ),
        (locks, "Semaphore"),
        *((read_write, f"{name}Lock") for name in ("Read", "Write")),
    )
    for prefix in ("", "Async")
]
INSTEAD = "to try without waiting, or {}lock.acquire(timeout=seconds) to wait"


async def ended(answer: object) -> object:
    return await answer if inspect.iscoroutine(answer) else answer


@pytest.mark.parametrize("is_async", [False, True])
def test_the_arguments_of_other_libraries_locks_name_the_call_to_use(*, is_async: bool) -> None:
    def refused(lock: Any, *args: object, **named: object) -> str:  # noqa: ANN401  # of any kind
        with pytest.raises(InvalidInput) as caught:
            asyncio.run(ended(lock.acquire(*args, **named)))
        return str(caught.value)

    kinds: list[Any] = [kind for kind in LOCK_KINDS if kind.__name__.startswith("Async") is is_async]
    assert len(kinds) == 11
    call = "await " * is_async
    for kind in kinds:
        lock, name = object.__new__(kind), f"{kind.__name__}.acquire() has no"
        instead = f"use {call}lock.try_acquire() {INSTEAD.format(call)}"
        assert refused(lock, blocking=False) == f"{name} blocking: {instead}"
        assert refused(lock, blocking=True, timeout=5) == f"{name} blocking: {instead}"
        assert refused(lock, blocking_timeout=5) == f"{name} blocking_timeout: {instead}"
        assert refused(lock, True, 5) == f"{name} second argument: {instead}"  # noqa: FBT003  # as typed first
    own: Any = AsyncLock(AsyncMemoryStore(), "a") if is_async else Lock(MemoryStore(), "a")
    assert "try_acquire() does not wait" in refused(own, False)  # noqa: FBT003  # as typed first
    with pytest.raises(TypeError, match="'nonsense'"):
        own.acquire(nonsense=1)
