"""What the keeper of leases does, and stops doing, when something goes wrong around it."""

from __future__ import annotations

import asyncio
import threading
import time
from math import inf
from typing import TYPE_CHECKING

import pytest
import redis

from segmented import AsyncLock, AsyncRedisStore, Lease, Lock, MemoryStore, RedisStore
from segmented.errors import StoreUnavailable
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired
from segmented.protocol import Operation, ReleaseLock, RenewLock
from tests.real.contract.locks.test_keeper_wakes import renewed_twice
from tests.support.contract.bodies import let_end_soon
from tests.support.contract.parking import wait_until

if TYPE_CHECKING:
    from typing import Any

    from tests.support.proxy import RedisProxy


SOON = 30.0


@pytest.fixture
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keeper renew a lease of a minute three times a second, so that a busy machine is never late."""
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)
    monkeypatch.setattr("segmented.locks.lease_state.RETRIES_PER_TTL", 600)


class SilentReleaseStore(MemoryStore):
    """A store that does not answer one release."""

    is_mute = True

    def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, ReleaseLock) and self.is_mute:
            self.is_mute = False
            message = "no answer"
            raise StoreUnavailable(message)
        return super().execute(operation, deadline=deadline)


def test_a_renewing_lease_outlives_its_time_to_live_and_ends_with_its_release(frequent_renewals: float) -> None:
    store = MemoryStore()
    with Lock(store, "door", ttl=frequent_renewals, renew=True).acquire() as lease:
        assert not lease.lost.wait(1.1 * frequent_renewals)
        assert Lock(store, "door").try_acquire() is None
    assert Lock(store, "door").try_acquire() is not None


def test_a_lost_lease_is_told_at_once() -> None:
    lease = let_end_soon(Lock(MemoryStore(), "door", ttl=60).acquire())
    told = threading.Event()
    lease.on_lost(told.set)
    assert told.wait(SOON)
    assert lease.lost.is_set()


def test_a_release_that_fails_is_not_renewed_any_more() -> None:
    store = SilentReleaseStore()
    lease = Lock(store, "door", ttl=0.5, renew=True).acquire()
    with pytest.raises(StoreUnavailable):
        lease.release()
    assert Lock(store, "door").acquire(timeout=SOON).fencing_token > lease.fencing_token


def test_a_callback_that_raises_ends_neither_the_keeper_nor_the_other_callbacks(frequent_renewals: float) -> None:
    store, told = MemoryStore(), threading.Event()
    other = Lock(store, "window", ttl=frequent_renewals, renew=True).acquire()
    bad = let_end_soon(Lock(store, "door", ttl=60).acquire())
    bad.on_lost(lambda: 1 / 0)  # type: ignore[arg-type]  # any callable
    bad.on_lost(told.set)
    assert told.wait(SOON)
    wait_until(renewed_twice(other))
    other.release()


@pytest.fixture
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> float:
    """Let the keeper renew such a lease ten times a second; it is longer than a busy machine stands still."""
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 100)
    return 10.0


def keepers() -> set[threading.Thread]:
    """All keepers of this process: those of other tests' stores may still mind leases until they lapse."""
    return {thread for thread in threading.enumerate() if thread.name == "segmented-keeper"}


def test_the_keeper_ends_when_there_is_nothing_left_to_look_after() -> None:
    others = keepers()
    with Lock(MemoryStore(), "door", ttl=600, renew=True).acquire() as lease:
        assert lease.is_trusted
        assert len(keepers() - others) == 1
    wait_until(lambda: keepers() <= others)


def test_ten_thousand_leases_share_one_thread_and_are_renewed_in_batches(private_valkey_url: str) -> None:
    with RedisStore.from_url(private_valkey_url) as store, redis.Redis.from_url(private_valkey_url) as server:
        others = keepers()
        claims = [LockClaim(f"door-{index}", f"h{index}", 18_000) for index in range(10_000)]
        asked_at = store.clock.now()
        answers = store.execute_many([claim.acquiring() for claim in claims])
        assert {type(answer) for answer in answers} == {Acquired}
        renewal = Renewal(is_wanted=True, seconds_max=60)
        leases = [
            Lease(store, claim, renewal, answer, asked_at)
            for claim, answer in zip(claims, answers, strict=True)
            if isinstance(answer, Acquired)
        ]
        own = keepers() - others
        time.sleep(19.5)  # more than a life
        assert len(own) == 1
        assert [lease.name for lease in leases if lease.is_lost] == []
        assert server.dbsize() == 20_000
        store.execute_many([claim.releasing() for claim in claims])
        for lease in leases:
            lease.has_ended = True


def test_renewals_that_fail_are_repeated_until_the_lease_really_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)
    monkeypatch.setattr("segmented.locks.lease_state.RETRIES_PER_TTL", 1_200)
    store = MemoryStore()
    lease = Lock(store, "door", ttl=60, renew=True).acquire()
    failed: list[float] = []
    execute = store.execute

    def fail_for_a_while(operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # its own answer
        if isinstance(operation, RenewLock) and len(failed) < 5:
            failed.append(store.clock.now())
            raise StoreUnavailable
        return execute(operation, deadline=deadline)

    store.execute = fail_for_a_while  # type: ignore[method-assign]  # a server that stutters
    wait_until(lambda: len(failed) == 5)
    wait_until(renewed_twice(lease))
    assert not lease.lost.is_set()
    assert len(failed) == 5
    lease.release()


def test_renewal_stops_at_its_cap_and_the_loss_is_told() -> None:
    lease = Lock(MemoryStore(), "door", ttl=0.5, renew=True, renew_max=1.0).acquire()
    assert lease.lost.wait(SOON)
    assert lease.is_lost


def test_a_lease_renewed_by_hand_for_a_shorter_time_is_found_lost_at_that_time() -> None:
    lease = Lock(MemoryStore(), "door", ttl=600).acquire()
    lost = lease.lost
    let_end_soon(lease)
    assert lost.wait(SOON)


@pytest.mark.parametrize("reply", [b"?garbage\r\n", b"\xff\x00\r\n", b":x\r\n"], ids=["text", "bytes", "number"])
@pytest.mark.usefixtures("often_renewed")
def test_a_reply_that_nobody_can_read_ends_neither_the_keeper_nor_a_lease(proxy: RedisProxy, reply: bytes) -> None:
    with (
        RedisStore.from_url(proxy.url) as store,
        Lock(store, "unreadable", ttl=60, renew=True).acquire() as lease,
        Lock(store, "readable", ttl=60, renew=True).acquire() as other,
    ):
        proxy.answer(reply, to=b"unreadable")
        wait_until(lambda: proxy.answered == 1)
        for renewed in (lease, other):
            wait_until(renewed_twice(renewed))
            assert renewed.is_trusted


@pytest.mark.usefixtures("often_renewed")
def test_a_reply_that_nobody_can_read_ends_neither_the_keepers_task_nor_a_lease(proxy: RedisProxy) -> None:
    async def renewed() -> tuple[bool, bool]:
        async with (
            await AsyncRedisStore.from_url(proxy.url) as store,
            AsyncLock(store, "unreadable", ttl=60, renew=True).acquire() as lease,
            AsyncLock(store, "readable", ttl=60, renew=True).acquire() as other,
        ):
            proxy.answer(b"?garbage\r\n", to=b"unreadable")
            await asyncio.to_thread(wait_until, lambda: proxy.answered == 1)
            for one in (lease, other):
                await asyncio.to_thread(wait_until, renewed_twice(one))
            return lease.is_trusted, other.is_trusted

    assert asyncio.run(renewed()) == (True, True)
    assert proxy.answered == 1
