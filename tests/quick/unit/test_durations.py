"""Every duration is a number of seconds or a timedelta, and has one name and one default everywhere."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import redis

from segmented import (
    AcquireTimeout,
    AsyncLock,
    AsyncMemoryStore,
    Busy,
    Dedup,
    FairLock,
    InvalidInput,
    Lock,
    MemoryStore,
    Outbox,
    Pool,
    ReadWriteLock,
    RedisStore,
    single_flight,
)
from segmented.cli.reference import MODULES, public_names
from segmented.locks import GetSetLock, MultiLock, QuorumStore, locked
from segmented.locks.durations import DEFAULT_TIMEOUT
from segmented.orders import Gate, WorkTerms, connect
from segmented.orders.forgetting import forget
from segmented.orders.relaying import relay
from segmented.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHORT = timedelta(milliseconds=50)
STORE = MemoryStore()


def works() -> int:
    return 7


MAKERS: list[tuple[str, Callable[[Any], object]]] = [
    ("ttl", lambda given: Lock(STORE, "n", ttl=given)),
    ("renew_max", lambda given: Lock(STORE, "n", renew_max=given)),
    ("replicas_timeout", lambda given: Lock(STORE, "n", replicas_timeout=given)),
    ("lock_delay", lambda given: Lock(STORE, "n", lock_delay=given)),
    ("timeout", lambda given: Lock(STORE, "n").acquire(given).release()),
    ("ttl", lambda given: MultiLock(STORE, ["n"], ttl=given)),
    ("ttl", lambda given: GetSetLock(STORE, "n", ttl=given)),
    ("ttl", lambda given: locked("n", store=STORE, ttl=given)(works)),
    ("timeout", lambda given: locked("n", store=STORE, timeout=given)(works)),
    ("keep", lambda given: single_flight(STORE, keep=given)),
    ("keep_none", lambda given: single_flight(STORE, keep=60, keep_none=given)),
    ("keep_failures", lambda given: single_flight(STORE, keep=60, keep_failures=given)),
    ("timeout", lambda given: single_flight(STORE, keep=60, timeout=given)),
    ("keep", lambda given: Dedup(STORE, "n", keep=given)),
    ("keep_failures", lambda given: Dedup(STORE, "n", keep_failures=given)),
    ("ttl", lambda given: Dedup(STORE, "n", ttl=given)),
    ("ttl", lambda given: Pool(STORE, "n", ttl=given)),
    ("hold", lambda given: Pool(STORE, "n", ttl=0.01, hold=given)),
    ("publish_after", lambda given: Outbox(publish_after=given)),
    ("ttl", lambda given: WorkTerms(ttl=given)),
    ("timeout", lambda given: WorkTerms(segment_timeout=given)),
    ("answer_timeout", lambda given: QuorumStore([MemoryStore() for _ in range(3)], answer_timeout=given).close()),
]


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[f"{number}-{name}" for number, (name, _) in enumerate(MAKERS)])
def test_a_duration_is_in_seconds_or_a_timedelta(name: str, make: Callable[[Any], object]) -> None:
    make(0.05)
    make(SHORT)
    for wrong in (-1, -SHORT, "1"):
        with pytest.raises(InvalidInput, match=rf"^{name} (of|is a)"):
            make(wrong)


def test_times_of_stores_databases_and_clocks_may_be_timedeltas(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.advance(timedelta(minutes=1))
    assert clock.now() == 1_060.0
    nobody = redis.Redis(port=1)
    RedisStore(nobody, patience=SHORT).close()
    with pytest.raises(InvalidInput, match=r"^patience is a number of seconds, 0 or more, not datetime\.timedelta"):
        RedisStore(nobody, patience=-SHORT)
    with Gate(connect(f"sqlite:///{tmp_path}/orders.db", timeout=timedelta(seconds=2))) as gate:
        pool = Pool(STORE, "n")
        for call in (relay, forget):
            with pytest.raises(InvalidInput, match=r"must be positive, not -0\.05 s$"):
                call(pool, gate, timeout=-SHORT)
    with pytest.raises(InvalidInput, match=r"a positive timeout, not 10 and -0\.05 s$"):
        connect("sqlite:///orders.db", timeout=-SHORT)


def test_a_wait_of_a_timedelta_ends_after_it() -> None:
    clock = ManualClock(auto=True)
    store = MemoryStore(clock=clock)
    Lock(store, "n", ttl=timedelta(minutes=5)).acquire()
    with pytest.raises(AcquireTimeout, match=r"^lock 'n' was not free within 60 s$"):
        Lock(store, "n").acquire(timedelta(minutes=1))
    assert clock.now() == 1_060.0
    for lock in (FairLock(store, "fair"), ReadWriteLock(store, "read and write").write):
        with lock.acquire(timedelta(0)), pytest.raises(AcquireTimeout, match=r"was not free within 0\.05 s"):
            lock.acquire(SHORT)


def test_a_wait_of_a_task_takes_a_timedelta_too() -> None:
    async def run() -> float:
        clock = ManualClock(auto=True)
        store = AsyncMemoryStore(clock=clock)
        await AsyncLock(store, "n", ttl=timedelta(minutes=5)).acquire()
        with pytest.raises(AcquireTimeout):
            await AsyncLock(store, "n").acquire(timedelta(minutes=1))
        return clock.now()

    assert asyncio.run(run()) == 1_060.0


def test_a_grant_waits_as_long_as_a_lock_and_answers_busy() -> None:
    clock = ManualClock(auto=True)
    pool = Pool(MemoryStore(clock=clock), "poster", ttl=300.0, hold=600.0)
    pool.open(stock=2, segments=1)
    pool.grant("order-1")
    assert isinstance(pool.grant("order-2"), Busy)
    assert clock.now() == 1_000.0 + DEFAULT_TIMEOUT


DEFAULTS: dict[str, set[object]] = {"renew": {False}, "timeout": {DEFAULT_TIMEOUT}}
NOT_WAITING = {"begin", "call", "perform", "__call__"}
"""Calls of Dedup do not wait unless asked to: a repeat learns that the first one is in flight."""
OTHERWISE = {
    "WebOptions": "as Dedup: a repeat gets 409 while the first one is in flight",
    "connect": "a database that does not reply is given up",
    "forget": "it works until all is dropped",
    "relay": "it works until all is copied",
    "RedisStore": "a server that does not reply at the first contact is given up",
    "AsyncRedisStore": "as RedisStore",
}
"""Other meanings of a time-out, each with the reason for its default."""
OTHER_NAMES = {"wait", "lease", "expire", "negative_ttl", "error_ttl", "blocking_timeout", "lifetime"}


def signatures() -> list[tuple[str, str, inspect.Parameter]]:
    """Return each parameter of each public class and function of the library, without the command line and servers."""
    found = []
    for module in (import_module(name) for name in MODULES if name not in LEFT_OUT):
        for name in public_names(module):
            value = getattr(module, name)
            calls = [value] if inspect.isfunction(value) else []
            if inspect.isclass(value) and not issubclass(value, Exception):
                calls = [one for one in vars(value).values() if inspect.isfunction(one)]
            found += [
                (name, call.__name__, one) for call in calls for one in inspect.signature(call).parameters.values()
            ]
    return found


LEFT_OUT = {"segmented.compat", "segmented.testing", "segmented.models"}
"""redis-py's own names; a clock, which moves by seconds; answers."""


def test_every_waiting_call_has_the_same_default_and_no_lock_renews_by_itself() -> None:
    wrong = [
        (name, call, one.name, one.default)
        for name, call, one in signatures()
        if one.name in DEFAULTS and call not in NOT_WAITING and name not in OTHERWISE
        if one.default is not inspect.Parameter.empty and one.default not in DEFAULTS[one.name]
    ]
    assert wrong == []


def test_no_duration_has_another_name() -> None:
    found = [(name, call, one.name) for name, call, one in signatures() if one.name in OTHER_NAMES]
    assert found == []
