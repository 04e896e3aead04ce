"""Grants in the order of arrival, across stores that know nothing of each other."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from segmented import Pool, RedisStore
from segmented.keys import fair_keys
from segmented.models import Busy, SoldOut
from segmented.stock import Grant
from tests.contract.parking import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer


@pytest.fixture
def stores(valkey: ValkeyServer) -> Iterator[list[RedisStore]]:
    """Two stores on one server, each with a line of its own."""
    with RedisStore.from_url(valkey.url) as first, RedisStore.from_url(valkey.url) as second:
        yield [first, second]


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
        with pool.grant(order_id, timeout=30, fair=True):
            order.append(order_id)

    waiters = []
    for number in range(10):
        waiter = threading.Thread(target=buy, args=(pools[number % 2], f"o{number}"))
        waiter.start()
        waiters.append(waiter)
        wait_until(partial(have_come, stores[0], number + 1))
    first.confirm()
    for waiter in waiters:
        waiter.join(30)
    assert order == [f"o{number}" for number in range(10)]
    assert pools[0].audit().is_clean


def test_a_fair_grant_that_has_to_wait_ends_at_its_deadline_and_leaves_the_door(stores: list[RedisStore]) -> None:
    pool = Pool(stores[0], "ticket")
    pool.open(stock=5, segments=1)
    held = pool.grant("held", timeout=0)
    assert isinstance(held, Grant)
    assert isinstance(pool.grant("late", timeout=0.2, fair=True), Busy)
    assert isinstance(pool.grant("at once", timeout=0, fair=True), Busy)
    held.confirm()
    after = Pool(stores[1], "ticket").grant("after", timeout=0, fair=True)
    assert isinstance(after, Grant)


def test_whoever_is_sold_out_leaves_the_door_to_the_next(stores: list[RedisStore]) -> None:
    pool = Pool(stores[0], "ticket")
    pool.open(stock=1, segments=1)
    with pool.grant("a", timeout=0, fair=True):
        pass
    assert isinstance(pool.grant("b", timeout=5, fair=True), SoldOut)
    assert isinstance(pool.grant("c", timeout=0, fair=True), SoldOut)


def test_an_order_that_is_known_does_not_stand_at_the_door(stores: list[RedisStore]) -> None:
    pool = Pool(stores[0], "ticket")
    pool.open(stock=5, segments=2)
    pool.reserve("a")
    grant = pool.grant("a", timeout=0, fair=True)
    assert isinstance(grant, Grant)
    assert not stores[0].client.exists(fair_keys("pool:ticket:door").fence)


def test_a_dead_holder_of_the_door_is_waited_for_until_its_lease_lapses(stores: list[RedisStore]) -> None:
    pool = Pool(stores[0], "ticket")
    pool.open(stock=5, segments=1)
    door = fair_keys("pool:ticket:door")
    stores[0].client.set(door.lock, "dead", px=300)
    stores[0].client.hset(door.fence, mapping={"kind": "fair", "token": "1"})
    grant = Pool(stores[1], "ticket").grant("a", timeout=10, fair=True)
    assert isinstance(grant, Grant)
