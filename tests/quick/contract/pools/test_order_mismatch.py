"""An id that comes again with other content: the error names each field that differs, what is stored and what came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch
from segmented.models import Order, Reserved
from tests.support.contract.orders.submitting import queue, submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.contract.pools.shop import Shop

KNOWN = "order 'a' exists with other content: "
OTHERS = {
    "another quantity": (Order("a", 3, "ann"), "quantity 2 is stored, 3 was given"),
    "another customer": (Order("a", 2, "bob"), "another customer is stored, bob was given"),
    "no customer": (Order("a", 2), "a customer is stored, none was given"),
    "both": (Order("a", 7, "bob"), "quantity 2 is stored, 7 was given; another customer is stored, bob was given"),
}


def said_by(call: Callable[..., object], order: Order) -> str:
    with pytest.raises(OrderMismatch) as caught:
        call(order.order_id, order.quantity, customer_id=order.customer_id)
    assert caught.value.order_id == order.order_id
    return str(caught.value)


@pytest.mark.parametrize("state", ["queued", "reserved", "confirmed", "cancelled"])
def test_an_order_says_what_differs_to_every_call(shop: Shop, state: str) -> None:
    shop.open(10, 4)
    queue(shop, Order("a", 2, "ann")) if state == "queued" else shop.reserve("a", 2, customer_id="ann")
    if state in {"confirmed", "cancelled"}:
        (shop.confirm if state == "confirmed" else shop.cancel)("a")
    for name, (other, difference) in OTHERS.items():
        found = [said_by(shop.reserve, other), said_by(shop.grant, other)]
        found += map(str, [*shop.reserve_many([other]), *submit(shop, other), *queue(shop, other)])
        assert found == [KNOWN + difference] * 5, name


def test_the_stored_quantity_is_the_one_asked_for_even_if_fewer_units_were_left(shop: Shop) -> None:
    shop.open(3, 1)
    shop.reserve("a", 5, partial=True)
    assert shop.totals() == (0, 3, 0)
    assert said_by(shop.reserve, Order("a", 3)) == KNOWN + "quantity 5 is stored, 3 was given"
    assert said_by(shop.grant, Order("a", 4)) == KNOWN + "quantity 5 is stored, 4 was given"


def test_an_order_is_compared_with_one_before_it_in_the_same_call(shop: Shop) -> None:
    shop.open(10, 4)
    first, other, again = Order("a", 2, "ann"), Order("a", 3), Order("b", 1)
    difference = KNOWN + "quantity 2 is stored, 3 was given; a customer is stored, none was given"
    assert str(shop.reserve_many([first, other, again])[1]) == difference
    assert str(queue(shop, Order("q", 2, "ann"), Order("q", 3))[1]) == difference.replace("'a'", "'q'")


def test_a_customer_whom_another_program_wrote_does_not_break_the_lines_of_a_batch(plain_redis_shop: Shop) -> None:
    """Nor does one in another encoding hide the answers."""
    shop = plain_redis_shop
    shop.open(10, 1)
    shop.reserve("a", 2, customer_id="ann")
    raw = shop.side.raw()
    record = str(raw.hget(shop.keys.orders, "a"))
    for customer in (b"\ta\nn", b"\tM\xfcller"):
        raw.hset(shop.keys.orders, "a", record.encode().replace(b"\tann", customer))
        first, second = shop.reserve_many([Order("a", 3), Order("b", 1)])
        assert str(first) == KNOWN + "quantity 2 is stored, 3 was given; a customer is stored, none was given"
        assert isinstance(second, Reserved)
    raw.hset(shop.keys.orders, "a", record)
