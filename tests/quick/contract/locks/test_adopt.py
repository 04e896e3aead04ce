"""A lease that is acquired in one place and gone on with in another, which knows the name and the holder id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest

from segmented import AsyncFairLock, FairLock, Lock, MemoryStore
from segmented.errors import InvalidInput, LeaseLost, WrongKind
from segmented.keys import lock_keys

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_an_adopted_lease_has_the_token_and_the_end_of_the_one_that_was_acquired(side: Side) -> None:
    lock = side.lock(side.name(), ttl=60)
    acquired = lock.acquire()
    handed = json.loads(json.dumps({"name": acquired.name, "holder_id": acquired.holder_id}))
    adopted = side.lock(handed["name"], ttl=600).adopt(handed["holder_id"])
    assert (adopted.fencing_token, adopted.holder_id) == (acquired.fencing_token, acquired.holder_id)
    assert 50 < adopted.remaining() < 60
    adopted.renew()
    assert 500 < adopted.remaining() < 600
    adopted.release()
    assert lock.try_acquire() is not None


def test_what_is_not_held_is_not_adopted(side: Side) -> None:
    name = side.name()
    lock = side.lock(name, ttl=60)
    first = lock.acquire()
    with pytest.raises(LeaseLost):
        side.lock(side.name(), ttl=60).adopt(first.holder_id)
    first.release()
    with pytest.raises(LeaseLost):
        lock.adopt(first.holder_id)
    second = lock.acquire()
    with pytest.raises(LeaseLost) as lost:
        lock.adopt(first.holder_id)
    assert (lost.value.name, lost.value.holder_id) == (name, first.holder_id)
    assert second.is_trusted


def test_a_lease_that_lapsed_is_not_adopted_nor_while_its_delay_runs(side: Side) -> None:
    lock = side.lock(side.name(), ttl=60, lock_delay=60)
    lease = lock.acquire()
    side.execute(lease.claim.renewing(50))
    side.pass_time(0.1)
    with pytest.raises(LeaseLost):
        lock.adopt(lease.holder_id)
    assert lock.is_locked()


def test_a_lock_delay_does_not_belong_to_the_adopted_lease(side: Side) -> None:
    lock = side.lock(side.name(), ttl=30, lock_delay=600)
    assert 20 < lock.adopt(lock.acquire().holder_id).remaining() < 30


def test_a_holder_id_that_is_none_is_refused(side: Side) -> None:
    for holder_id in ["", 5, "a\nb"]:
        with pytest.raises(InvalidInput, match="a holder"):
            side.lock(side.name(), ttl=60).adopt(cast("str", holder_id))


def test_a_fair_lock_is_not_adopted_as_a_plain_one(redis_side: Side) -> None:
    name = redis_side.name()
    fair = redis_side.made(lambda store: FairLock(store, name), lambda store: AsyncFairLock(store, name))
    lease = fair.acquire()
    with pytest.raises(WrongKind):
        redis_side.lock(name, ttl=60).adopt(lease.holder_id)
    lease.release()


def test_a_fence_that_lapsed_under_the_lease_is_no_reason_for_an_older_token(plain_redis_side: Side) -> None:
    name = plain_redis_side.name()
    lock = plain_redis_side.lock(name, ttl=60)
    acquired = lock.acquire()
    assert plain_redis_side.raw().delete(lock_keys(name).fence) == 1
    adopted = lock.adopt(acquired.holder_id)
    assert adopted.fencing_token > acquired.fencing_token
    adopted.release()
    assert lock.acquire().fencing_token > adopted.fencing_token


@pytest.mark.usefixtures("watched_drops")
def test_a_lease_whose_holder_id_was_read_may_be_adopted_so_a_drop_says_nothing() -> None:
    store = MemoryStore()
    lease = Lock(store, "door", ttl=60).acquire()
    holder_id = lease.holder_id
    del lease
    Lock(store, "door").adopt(holder_id).release()
