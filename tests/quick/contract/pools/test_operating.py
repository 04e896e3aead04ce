"""The calls with which a program operates a pool: open it again, count its free units, list its orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from segmented.errors import InvalidInput, PoolDiffers
from segmented.models import AlreadyOpen, Order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from segmented.models import OrderRecord
    from segmented.stock import Pool
    from tests.fixtures.stores import Side


def test_opening_again_says_what_is_there(pool: Pool) -> None:
    before = pool.state()
    assert pool.open(stock=8, segments=2) == AlreadyOpen(before)
    assert isinstance(pool.open(stock=8, segments=2, profile="memory"), AlreadyOpen)
    with pytest.raises(PoolDiffers, match=f"^pool '{pool.sku}' is open already, with stock 8 .*: nothing is") as caught:
        pool.open(stock=5, segments=5, limit_per_customer=3, epoch=2, profile="replicated:1")
    assert caught.value.differing == (
        "stock 8 instead of 5",
        "segments 2 instead of 5",
        "limit per customer none instead of 3",
        "epoch 1 instead of 2",
        "profile memory instead of replicated:1",
    )
    assert pool.state() == before
    pool.close()
    with pytest.raises(PoolDiffers, match=r"with state closed instead of open: nothing is changed; sell from a pool"):
        pool.open(stock=8, segments=2)


def all_of(side: Side, found: Iterator[OrderRecord] | AsyncIterator[OrderRecord]) -> list[str]:
    """Return the sorted ids of the orders that a pool of either kind lists."""

    async def gathered() -> list[OrderRecord]:
        return [one async for one in cast("AsyncIterator[OrderRecord]", found)]

    records = side.wait(gathered()) if hasattr(found, "__aiter__") else list(found)  # type: ignore[attr-defined]  # of the asynchronous side
    return sorted(one.order_id for one in records)


def test_the_orders_of_a_pool_are_read_by_id_and_by_state(side: Side, pool: Pool) -> None:
    pool.reserve("a", quantity=2, customer_id="ann")
    pool.reserve_many([Order("b"), Order("c")])
    pool.confirm("a")
    pool.cancel("c")
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.customer_id) == ("confirmed", 2, "ann")
    assert pool.order("never") is None
    assert all_of(side, pool.orders(state="confirmed")) == ["a"]
    assert all_of(side, pool.orders(state="reserved")) == ["b"]
    assert all_of(side, pool.orders()) == ["a", "b", "c"]
    assert pool.available() == 5
    with pytest.raises(InvalidInput, match=r"^state='sold' is not one of 'reserved', 'confirmed', "):
        all_of(side, pool.orders(state="sold"))  # type: ignore[arg-type]  # what is tested


def test_two_thousand_orders_are_listed_once_each(side: Side, pool: Pool) -> None:
    pool.restock(2_000, restock_id="truck")
    pool.reserve_many([Order(f"o-{number}") for number in range(2_000)])
    assert all_of(side, pool.orders()) == sorted(f"o-{number}" for number in range(2_000))
