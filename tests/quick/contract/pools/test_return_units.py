"""Units of a sold order come back, once for each return id, and at most as many as were sold."""

from typing import Any

import pytest

from segmented.errors import AlreadySettled, ChangeMismatch, InvalidInput, OrderUnknown
from segmented.models import LimitReached, Order, Reserved, Returned
from segmented.stock import Pool
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop
from tests.support.contract.shards.sharding import check_all, sharded


def sell(pool: Pool, order: Order) -> None:
    pool.reserve(order)
    pool.confirm(order.order_id)


def test_one_of_three_units_comes_back_once_however_often_it_is_asked(side: Side, pool: Pool) -> None:
    sell(pool, Order("a", 3))
    first = pool.return_units("a", 1, return_id="rma-1")
    assert first == Returned("a", "rma-1", 1, quantity=2, sequence=4, replay=False)
    for _ in range(2):
        assert side.pool(pool.sku).return_units("a", 1, return_id="rma-1").replay
    assert (pool.state().available, pool.state().confirmed) == (6, 2)
    record = pool.order("a")
    assert record is not None
    assert (record.state, record.quantity, record.asked) == ("confirmed", 2, 3)
    assert pool.confirm("a").replay


def test_an_order_whose_units_have_all_come_back_is_returned_and_not_sold(pool: Pool) -> None:
    sell(pool, Order("a", 3))
    sell(pool, Order("b", 5))
    pool.return_units("a", 1, return_id="rma-1")
    assert pool.return_units("a", 2, return_id="rma-2").quantity == 0
    record = pool.order("a")
    assert record is not None
    assert record.state == "returned"
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already returned: it cannot be confirmed$"):
        pool.confirm("a")
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already returned: nothing of it can be returned$"):
        pool.return_units("a", 1, return_id="rma-3")
    assert pool.cancel("a").state == "returned"
    assert isinstance(pool.reserve("c", quantity=3), Reserved)
    assert (pool.state().available, pool.state().confirmed) == (0, 5)


def test_returns_of_an_order_are_at_most_what_was_sold(pool: Pool) -> None:
    sell(pool, Order("a", 3))
    pool.return_units("a", 2, return_id="rma-1")
    with pytest.raises(InvalidInput, match=r"^2 units of order 'a' cannot be returned: 1 of it are sold$"):
        pool.return_units("a", 2, return_id="rma-2")
    with pytest.raises(ChangeMismatch, match=r"^change 'rma-1' of pool .* was something else before$"):
        pool.return_units("a", 1, return_id="rma-1")
    pool.restock(1, restock_id="more")
    with pytest.raises(ChangeMismatch):
        pool.return_units("a", 1, return_id="more")
    with pytest.raises(ChangeMismatch):
        pool.restock(2, restock_id="rma-1")
    assert (pool.state().available, pool.state().confirmed) == (8, 1)


def test_an_order_that_is_not_sold_gives_nothing_back(pool: Pool) -> None:
    pool.reserve("held", quantity=2)
    with pytest.raises(InvalidInput, match=r"^order 'held' is reserved, not sold: cancel it, or change its quantity$"):
        pool.return_units("held", 1, return_id="rma-1")
    pool.cancel("held")
    with pytest.raises(AlreadySettled, match=r"^order 'held' is already cancelled: nothing of it can be returned$"):
        pool.return_units("held", 1, return_id="rma-1")
    with pytest.raises(OrderUnknown, match=r"^order 'nobody' is not known to the pool$"):
        pool.return_units("nobody", 1, return_id="rma-1")
    assert pool.state().available == 8


def test_the_customers_limit_has_room_for_what_came_back(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, limit_per_customer=3)
    sell(pool, Order("a", 3, "ann"))
    assert isinstance(pool.reserve(Order("b", 1, "ann")), LimitReached)
    pool.return_units("a", 2, return_id="rma-1")
    assert isinstance(pool.reserve(Order("b", 2, "ann")), Reserved)
    assert isinstance(pool.reserve(Order("c", 1, "ann")), LimitReached)
    assert pool.audit().is_clean


def test_units_of_several_segments_and_of_a_removed_one_come_back(pool: Pool) -> None:
    sell(pool, Order("a", 7))
    pool.resize(3)
    pool.return_units("a", 4, return_id="rma-1")
    pool.resize(1)
    pool.return_units("a", 3, return_id="rma-2")
    assert pool.state().stock == (8,)


@pytest.mark.parametrize("limit", [None, 7])
def test_an_audit_is_clean_after_a_trim_between_sale_and_return(side: Side, limit: int | None) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, limit_per_customer=limit)
    sell(pool, Order("a", 3, "ann"))
    sell(pool, Order("b", 2, "ann"))
    pool.trim_ledger(keep=0)
    pool.return_units("a", 1, return_id="rma-1")
    assert pool.audit().is_clean
    pool.return_units("a", 2, return_id="rma-2")
    assert pool.audit().is_clean
    pool.trim_ledger(keep=0)
    pool.return_units("b", 1, return_id="rma-3")
    report = pool.audit()
    assert report.is_clean, report.drift
    assert (report.state.available, report.state.confirmed) == (7, 1)


def test_the_ledger_says_what_came_back(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    shop.confirm("a")
    shop.side.pool(shop.sku).return_units("a", 1, return_id="rma-1")
    last = shop.ledger()[-1]
    assert (last.kind, last.order_id, last.quantity, last.note) == ("returned", "a", 2, f"{last.segment}:1 rma-1")


def test_an_order_in_shards_gives_back_at_its_home(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=3, limit_per_customer=4)
    pool.reserve(Order("a", 4, "ann"))
    pool.confirm("a", customer_id="ann")
    assert pool.return_units("a", 3, return_id="rma-1", customer_id="ann").quantity == 1
    assert (pool.state().available, pool.state().confirmed) == (8, 1)
    check_all(pool)


@pytest.mark.parametrize("units", [0, -1, 1.5, "2", None])
def test_what_is_no_number_of_units_is_refused_before_anything_is_sent(pool: Pool, units: Any) -> None:  # noqa: ANN401  # bad on purpose
    with pytest.raises(InvalidInput, match=r"^units to return "):
        pool.return_units("a", units, return_id="rma-1")
