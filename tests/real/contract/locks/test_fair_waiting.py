"""Waiting for a fair lock, in two processes' worth of stores: in order, woken one by one, and passed over when gone."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, LeaseLost
from segmented.keys import fair_keys
from segmented.locks.fair import TIMES, AsyncFairLock, FairClaim, FairLock, FairTry
from segmented.protocol.fair.operations import FairTimes
from segmented.protocol.wire import text
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import REDIS, Side, make_side
from tests.support.contract.parking import has_come_to_rest, lines_of, parked, scripts_run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from segmented.locks import Lease

BOTH_COLOURS = [REDIS[0], REDIS[-1]]
PATIENCE = 60.0
SOON = 30.0
"""A bound for what takes milliseconds, generous on a busy machine."""
SLOW = FairTimes(presence_ms=1_800_000, look_ms=600_000, claim_ms=600_000)
"""A waiter that was not woken, or waits for one that is gone, waits for far longer than the test."""
ASKING = FairTimes(presence_ms=1_800_000, look_ms=5_000, claim_ms=20_000)
"""Waiters check every 5 s. One that gets a message before the new holder claims the lock does not know its end yet."""
QUIET_SECONDS = 0.15


@pytest.fixture(autouse=True)
def slow_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no claim lapse and no waiter look by itself, so that a machine that stands still changes no order."""
    let_times_be(SLOW, monkeypatch)


def let_times_be(times: FairTimes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.locks.fair.FairTry", partial(FairTry, times=times))
    monkeypatch.setattr("segmented.locks.fair.FairClaim", partial(FairClaim, times=times))


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def two_sides(request: pytest.FixtureRequest, valkey_url: str) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on one server."""
    first, second = (make_side(request.param, SystemClock(), valkey_url) for _ in range(2))
    yield first, second
    first.close()
    second.close()


@pytest.fixture(params=BOTH_COLOURS, ids=str)
def lone_side(request: pytest.FixtureRequest, private_valkey_url: str) -> Iterator[Side]:
    """The only client of a server that knows its scripts, so that its commands can be counted."""
    side = make_side(request.param, SystemClock(), private_valkey_url)
    made(side, side.name("warm")).acquire(timeout=0).release()
    yield side
    side.close()


def made(side: Side, name: str, *, ttl: float = 60.0, renew: bool = False) -> FairLock:
    return side.made(
        lambda store: FairLock(store, name, ttl=ttl, renew=renew),
        lambda store: AsyncFairLock(store, name, ttl=ttl, renew=renew),
    )


def start_waiting(side: Side, lock: FairLock, *, timeout: float = PATIENCE) -> Future[Lease]:
    """Start an acquire that finds the lock taken, and return once it has come to rest."""
    waiters = sum(len(line) for line in lines_of(side.store).values())
    call = side.start(lambda: lock.acquire(timeout=timeout))
    wait_until(lambda: has_come_to_rest(side.store, waiters + 1) or call.done())
    return call


def scripts_once_quiet(side: Side, at_least: int = 0) -> int:
    """Return the number of scripts run so far, once it has come to so many, and has stood still for a while."""
    pause, seen = threading.Event(), -1
    wait_until(lambda: scripts_run(side.raw()) >= at_least)
    while (found := scripts_run(side.raw())) != seen:
        seen = found
        pause.wait(QUIET_SECONDS)
    return seen


# --- order ---


def test_those_who_wait_are_served_in_the_order_of_their_arrival(waiting_side: Side) -> None:
    lock = made(waiting_side, waiting_side.name("lock"))
    held = lock.acquire(timeout=0)
    waiters = [start_waiting(waiting_side, lock) for _ in range(8)]
    tokens = [held.fencing_token]
    for index in range(8):
        held.release()
        held = waiters[index].result(SOON)
        tokens.append(held.fencing_token)
        assert [waiter.done() for waiter in waiters] == [True] * (index + 1) + [False] * (7 - index)
    held.release()
    assert tokens == sorted(set(tokens))
    assert lines_of(waiting_side.store) == {}


def test_the_order_is_one_over_all_processes(two_sides: tuple[Side, Side]) -> None:
    name = two_sides[0].name("lock")
    locks = [made(side, name) for side in two_sides]
    held = locks[0].acquire(timeout=0)
    waiters = [start_waiting(two_sides[index % 2], locks[index % 2]) for index in range(12)]
    for index, waiter in enumerate(waiters):
        held.release()
        held = waiter.result(SOON)
        assert not any(later.done() for later in waiters[index + 1 :])
    held.release()


def test_d14_waiters_keep_their_order_while_newcomers_try_and_try(two_sides: tuple[Side, Side]) -> None:
    name, ended = two_sides[0].name("lock"), threading.Event()
    ours, theirs = (made(side, name) for side in two_sides)
    held = ours.acquire(timeout=0)
    waiters = [start_waiting(two_sides[0], ours) for _ in range(5)]

    def barge() -> int:
        taken = 0
        while not ended.wait(0.001):
            if lease := theirs.try_acquire():
                taken += 1
                lease.release()
        return taken

    barging = two_sides[1].start(barge)
    for waiter in waiters:
        held.release()
        held = waiter.result(SOON)
    assert not barging.done()
    ended.set()
    assert barging.result(SOON) == 0
    held.release()


# --- cost ---


def test_an_acquisition_costs_three_commands_and_wakes_nobody_else(lone_side: Side) -> None:
    side = lone_side
    lock = made(side, side.name("lock"))
    held = lock.acquire(timeout=0)
    waiters = [start_waiting(side, lock) for _ in range(5)]
    counts = [scripts_once_quiet(side)]
    for waiter in waiters:
        held.release()
        held = waiter.result(SOON)
        counts.append(scripts_once_quiet(side, counts[-1] + (2 if waiter is waiters[-1] else 3)))
    held.release()
    costs = [after - before for before, after in pairwise(counts)]
    assert costs == [3, 3, 3, 3, 2]  # the release, the claim, and the look of the next in line, whom the last has not


def test_waiters_at_rest_send_nothing(lone_side: Side) -> None:
    side = lone_side
    lock = made(side, side.name("lock"))
    held = lock.acquire(timeout=0)
    waiters = [start_waiting(side, lock) for _ in range(10)]
    before = scripts_once_quiet(side)
    threading.Event().wait(1.0)
    assert scripts_run(side.raw()) == before
    for waiter in waiters:
        held.release()
        held = waiter.result(SOON)
    held.release()


def test_a_waiter_looks_often_enough_to_count_as_alive_and_less_than_once_in_ten_seconds() -> None:
    assert TIMES.look_ms > 10_000
    assert TIMES.presence_ms > 2 * TIMES.look_ms


# --- ends of a wait ---


def test_d12_a_wait_that_times_out_gives_its_place_up(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    lock = made(waiting_side, name)
    held = lock.acquire(timeout=0)
    hurried = start_waiting(waiting_side, lock, timeout=1.0)
    patient = waiting_side.start(lambda: lock.acquire(timeout=PATIENCE))
    wait_until(lambda: has_come_to_rest(waiting_side.store, 1 if hurried.done() else 2))
    error = hurried.exception(SOON)
    assert isinstance(error, AcquireTimeout)
    assert str(error) == f"lock '{name}' was not free within 1 s"
    held.release()
    patient.result(SOON).release()
    if waiting_side.server is not None:
        assert waiting_side.raw().keys(f"{fair_keys(name).lock}*") == [fair_keys(name).fence]


def test_d5_a_try_does_not_wait_and_leaves_no_place(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    lock = made(waiting_side, name)
    held = lock.acquire(timeout=0)
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=0)
    assert lock.try_acquire() is None
    if waiting_side.server is not None:
        assert waiting_side.raw().exists(fair_keys(name).queue) == 0
    held.release()
    lease = lock.try_acquire()
    assert lease is not None
    lease.release()


def test_d3_when_the_holder_died_the_head_has_the_lock_as_its_lease_ends(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    began = time.monotonic()
    made(waiting_side, name, ttl=1.5).acquire(timeout=0)
    lock = made(waiting_side, name)
    first = start_waiting(waiting_side, lock)
    second = waiting_side.start(lambda: lock.acquire(timeout=PATIENCE))
    lease = first.result(SOON)
    assert time.monotonic() - began > 1.0
    assert not second.done()
    lease.release()
    second.result(SOON).release()


def test_d3_the_next_in_line_learns_that_it_has_to_mind_the_holders_end(
    waiting_side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_times_be(ASKING, monkeypatch)
    name = waiting_side.name("lock")
    held = made(waiting_side, name).acquire(timeout=0)
    first = start_waiting(waiting_side, made(waiting_side, name, ttl=3.0))
    second, third = (start_waiting(waiting_side, made(waiting_side, name)) for _ in range(2))
    held.release()
    assert isinstance(first.exception(SOON), LeaseLost | None)  # and dies; on a machine that stood still it has already
    lease = second.result(SOON)
    assert not third.done()
    lease.release()
    third.result(SOON).release()


def test_a_held_fair_lock_is_renewed_in_the_background_while_others_wait(
    waiting_side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("segmented.locks.lease_state.RENEWALS_PER_TTL", 200)  # and a busy machine is never late
    name = waiting_side.name("lock")
    held = made(waiting_side, name, renew=True).acquire(timeout=0)
    waiter = start_waiting(waiting_side, made(waiting_side, name))
    ends = {held.trusted_until}

    def is_renewed_twice() -> bool:
        ends.add(held.trusted_until)
        return len(ends) > 2

    wait_until(is_renewed_twice)
    assert held.is_trusted
    assert not waiter.done()
    held.release()
    waiter.result(SOON).release()


def test_d12_a_wait_that_is_cancelled_gives_its_place_up_or_hands_the_lock_on(valkey_url: str) -> None:
    chance = random.Random(12)

    async def body() -> None:
        async with await AsyncRedisStore.from_url(valkey_url) as store:
            lock = AsyncFairLock(store, "cancelled-fair")
            held = await lock.acquire()
            waiters = []
            for index in range(30):
                waiters.append(asyncio.ensure_future(lock.acquire()))
                await parked(store, index + 1)
            for waiter in waiters[:10]:  # at rest
                waiter.cancel()
            await asyncio.wait(waiters[:10])
            for index in range(10, 30, 2):
                await held.release()
                await asyncio.sleep(chance.random() * 0.002)
                waiters[index].cancel()  # about when its turn comes
                await asyncio.wait(waiters[index : index + 1])
                if not waiters[index].cancelled():
                    await waiters[index].result().release()
                held = await asyncio.wait_for(waiters[index + 1], SOON)
            await held.release()
            assert lines_of(store) == {}
            keys = fair_keys("cancelled-fair")
            assert [text(key) for key in await store.client.keys(f"{keys.lock}*")] == [keys.fence]

    asyncio.run(body())
