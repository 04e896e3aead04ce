"""Waiting for a lock of a quorum: woken by any server, settled after split votes, never longer than asked."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from segmented.errors import AcquireTimeout
from segmented.keys import lock_keys
from segmented.locks.quorum import AsyncQuorumLock
from tests.fixtures.stores_quorum import COLOURS, AsyncQuorumSide
from tests.support.contract.parking import has_come_to_rest, lines_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Future

    from segmented.locks.quorum import QuorumLease
    from segmented.protocol import Operation
    from segmented.stores.redis import AsyncRedisStore
    from tests.fixtures.stores_quorum import Quorum
    from tests.support.contract.parking import CountScripts

PATIENCE = 60.0
SOON = 30.0
"""A bound for what takes milliseconds, generous on a busy machine and far below the leases' 60 s."""
WORKERS = 8
TURNS = 5


def start_waiting(quorum: Quorum, name: str, waiters: int = 1) -> list[Future[QuorumLease]]:
    """Start acquires that find the lock taken, one after another, and return once they have all come to rest."""
    lock = quorum.lock(name)
    started = []
    for index in range(waiters):
        started.append(quorum.side.start(lambda: lock.acquire(timeout=PATIENCE)))
        wait_until(partial(has_come_to_rest, quorum.side.store, index + 1))
    return started


def test_a_waiter_is_woken_by_the_release(five: Quorum) -> None:
    name = five.side.name("lock")
    held = five.lock(name).acquire(timeout=0)
    (waiter,) = start_waiting(five, name)
    held.release()
    waiter.result(SOON).release()
    assert lines_of(five.side.store) == {}


@pytest.mark.parametrize("colour", COLOURS)
def test_a_waiter_is_woken_by_the_release_of_another_process(
    colour: str, quorum_urls: list[str], make_quorum: Callable[..., Quorum]
) -> None:
    ours, theirs = (make_quorum(colour, quorum_urls[:3]) for _ in range(2))
    name = ours.side.name("lock")
    held = theirs.lock(name).acquire(timeout=0)
    (waiter,) = start_waiting(ours, name)
    held.release()
    waiter.result(SOON).release()


def test_those_who_wait_in_one_process_are_served_in_the_order_of_their_arrival(three: Quorum) -> None:
    name = three.side.name("lock")
    held = three.lock(name).acquire(timeout=0)
    waiters = start_waiting(three, name, 5)
    for index in range(5):
        held.release()
        held = waiters[index].result(SOON)
        assert [waiter.done() for waiter in waiters] == [True] * (index + 1) + [False] * (4 - index)
    held.release()


def test_d3_when_the_holder_died_the_waiter_wakes_as_its_lease_ends(three: Quorum) -> None:
    name = three.side.name("lock")
    began = time.monotonic()
    three.lock(name).acquire(timeout=0)
    for raw in three.raws:
        raw.pexpire(lock_keys(name).lock, 500)
    three.lock(name).acquire(timeout=PATIENCE).release()
    assert time.monotonic() - began > 0.3


def test_a_parked_waiter_asks_nothing(three: Quorum, count_scripts: CountScripts) -> None:
    name = three.side.name("lock")
    held = three.lock(name).acquire(timeout=0)
    (waiter,) = start_waiting(three, name)
    wait((waiter,), timeout=0.2)
    scripts = [count_scripts(raw, name) for raw in three.raws]
    assert wait((waiter,), timeout=0.5).done == set()
    assert [count() for count in scripts] == [0, 0, 0]
    held.release()
    waiter.result(SOON).release()


def test_f4_a_wait_ends_on_time_also_when_it_is_longer_than_the_lease(
    three: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.stores.quorum.voting.TTL_PER_ANSWER", 0.01)  # servers have time to answer
    name = three.side.name("lock")
    held = three.lock(name).acquire(timeout=0)
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        three.lock(name, ttl=0.1).acquire(timeout=0.4)
    assert time.monotonic() - began >= 0.4
    assert three.holders(name) == [held.holder_id] * 3
    held.release()


def test_d5_a_timeout_of_zero_does_not_wait(three: Quorum) -> None:
    lock = three.lock(three.side.name("lock"))
    lock.acquire(timeout=0)
    assert lock.try_acquire() is None


def test_a_split_vote_is_tried_again_soon_and_not_when_the_leases_end(three: Quorum) -> None:
    name = three.side.name("lock")
    for raw, holder in zip(three.raws, ("one", "another", "a third"), strict=True):
        raw.set(lock_keys(name).lock, holder, px=60_000)
    waiter = three.side.start(lambda: three.lock(name).acquire(timeout=PATIENCE))
    wait((waiter,), timeout=0.1)
    three.raws[1].delete(lock_keys(name).lock)
    three.raws[2].delete(lock_keys(name).lock)
    lease = waiter.result(SOON)
    assert three.holders(name) == ["one", lease.holder_id, lease.holder_id]
    lease.release()


def test_f4_the_end_of_a_lease_is_that_of_enough_votes(five: Quorum) -> None:
    name, began = five.side.name("lock"), time.monotonic()
    for raw, ttl_ms in zip(five.raws, (60_000, 60_000, 300, 400, 500), strict=True):
        raw.set(lock_keys(name).lock, "another", px=ttl_ms)
    lease = five.lock(name).acquire(timeout=PATIENCE)
    assert time.monotonic() - began > 0.4
    lease.release()


async def cancelled(side: AsyncQuorumSide, name: str, *, when: asyncio.Event | None = None) -> None:
    """Begin to acquire, and cancel it when asked to (default: soon)."""
    lock = AsyncQuorumLock(side.store, name)  # type: ignore[arg-type]  # the side's store is one
    task = asyncio.create_task(lock.acquire(timeout=PATIENCE).__aenter__())
    if when is None:
        await asyncio.sleep(0.05)
    else:
        await when.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_d11_a_cancelled_wait_leaves_nothing_behind(quorum_urls: list[str], make_quorum: Callable[..., Quorum]) -> None:
    quorum = make_quorum("async", quorum_urls[:3])
    side, name = quorum.side, quorum.side.name("lock")
    assert isinstance(side, AsyncQuorumSide)
    held = quorum.lock(name).acquire(timeout=0)
    side.wait(cancelled(side, name))
    assert lines_of(side.store) == {}
    assert quorum.holders(name) == [held.holder_id] * 3
    held.release()


def test_d11_an_acquire_cancelled_with_its_requests_under_way_leaves_nothing_behind(
    quorum_urls: list[str], make_quorum: Callable[..., Quorum], monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = make_quorum("async", quorum_urls[:3])
    side, name = quorum.side, quorum.side.name("lock")
    assert isinstance(side, AsyncQuorumSide)
    quorum.lock(side.name("another")).acquire(timeout=30).release()
    asked = asyncio.Event()

    def telling(store: AsyncRedisStore) -> Callable[..., Coroutine[None, None, object]]:
        execute_many = store.execute_many

        async def ask(operations: Sequence[Operation[Any]], *, deadline: float) -> object:
            asked.set()
            await asyncio.sleep(0)  # whoever waits for this event goes first
            return await execute_many(operations, deadline=deadline)

        return ask

    for store in side.inner:
        monkeypatch.setattr(store, "execute_many", telling(store))
    side.wait(cancelled(side, name, when=asked))
    wait_until(lambda: quorum.holders(name) == [None] * 3)


# --- contention ---


class CriticalSection:
    """Notes whether two were ever inside, and who was served."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.inside = 0
        self.overlaps = 0
        self.served = 0

    def visit(self, quorum: Quorum, name: str) -> None:
        for _ in range(TURNS):
            with quorum.lock(name).acquire(timeout=PATIENCE):
                with self.guard:
                    self.inside += 1
                    self.overlaps += self.inside > 1
                    self.served += 1
                time.sleep(0.001)
                with self.guard:
                    self.inside -= 1


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("processes", [1, WORKERS])
def test_f4_eight_contenders_for_five_servers_are_never_inside_together_and_all_get_in(
    colour: str, processes: int, quorum_urls: list[str], make_quorum: Callable[..., Quorum]
) -> None:
    quorums = [make_quorum(colour, quorum_urls) for _ in range(processes)]
    section, name = CriticalSection(), quorums[0].side.name("lock")
    visits = [
        quorums[index % processes].side.start(partial(section.visit, quorums[index % processes], name))
        for index in range(WORKERS)
    ]
    for visit in visits:
        visit.result(2 * PATIENCE)
    assert (section.overlaps, section.served) == (0, WORKERS * TURNS)
    wait_until(lambda: quorums[0].holders(name) == [None] * 5)
