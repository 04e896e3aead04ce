"""The end of a hold, which the answer to a reservation has: the same as in the order's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import Inspected, Order, Reserved

if TYPE_CHECKING:
    from segmented.models import Taken
    from tests.fixtures.stores import Side


def until(answer: Taken | Exception) -> int:
    assert isinstance(answer, Reserved), answer
    return answer.hold_until_ms


def recorded(side: Side, sku: str, order_id: str) -> int | None:
    (found,) = side.execute(op.InspectOrders(sku, (order_id,)))
    assert isinstance(found, Inspected)
    return found.hold_until_ms


def test_a_reservation_says_when_its_hold_ends(side: Side) -> None:
    sku = side.name()
    long, short = (side.pool(sku, ttl=1, hold=hold) for hold in (600, 60))
    long.open(stock=9, segments=2)
    first, second = until(long.reserve("a")), until(short.reserve("b"))
    assert 480_000 < first - second <= 540_000
    assert [recorded(side, sku, order_id) for order_id in "ab"] == [first, second]


def test_a_repeat_says_the_end_that_stands(side: Side) -> None:
    sku = side.name()
    long, short = (side.pool(sku, ttl=1, hold=hold) for hold in (600, 60))
    long.open(stock=9, segments=2)
    first = until(long.reserve("a"))
    assert until(short.reserve("a")) == first
    later, taken, again = long.reserve_many([Order("a"), Order("b"), Order("b")])
    assert until(later) == until(taken) == until(again) >= first
    assert [recorded(side, sku, order_id) for order_id in "ab"] == [until(later), until(taken)]
