"""Rare moments of a lease: renewals that cross, a release under way, callbacks that raise, a fence that was missed."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from segmented import FairLock, Lock, RedisStore
from segmented.clock import ManualClock
from segmented.errors import LeaseLost, WrongKind
from segmented.keys import lock_keys
from segmented.locks.lease_state import LeaseState, trusted_until
from segmented.locks.lock import LockClaim
from segmented.models import Acquired, Lost, Renewed
from tests.real.contract.locks.test_keeper_wakes import renewed_twice
from tests.support.contract.bodies import let_end_soon
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer


def a_lease(clock: ManualClock) -> LeaseState:
    return LeaseState(LockClaim("door", "h", 1_000), Acquired(1, 1_000, replay=False), clock.now(), clock)


def test_of_renewals_that_cross_the_shorter_is_believed() -> None:
    clock = ManualClock()
    for first, second in ((10_000, 900), (900, 10_000)):
        lease = a_lease(clock)
        at = clock.now()
        lease.begin_renewal(first, at)
        lease.begin_renewal(second, at)
        lease.note_renewal(Renewed(first), at)
        assert lease.trusted_until == trusted_until(at, 900)
        lease.note_renewal(Renewed(second), at)
        assert lease.trusted_until == trusted_until(at, 900)
        lease.begin_renewal(10_000, at)
        lease.note_renewal(Renewed(10_000), at)
        assert lease.trusted_until == trusted_until(at, 10_000)


def test_a_shorter_renewal_whose_reply_was_lost_is_believed_to_be_done() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(200, clock.now())
    lease.note_unanswered_renewal()
    assert lease.trusted_until == trusted_until(clock.now(), 200)


def test_a_renewal_that_finds_the_lease_released_by_us_is_no_loss() -> None:
    clock = ManualClock()
    lease = a_lease(clock)
    lease.begin_renewal(1_000, clock.now())
    lease.note_release_asked()
    lease.note_renewal(Lost(), clock.now())
    assert not lease.is_lost


def test_a_lease_is_not_trusted_once_its_release_was_asked_for() -> None:
    lease = a_lease(ManualClock())
    assert lease.is_trusted
    lease.note_release_asked()
    assert not lease.is_trusted
    with pytest.raises(LeaseLost):
        lease.require()


def test_a_callback_that_ends_its_thread_does_not_end_the_keeper_of_the_others(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)  # and a busy machine is never late
    first = let_end_soon(Lock(store, "first", ttl=60).acquire(timeout=30))
    second = Lock(store, "second", ttl=60, renew=True).acquire(timeout=30)
    first.on_lost(lambda: sys.exit(3))
    lost = first.lost
    assert lost.wait(30)
    wait_until(renewed_twice(second))
    second.require()
    second.release()


def test_a_message_in_no_encoding_does_not_end_the_listener(valkey: ValkeyServer, store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    held = lock.acquire(timeout=30)
    waiting = threading.Thread(target=lambda: lock.acquire(timeout=60).release())
    waiting.start()
    wait_until(lambda: store.client.pubsub_numsub(lock_keys("door").freed)[0][1] > 0)
    store.client.publish(lock_keys("door").freed, b"\xff\xfe")
    other = RedisStore.from_url(valkey.url)
    try:
        other.client.delete(lock_keys("door").lock)
        other.client.publish(lock_keys("door").freed, "freed")
        waiting.join(30)
        assert not waiting.is_alive()
    finally:
        other.close()
    with pytest.raises(LeaseLost):
        held.release()


def test_a_token_does_not_go_back_where_the_last_one_is_not_known(store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    lock.acquire(timeout=30).release()
    newest = lock.acquire(timeout=30)
    newest.release()
    store.client.hset(lock_keys("door").fence, "token", newest.fencing_token - 200)  # as on a replica that missed some
    again = lock.acquire(timeout=30)
    assert again.fencing_token > newest.fencing_token


def test_a_token_is_one_past_the_last_where_the_servers_clock_is_behind_it(store: RedisStore) -> None:
    lock = Lock(store, "door", ttl=60)
    lock.acquire(timeout=30).release()
    ahead = int((time.time() + 3_600) * 1_000_000)  # as after a failover to a server whose clock is an hour behind
    store.client.hset(lock_keys("door").fence, "token", ahead)
    first = lock.acquire(timeout=30)
    first.release()
    assert first.fencing_token == ahead + 1
    assert lock.acquire(timeout=30).fencing_token == ahead + 2


def test_a_fence_outlives_its_lease_by_23_hours_at_least(store: RedisStore) -> None:
    hour_ms = 3_600_000
    keys = lock_keys("door")
    Lock(store, "door", ttl=60).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 24 * hour_ms
    store.client.hset(keys.fence, "token", int((time.time() - 3_700) * 1_000_000))
    store.client.pexpire(keys.fence, 23 * hour_ms)  # as they are an hour later
    Lock(store, "door", ttl=60).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 24 * hour_ms
    Lock(store, "door", ttl=48 * 3_600).acquire(timeout=30).release()
    assert store.client.pttl(keys.fence) > 71 * hour_ms


def test_plain_and_fair_locks_tell_each_other_apart(store: RedisStore) -> None:
    plain, fair = Lock(store, "door", ttl=60), FairLock(store, "door", ttl=60)
    with fair.acquire(timeout=0), pytest.raises(WrongKind):
        plain.acquire(timeout=0)
    with plain.acquire(timeout=0), pytest.raises(WrongKind):
        fair.acquire(timeout=0)
    with fair.acquire(timeout=0):
        pass


def test_a_foreign_lock_on_a_name_that_was_fair_is_waited_for(store: RedisStore) -> None:
    with FairLock(store, "door", ttl=60).acquire(timeout=0):
        pass
    store.client.set(lock_keys("door").lock, "somebody else's", px=100)
    Lock(store, "door", ttl=60).acquire(timeout=30).release()


def test_a_key_that_goes_without_a_word_is_found_gone(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.plans.waiting.LOOK_SECONDS", 0.3)
    store.client.set(lock_keys("door").lock, "somebody else's")
    timer = threading.Timer(0.2, store.client.delete, (lock_keys("door").lock,))
    timer.start()
    Lock(store, "door", ttl=60).acquire(timeout=30).release()
    timer.join()


def test_the_leases_of_a_closed_store_are_renewed_no_more(valkey: ValkeyServer) -> None:
    store = RedisStore.from_url(valkey.url)
    Lock(store, "door", ttl=0.5, renew=True).acquire(timeout=30)
    store.close()
    with RedisStore.from_url(valkey.url) as other:
        Lock(other, "door", ttl=60).acquire(timeout=30).release()
