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
    assert pool.open(stock=before.opened, segments=2) == AlreadyOpen(before)
    with pytest.raises(PoolDiffers) as caught:
        pool.open(stock=5, segments=5, limit_per_customer=3, epoch=2)
    differing = ("stock 8 instead of 5", "segments 2 instead of 5", "limit per customer none instead of 3")
    assert caught.value.differing == (*differing, "epoch 1 instead of 2")
    assert str(caught.value) == (
        f"pool '{pool.sku}' is open already, with {', '.join(caught.value.differing)}: nothing is changed; "
        "open it with its own numbers, or change it with restock, withdraw, resize or assign"
    )
    assert pool.state() == before


def test_opening_a_closed_pool_says_that_it_is_closed(pool: Pool) -> None:
    stock = pool.state().opened
    pool.close()
    with pytest.raises(PoolDiffers, match=r"with state closed instead of open: nothing is changed; sell from a pool"):
        pool.open(stock=stock, segments=2)


def test_a_profile_that_is_not_asked_for_is_not_compared(pool: Pool) -> None:
    stock = pool.state().opened
    assert isinstance(pool.open(stock=stock, segments=2, profile="memory"), AlreadyOpen)
    with pytest.raises(PoolDiffers, match=r"with profile memory instead of replicated:1"):
        pool.open(stock=stock, segments=2, profile="replicated:1")


# --- orders of a pool ---


def all_of(side: Side, found: Iterator[OrderRecord] | AsyncIterator[OrderRecord]) -> list[str]:
    """Return the sorted ids of the orders that a pool of either kind lists."""

    async def gathered() -> list[OrderRecord]:
        return [one async for one in cast("AsyncIterator[OrderRecord]", found)]

    records = side.wait(gathered()) if hasattr(found, "__aiter__") else list(found)  # type: ignore[attr-defined]  # of the asynchronous side
    return sorted(one.order_id for one in records)


def test_the_orders_of_a_pool_are_read_by_id_and_by_state(waiting_side: Side, pool: Pool) -> None:
    stock = pool.available()
    pool.reserve("a", quantity=2, customer_id="ann")
    pool.reserve_many([Order("b"), Order("c")])
    pool.confirm("a")
    pool.cancel("c")
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.customer_id) == ("confirmed", 2, "ann")
    assert pool.order("never") is None
    assert all_of(waiting_side, pool.orders(state="confirmed")) == ["a"]
    assert all_of(waiting_side, pool.orders(state="reserved")) == ["b"]
    assert all_of(waiting_side, pool.orders()) == ["a", "b", "c"]
    assert pool.available() == stock - 3
    with pytest.raises(InvalidInput, match=r"^state='sold' is not one of 'reserved', 'confirmed', "):
        all_of(waiting_side, pool.orders(state="sold"))  # type: ignore[arg-type]  # what is tested


def test_two_thousand_orders_are_listed_once_each(waiting_side: Side, pool: Pool) -> None:
    pool.restock(2_000, restock_id="truck")
    pool.reserve_many([Order(f"o-{number}") for number in range(2_000)])
    assert all_of(waiting_side, pool.orders()) == sorted(f"o-{number}" for number in range(2_000))
