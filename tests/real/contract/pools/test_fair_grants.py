"""Grants in the order of arrival, across stores that know nothing of each other."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any

import pytest

from segmented import AsyncMemoryStore, AsyncPool, MemoryStore, Pool, RedisStore
from segmented.errors import OrderMismatch
from segmented.keys import fair_keys
from segmented.models import Busy, Decided, SoldOut
from segmented.protocol import Operation, ReleaseFair
from segmented.servers import ValkeyServer
from segmented.stock import Grant
from tests.support.contract.parking import CountScripts, wait_until

"""Seconds of a wait of which three quarters pass before the door is lost."""


@pytest.fixture
def stores(valkey: ValkeyServer) -> Iterator[list[RedisStore]]:
    """Two stores on one server, each with a line of its own."""
    with RedisStore.from_url(valkey.url) as first, RedisStore.from_url(valkey.url) as second:
        yield [first, second]


@pytest.fixture
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that lapses in a minute, and whoever is inside says every 0.1 s that it lives."""
    monkeypatch.setattr("segmented.stock.plans.DOOR_TTL_MS", 60_000)
    monkeypatch.setattr("segmented.stock.plans.ROUND_SECONDS", 0.1)


def have_come(store: RedisStore, count: int) -> bool:
    """Are so many at the door: one of them inside, waiting for a segment there?"""
    door = fair_keys("pool:ticket:door")
    inside: Any = store.client.exists(door.lock)
    queued: Any = store.client.zcard(door.queue)
    return bool(inside and inside + queued >= count)


def test_grants_of_two_stores_come_in_the_order_of_arrival(stores: list[RedisStore]) -> None:
    pools = [Pool(store, "ticket") for store in stores]
    pools[0].open(stock=20, segments=1)
    first = pools[0].grant("first", timeout=0, fair=True)
    assert isinstance(first, Grant)
    order: list[str] = []

    def buy(pool: Pool, order_id: str) -> None:
        with pool.grant(order_id, timeout=60, fair=True):
            order.append(order_id)

    waiters = []
    for number in range(10):
        waiter = threading.Thread(target=buy, args=(pools[number % 2], f"o{number}"))
        waiter.start()
        waiters.append(waiter)
        wait_until(partial(have_come, stores[0], number + 1))
    first.confirm()
    for waiter in waiters:
        waiter.join(60)
    assert order == [f"o{number}" for number in range(10)]
    assert pools[0].audit().is_clean


def test_a_fair_grant_that_has_to_wait_ends_at_its_deadline_and_leaves_the_door(stores: list[RedisStore]) -> None:
    """So does one that is sold out, and one of an order that is known does not stand at the door."""
    pool = Pool(stores[0], "ticket")
    pool.open(stock=3, segments=1)
    held = pool.grant("held", timeout=0)
    assert isinstance(held, Grant)
    assert isinstance(pool.grant("late", timeout=0.2, fair=True), Busy)
    assert isinstance(pool.grant("at once", timeout=0, fair=True), Busy)
    held.confirm()
    after = Pool(stores[1], "ticket").grant("after", timeout=0, fair=True)
    assert isinstance(after, Grant)
    after.confirm()
    assert isinstance(pool.grant("last", timeout=0, fair=True), Grant)
    before = stores[0].client.hgetall(fair_keys("pool:ticket:door").fence)
    assert isinstance(pool.grant("held", timeout=0, fair=True), Decided)
    assert stores[0].client.hgetall(fair_keys("pool:ticket:door").fence) == before
    assert isinstance(pool.grant("b", timeout=5, fair=True), SoldOut)
    assert isinstance(pool.grant("c", timeout=0, fair=True), SoldOut)


class InterruptedAtTheDoor(MemoryStore):
    """A store in which Ctrl-C comes when a process with a grant leaves the door."""

    def execute(self, operation: Operation[Any], *, deadline: float = inf) -> Any:  # noqa: ANN401  # the operation's own answer
        if isinstance(operation, ReleaseFair):
            raise KeyboardInterrupt
        return super().execute(operation, deadline=deadline)


def test_a_fair_grant_that_is_interrupted_at_the_door_keeps_no_units() -> None:
    pool = Pool(InterruptedAtTheDoor(), "ticket")
    pool.open(stock=10, segments=1)
    with pytest.raises(KeyboardInterrupt):
        pool.grant("a", timeout=1, fair=True)
    assert (pool.state().available, pool.state().reserved) == (10, 0)


def test_a_fair_grant_that_is_cancelled_at_any_moment_keeps_no_units() -> None:
    async def reserved(turns: int) -> tuple[int, bool]:
        pool = AsyncPool(AsyncMemoryStore(), "ticket")
        await pool.open(stock=10, segments=1)
        task = asyncio.ensure_future(pool.grant("a", timeout=1, fair=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return (await pool.state()).reserved, task.cancelled()

    found = [asyncio.run(reserved(turns)) for turns in range(40)]
    assert {units for units, is_cancelled in found if is_cancelled} == {0}
    assert {units for units, is_cancelled in found if not is_cancelled} == {1}


@pytest.mark.usefixtures("short_rounds")
def test_whoever_waits_inside_keeps_the_door_for_longer_than_the_door_lives(stores: list[RedisStore]) -> None:
    pool, door = Pool(stores[0], "ticket"), fair_keys("pool:ticket:door")
    pool.open(stock=5, segments=1)
    held = pool.grant("held", timeout=0)
    assert isinstance(held, Grant)
    found: list[Any] = []
    inside = threading.Thread(target=lambda: found.append(pool.grant("inside", timeout=60, fair=True)))
    inside.start()
    wait_until(lambda: have_come(stores[0], 1))
    holder = stores[0].client.get(door.lock)
    lives: list[Any] = []

    def lives_longer_again() -> bool:
        lives.append(stores[0].client.pttl(door.lock))
        return bool(lives[-1] > min(lives))

    for _ in range(2):
        lives.clear()
        wait_until(lives_longer_again)
    assert stores[0].client.get(door.lock) == holder
    assert isinstance(Pool(stores[1], "ticket").grant("passer-by", timeout=0, fair=True), Busy)
    held.confirm()
    inside.join(60)
    assert isinstance(found[0], Grant)
    assert not stores[0].client.exists(door.lock)


def test_whoever_fails_inside_leaves_the_door_to_the_next(stores: list[RedisStore]) -> None:
    pool, door = Pool(stores[0], "ticket"), fair_keys("pool:ticket:door")
    pool.open(stock=5, segments=1)
    held = pool.grant("held", timeout=0)
    assert isinstance(held, Grant)

    def wait() -> None:
        with pytest.raises(OrderMismatch):
            pool.grant("late", timeout=60, fair=True)

    inside = threading.Thread(target=wait)
    inside.start()
    wait_until(lambda: have_come(stores[0], 1))
    pool.reserve("late", quantity=2)
    held.confirm()
    inside.join(60)
    assert not inside.is_alive()
    assert not stores[0].client.exists(door.lock)


def test_a_fair_try_is_a_look_at_the_record_and_one_at_the_door_and_leaves_no_place(
    stores: list[RedisStore], count_scripts: CountScripts
) -> None:
    pool, door = Pool(stores[0], "ticket"), fair_keys("pool:ticket:door")
    server: Any = stores[0].client
    pool.open(stock=5, segments=1)
    server.set(door.lock, "somebody else", px=60_000)
    server.hset(door.fence, mapping={"kind": "fair", "token": "1"})
    assert isinstance(pool.grant("a", timeout=0, fair=True), Busy)  # and the scripts are known
    scripts = count_scripts(server, "ticket")
    assert isinstance(pool.grant("a", timeout=0, fair=True), Busy)
    assert scripts() == 2
    assert server.zcard(door.queue) == 0
