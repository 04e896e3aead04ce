"""An order's quantity is lowered while it is reserved: the other units are free at once, and its limit has room."""

import pytest

from segmented.errors import AlreadySettled, InvalidInput, OrderInWork, OrderUnknown
from segmented.models import LimitReached, Order, Reserved
from segmented.stock import AsyncPool, Outbox, Pool
from tests.fixtures.stores import Side
from tests.support.contract.shards.sharding import check_all, sharded


def test_two_of_three_units_are_kept_and_the_third_is_free_at_once(side: Side, pool: Pool) -> None:
    reserved = pool.reserve("a", quantity=3)
    assert isinstance(reserved, Reserved)
    for times in range(3):
        changed = side.pool(pool.sku).change("a", quantity=2)
        assert (changed.quantity, changed.replay, changed.hold_until_ms) == (2, times > 0, reserved.hold_until_ms)
        assert (pool.state().available, pool.state().reserved) == (6, 2)
    assert pool.confirm("a").quantity == 2
    assert (pool.state().available, pool.state().confirmed) == (6, 2)


def test_units_go_back_to_the_last_segments_and_all_can_be_sold(pool: Pool) -> None:
    reserved = pool.reserve("a", quantity=7)
    assert isinstance(reserved, Reserved)
    assert len(reserved.parts) == 2
    changed = pool.change("a", quantity=1)
    assert changed.parts == ((reserved.segment, 1),)
    assert sorted(pool.state().stock) == [3, 4]
    assert isinstance(pool.reserve("b", quantity=7), Reserved)
    pool.cancel("a")
    assert pool.state().available == 1


def test_a_repeat_of_the_reservation_gets_what_the_order_has_now(pool: Pool) -> None:
    pool.reserve("a", quantity=3)
    pool.change("a", quantity=2)
    again = pool.reserve("a", quantity=3)
    assert isinstance(again, Reserved)
    assert (again.quantity, again.replay) == (2, True)
    assert pool.state().reserved == 2


def test_the_customers_limit_has_room_for_what_was_given_back(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=8, segments=2, limit_per_customer=3)
    pool.reserve(Order("a", 3, "ann"))
    assert isinstance(pool.reserve(Order("b", 1, "ann")), LimitReached)
    pool.change("a", quantity=2)
    assert isinstance(pool.reserve(Order("b", 1, "ann")), Reserved)
    assert isinstance(pool.reserve(Order("c", 1, "ann")), LimitReached)
    assert pool.audit().is_clean


def test_more_units_are_refused_with_the_cure(pool: Pool) -> None:
    pool.reserve("a", quantity=2)
    said = (
        r"^order 'a' has 2 units, and a change can only lower that, not raise it to 5: "
        r"reserve the other 3 under a second order id$"
    )
    with pytest.raises(InvalidInput, match=said):
        pool.change("a", quantity=5)
    assert pool.state().reserved == 2


def test_an_order_that_has_ended_or_is_in_work_keeps_its_units(side: Side, pool: Pool) -> None:
    pool.reserve("sold", quantity=3)
    pool.confirm("sold")
    with pytest.raises(AlreadySettled, match=r"^order 'sold' is already confirmed: its quantity is not changed$"):
        pool.change("sold", quantity=1)
    with pytest.raises(OrderUnknown):
        pool.change("nobody", quantity=1)
    outbox = Outbox()
    submits = side.made(
        lambda store: Pool(store, pool.sku, outbox=outbox), lambda store: AsyncPool(store, pool.sku, outbox=outbox)
    )
    submits.submit("submitted", quantity=3)
    with pytest.raises(OrderInWork, match=r"^order 'submitted' is in work: "):
        pool.change("submitted", quantity=1)
    assert (pool.state().reserved, pool.state().confirmed) == (3, 3)


def test_units_of_a_removed_segment_go_to_one_that_is_left(pool: Pool) -> None:
    pool.reserve("a", quantity=7)
    pool.resize(1)
    pool.change("a", quantity=1)
    assert pool.state().stock == (7,)


def test_an_order_in_shards_is_changed_at_its_home(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=3, limit_per_customer=4)
    pool.reserve(Order("a", 4, "ann"))
    assert pool.change("a", quantity=1, customer_id="ann").quantity == 1
    assert (pool.state().available, pool.state().reserved) == (8, 1)
    check_all(pool)
