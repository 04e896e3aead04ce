"""A hold is lengthened by the order's id: never shortened, and not once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented.errors import AlreadySettled, InvalidInput, OrderQueued, OrderUnknown
from segmented.models import Order, Reserved
from segmented.stock import AsyncPool, Outbox, Pool
from tests.support.contract.pools.shop import SHORT_MS
from tests.support.contract.shards.sharding import check_all, sharded

if TYPE_CHECKING:
    from tests.fixtures.stores import Side
    from tests.support.contract.pools.shop import Shop

HOUR: Final = 3_600


def until(answer: object) -> int:
    assert isinstance(answer, Reserved), answer
    return answer.hold_until_ms


def test_a_hold_is_lengthened_by_another_process_and_never_shortened(side: Side, pool: Pool) -> None:
    reserved = pool.reserve("a", quantity=3)
    longer = side.pool(pool.sku).extend("a", seconds=HOUR)
    assert 2_900_000 < until(longer) - until(reserved) <= 3_100_000
    assert pool.extend("a", seconds=300) == longer
    assert until(pool.extend("a", seconds=300)) == until(longer)
    assert isinstance(reserved, Reserved)
    assert (longer.quantity, longer.parts, longer.sequence) == (3, reserved.parts, reserved.sequence)
    record = pool.order("a")
    assert record is not None
    assert record.hold_until_ms == until(longer)
    assert pool.state().sequence == 2


@pytest.mark.parametrize("end", ["confirm", "cancel"])
def test_the_hold_of_an_order_that_has_ended_is_refused_in_one_sentence(pool: Pool, end: str) -> None:
    pool.reserve("a", quantity=3)
    state = getattr(pool, end)("a").state
    said = rf"^order 'a' is already {state}: its hold is not lengthened$"
    for _ in range(2):
        with pytest.raises(AlreadySettled, match=said):
            pool.extend("a", seconds=300)
    with pytest.raises(OrderUnknown, match=r"^order 'b' is not known to the pool$"):
        pool.extend("b", seconds=300)


def test_a_hold_extended_after_its_end_gives_its_units_back_at_once(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    with pytest.raises(AlreadySettled, match=r"^order 'a' is already expired: its hold is not lengthened$"):
        shop.side.pool(shop.sku).extend("a", seconds=300)
    assert shop.totals() == (8, 0, 0)
    assert shop.story() == [("opened", None), ("reserved", "a"), ("expired", "a")]


def test_a_live_lease_keeps_a_hold_that_has_ended_and_it_is_lengthened(shop: Shop) -> None:
    shop.open(8, 2)
    shop.grant("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert until(shop.side.pool(shop.sku).extend("a", seconds=300)) > 0
    assert shop.totals() == (5, 3, 0)


def test_an_order_that_waits_for_a_worker_has_no_hold_to_lengthen(side: Side) -> None:
    sku, outbox = side.name(), Outbox(decides="in the worker")
    pool = side.made(lambda store: Pool(store, sku, outbox=outbox), lambda store: AsyncPool(store, sku, outbox=outbox))
    pool.open(stock=8, segments=2)
    pool.submit("a")
    with pytest.raises(OrderQueued, match=r"^order 'a' is queued: "):
        pool.extend("a", seconds=300)
    assert pool.state().reserved == 0


def test_a_hold_in_shards_is_lengthened_at_the_orders_home(side: Side) -> None:
    pool = sharded(side, side.name())
    pool.open(stock=9, segments=4, shards=3, limit_per_customer=3)
    reserved = pool.reserve(Order("a", 2, "ann"))
    assert until(pool.extend("a", seconds=HOUR, customer_id="ann")) - until(reserved) > 2_900_000
    with pytest.raises(InvalidInput, match=r"name the customer of order 'a'$"):
        pool.extend("a", seconds=HOUR)
    check_all(pool)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "soon", None])
def test_what_is_no_time_is_refused_before_anything_is_sent(pool: Pool, seconds: Any) -> None:  # noqa: ANN401  # bad on purpose
    with pytest.raises(InvalidInput, match=r"^seconds"):
        pool.extend("a", seconds=seconds)
