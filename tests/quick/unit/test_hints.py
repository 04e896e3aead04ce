"""Who types the names of redis-py's lock is told ours, and a name that does not exist stays an AttributeError."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from typing import Any

import pytest

import segmented
from segmented import AsyncLock, AsyncMemoryStore, InvalidInput, Lock, MemoryStore, locks, stock
from segmented.dedup import celery
from segmented.locks import get_set, multi, read_write, sql_row, zookeeper

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
        (LEASE, "reacquire", "Lease has no 'reacquire': it is called renew: lease.renew(ttl=seconds)"),
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
LEASE_KINDS = [
    *(locks.Lease, locks.AsyncLease, multi.MultiLease, multi.AsyncMultiLease),
    *(zookeeper.ZooKeeperLease, zookeeper.AsyncZooKeeperLease),
    *(get_set.GetSetLease, get_set.AsyncGetSetLease, sql_row.HeldRow),
]
CALLS = re.compile(r"(await )?\b(lock|lease)\.(?:read\.|write\.)?(acquire|try_acquire|is_locked|release|renew)\(")
SIDES = [segmented.ReadWriteLock, segmented.AsyncReadWriteLock]


@pytest.mark.parametrize("kind", [*LOCK_KINDS, *SIDES, *LEASE_KINDS])
def test_every_lock_and_lease_answers_a_method_of_another_library(kind: Any) -> None:  # noqa: ANN401  # of any kind
    found, is_lease = object.__new__(kind), kind in LEASE_KINDS
    names = ["unlock", "extend", "renew", "expire", "refresh", "locked", "token"]
    for name in [*names, "acquire"] if is_lease else [*names, "lock", "tryLock", "try_lock", "release", "forceUnlock"]:
        if name in dir(kind):
            continue
        with pytest.raises(AttributeError) as missing:
            getattr(found, name)
        said = str(missing.value)
        assert said.startswith(f"{kind.__name__} has no {name!r}: ")
        for awaits, of, method in CALLS.findall(said):
            assert bool(awaits) is kind.__name__.startswith("Async")
            assert (of == "lease") is not is_lease or kind in SIDES or hasattr(kind, method)


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


@pytest.mark.parametrize(
    ("kind", "arguments", "sentence"),
    [
        ("Lock", {"timeout": 30}, "timeout: the time to live is ttl=seconds, and how long to wait is said later: lock"),
        ("FairLock", {"expire": 30}, "expire: the time to live is ttl=seconds"),
        ("AsyncLock", {"blocking_timeout": 3}, "blocking_timeout: how long to wait is said later: await lock.acquire("),
        ("ReentrantLock", {"auto_renewal": True}, "auto_renewal: a lease is renewed in the background with renew=True"),
        ("ReadWriteLock", {"leaseTime": 3}, "leaseTime: the time to live is ttl=seconds"),
        ("SqlRowLock", {"expire": 3}, "expire: the lock has no time to live: it ends with its transaction or session"),
        ("Pool", {"stock": 3}, "stock: use pool.open(stock=units, segments=K)"),
        (
            "AsyncPool",
            {"timeout": 3},
            "timeout: the time to live is ttl=seconds, and how long to wait is said later: a",
        ),
        ("Dedup", {"expire": 3}, "expire: ttl=seconds is how long a dead worker keeps its run, and keep=seconds how"),
        ("Dedup", {"graceful": True}, "graceful: a repeat gets the first handle; its is_repeat says so"),
    ],
)
def test_an_option_of_another_library_is_answered(kind: str, arguments: dict[str, object], sentence: str) -> None:
    found = next(getattr(module, kind) for module in (segmented, locks, celery) if kind in dir(module))
    with pytest.raises(InvalidInput) as refused:
        found(MemoryStore(), "x", **arguments)
    assert str(refused.value).startswith(f"{kind}() has no {sentence}")


def test_every_kind_of_lock_and_pool_answers_an_option_of_another_library() -> None:
    pools = [segmented.Pool, segmented.AsyncPool, stock.ShardedPool, stock.AsyncShardedPool]
    for kind in [*LOCK_KINDS, *pools, segmented.ReadWriteLock, segmented.AsyncReadWriteLock]:
        with pytest.raises(InvalidInput, match="has no timeout: the"):
            kind(None, "x", timeout=3)
    with pytest.raises(
        InvalidInput, match=r"^Lock\(\) takes its options by name, as in Lock\(store, name, ttl=seconds\)$"
    ):
        segmented.Lock(MemoryStore(), "x", 30)  # type: ignore[call-arg]  # it has to be refused
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        segmented.Lock(MemoryStore(), "x", nonsense=1)  # type: ignore[call-arg]  # it has to be refused
    assert str(inspect.signature(segmented.Lock)).startswith("(store: 'Store', name: 'str', *, ttl: 'Duration' = 30.0")


@pytest.mark.parametrize(
    ("name", "here"), [("RLock", "segmented import ReentrantLock"), ("Redlock", "segmented.locks import QuorumLock")]
)
def test_a_class_of_another_library_is_named_as_it_is_called_here(name: str, here: str) -> None:
    called = here.rpartition(" ")[2]
    with pytest.raises(AttributeError) as missing:
        getattr(segmented, name)
    assert str(missing.value) == f"segmented has no {name!r}, which is called {called} here: from {here}"
