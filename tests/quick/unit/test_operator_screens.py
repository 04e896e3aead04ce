"""An operator finds locks wherever our pages put them, and sees for how long each has been held, and by whom."""

from __future__ import annotations

import re
from typing import Final

import pytest

from segmented import Lock, MemoryStore, Pool, ReentrantLock
from segmented.clock import ManualClock
from segmented.errors import InvalidInput, WrongKind
from segmented.keys import segment_of
from segmented.locks import FairLock, ReadWriteLock, operator
from segmented.locks.claim import HERE, new_holder_id
from segmented.models.locks import LockHolder, LockState, Revoked
from segmented.plans import run_sync
from segmented.protocol import AcquireLock
from segmented.stores.quorum import QuorumStore

LONG: Final = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


def held(store: MemoryStore, name: str) -> LockState:
    state = operator.show(store, name)
    assert state is not None
    return state


def test_a_holder_id_names_its_host_and_process_after_22_random_characters() -> None:
    first, second = new_holder_id(), new_holder_id()
    assert re.fullmatch(rf"[\w-]{{22}}@{re.escape(HERE.process)}", first)
    assert first[:22] != second[:22]


def test_a_lock_held_for_45_s_shows_its_age_and_the_process_that_holds_it(
    store: MemoryStore, clock: ManualClock
) -> None:
    leases = [
        Lock(store, "plain", ttl=LONG).acquire(),
        ReentrantLock(store, "reentrant", ttl=LONG).acquire(),
        FairLock(store, "fair", ttl=LONG).acquire(),
        ReadWriteLock(store, "shared", ttl=LONG).write.acquire(),
    ]
    clock.advance(45)
    for name in ("plain", "reentrant", "fair", "shared"):
        state = held(store, name)
        assert (state.held_ms, state.free_in_ms) == (45_000, 15_000)
        assert [holder.process for holder in state.holders] == [HERE.process]
    assert len(leases) == 4


def test_a_holder_id_of_the_callers_own_is_cut_off_and_names_no_process(store: MemoryStore) -> None:
    store.execute(AcquireLock("plain", "secret-number-1@web:7", 60_000))
    assert held(store, "plain").holders == (LockHolder("secret-n", "exclusive", 60_000),)


def test_a_lock_of_segmented_compat_is_shown_listed_and_revoked(store: MemoryStore, clock: ManualClock) -> None:
    store.execute(AcquireLock("report", f"{'0' * 22}@web-1:7", 60_000, is_key=True))
    clock.advance(1)
    state = held(store, "report")
    assert (state.kind, state.held_ms, state.free_in_ms) == ("compat", 1_000, 59_000)
    assert state.holders == (LockHolder("00000000", "exclusive", 59_000, process="web-1:7"),)
    assert operator.list_locks(store, "rep*").names == ("report",)
    assert operator.revoke(store, "report") == Revoked("compat", state.fencing_token)
    assert (operator.show(store, "report"), operator.revoke(store, "report")) == (None, None)


def test_a_lock_of_redis_py_is_shown_and_revoked_without_an_earlier_holders_token(store: MemoryStore) -> None:
    store.execute(AcquireLock("report", "0123456789abcdef" * 2, 60_000, is_key=True))
    state = held(store, "report")
    assert (state.kind, state.fencing_token, state.held_ms) == ("redis-py", None, None)
    assert operator.revoke(store, "report") == Revoked("redis-py", None)


def test_a_lock_of_python_redis_lock_is_shown_by_its_name_and_left_to_its_library(store: MemoryStore) -> None:
    store.execute(AcquireLock("lock:report", "MDEyMzQ1Njc4OWFiY2RlZjAx", 60_000, is_key=True))
    state = held(store, "report")
    assert (state.name, state.kind, state.holder_count) == ("report", "python-redis-lock", 1)
    for name in ("report", "lock:report"):
        with pytest.raises(WrongKind, match=r"^the key 'lock:report' is a lock of python-redis-lock: end it there"):
            operator.revoke(store, name)
    assert operator.show(store, "report") == state


def test_held_segments_of_a_pool_are_listed_and_a_free_one_is_not(store: MemoryStore) -> None:
    pool = Pool(store, "poster", ttl=LONG)
    pool.open(stock=10, segments=4)
    with pool.grant("order-1") as grant:
        found = run_sync(operator.list_plan("pos*", places=["segment"]), store).names
        assert [segment_of(key) for key in found] == [("poster", "0", grant.segment)]
        assert run_sync(operator.list_plan("mug", places=["segment"]), store).names == ()
    assert run_sync(operator.list_plan("*", places=["segment"]), store).names == ()


def test_an_operator_of_a_quorum_is_told_to_ask_each_of_its_servers() -> None:
    quorum = QuorumStore([MemoryStore() for _ in range(3)])
    with pytest.raises(InvalidInput, match=r"ask each of its servers, with a RedisStore of its own$"):
        operator.show(quorum, "report")
    quorum.close()
