"""What the keeper of leases does, and stops doing, when something goes wrong around it."""

import asyncio
import sys
import threading
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from segmented import AsyncMemoryStore, Lease, Lock, MemoryStore, RedisStore
from segmented.errors import LeaseLost, StoreUnavailable
from segmented.locks import AsyncMultiLock, AsyncQuorumStore, QuorumStore
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.locks.locked_decorator import locked
from segmented.models import Acquired
from segmented.protocol import Operation, ReleaseLock, RenewLock
from tests.real.contract.locks.test_keeper_wakes import keepers, renewed_twice
from tests.support.contract.bodies import let_end_soon
from tests.support.contract.locks.kinds import HANDLES, Handles
from tests.support.contract.parking import wait_until
from tests.support.proxy import RedisProxy

SOON = 120.0
TTL = 60.0
RENEWED = [kind for kind in HANDLES if "background" in kind.offers]
each_kind = pytest.mark.parametrize("kind", RENEWED, ids=lambda kind: kind.title)


@pytest.fixture(autouse=True)
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keeper renew a lease of a minute three times a second, so that a busy machine is never late."""
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)
    monkeypatch.setattr("segmented.locks.lease_state.RETRIES_PER_TTL", 600)


@each_kind
def test_a_lease_of_any_kind_is_renewed_in_the_background(kind: Handles) -> None:
    store: Any = MemoryStore()
    if kind.servers > 1:
        store = QuorumStore([MemoryStore() for _ in range(kind.servers)], answer_timeout=TTL)
    with kind.sync(store, "door", ttl=TTL, renew=True).acquire(timeout=0) as lease:
        wait_until(renewed_twice(lease))
        assert lease.is_trusted


@each_kind
def test_a_tasks_lease_of_any_kind_is_renewed_in_the_background(kind: Handles) -> None:
    async def renewed() -> bool:
        store: Any = AsyncMemoryStore()
        if kind.servers > 1:
            store = AsyncQuorumStore([AsyncMemoryStore() for _ in range(kind.servers)], answer_timeout=TTL)
        async with kind.asyncio(store, "door", ttl=TTL, renew=True).acquire(timeout=0) as lease:
            await asyncio.to_thread(wait_until, renewed_twice(lease))
            return bool(lease.is_trusted)

    assert asyncio.run(renewed())


def test_the_lease_of_a_decorated_function_and_an_adopted_one_are_renewed_if_asked() -> None:
    store = MemoryStore()

    @locked("door", store=store, ttl=TTL, renew=True, lease_as="lease")
    def work(*, lease: Lease | None = None) -> str:
        assert lease is not None
        wait_until(renewed_twice(lease))
        return lease.name

    assert work() == "door"
    holder_id = Lock(store, "door", ttl=TTL).acquire().holder_id
    adopted = Lock(store, "door", ttl=TTL, renew=True).adopt(holder_id)
    wait_until(renewed_twice(adopted))
    adopted.release()


def test_a_lease_renewed_by_hand_for_a_shorter_time_is_told_lost_at_that_time() -> None:
    lease = Lock(MemoryStore(), "door", ttl=600).acquire()
    told = threading.Event()
    lease.on_lost(told.set)
    let_end_soon(lease)
    assert told.wait(SOON)
    assert lease.lost.is_set()


def test_a_loss_cancels_the_body_of_a_scope_over_several_names() -> None:
    async def body() -> None:
        store = AsyncMemoryStore()
        lease = await AsyncMultiLock(store, ["a", "b"], ttl=TTL, renew=True).acquire(timeout=0)
        with pytest.raises(LeaseLost):  # noqa: PT012  # the scope raises it
            async with lease.cancel_scope():
                await store.execute(ReleaseLock("b", lease.holder_id))
                await asyncio.Event().wait()
        assert lease.lost.is_set()

    asyncio.run(body())


@pytest.mark.parametrize("fail", [lambda: 1 / 0, lambda: sys.exit(3)], ids=["raises", "ends its thread"])
def test_a_callback_that_raises_ends_neither_the_keeper_nor_the_other_callbacks(fail: Callable[[], None]) -> None:
    store, told = MemoryStore(), threading.Event()
    other = Lock(store, "window", ttl=TTL, renew=True).acquire()
    bad = let_end_soon(Lock(store, "door", ttl=TTL).acquire())
    bad.on_lost(fail)
    bad.on_lost(told.set)
    assert told.wait(SOON)
    wait_until(renewed_twice(other))
    other.release()


def test_ten_thousand_leases_share_one_thread_and_are_renewed_in_batches(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 600)
    others = keepers()
    claims = [LockClaim(f"door-{index}", f"h{index}", 600_000) for index in range(10_000)]
    asked_at = store.clock.now()
    answers = store.execute_many([claim.acquiring() for claim in claims])
    renewal = Renewal(is_wanted=True, seconds_max=3_600)
    leases = [
        Lease(store, claim, renewal, answer, asked_at)
        for claim, answer in zip(claims, answers, strict=True)
        if isinstance(answer, Acquired)
    ]
    assert len(leases) == 10_000
    ends = [lease.trusted_until for lease in leases]
    wait_until(lambda: all(lease.trusted_until > end for lease, end in zip(leases, ends, strict=True)), seconds=SOON)
    assert len(keepers() - others) == 1
    for lease in leases:
        lease.has_ended = True


def test_renewals_that_fail_are_repeated_until_the_lease_really_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RETRIES_PER_TTL", 1_200)
    store = MemoryStore()
    lease = Lock(store, "door", ttl=TTL, renew=True).acquire()
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
    lease.release()


def test_renewal_stops_at_its_cap_and_the_loss_is_told() -> None:
    lease = Lock(MemoryStore(), "door", ttl=0.5, renew=True, renew_max=1.0).acquire()
    assert lease.lost.wait(SOON)
    assert lease.is_lost


@pytest.mark.parametrize("reply", [b"?garbage\r\n", b"\xff\x00\r\n"], ids=["text", "bytes"])
def test_a_reply_that_nobody_can_read_ends_neither_the_keeper_nor_a_lease(proxy: RedisProxy, reply: bytes) -> None:
    with (
        RedisStore.from_url(proxy.url) as store,
        Lock(store, "unreadable", ttl=TTL, renew=True).acquire() as lease,
        Lock(store, "readable", ttl=TTL, renew=True).acquire() as other,
    ):
        proxy.answer(reply, to=b"unreadable")
        wait_until(lambda: proxy.answered == 1)
        for renewed in (lease, other):
            wait_until(renewed_twice(renewed))
            assert renewed.is_trusted
