"""A limit per customer, over all of its orders, whatever their segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput, OrderMismatch
from segmented.models import AlreadyOpen, Busy, Closed, Granted, LimitReached, Order, Reserved, SoldOut
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def buys(shop: Shop, order_id: str, quantity: int = 1, *, customer: str = "ann", hold_ms: int = 600_000) -> object:
    return shop.reserve(order_id, quantity, customer_id=customer, hold_ms=hold_ms)


def test_the_limit_is_told_by_the_pools_state(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    assert shop.state().limit_per_customer == 2
    again = shop.open(9, 3)
    assert isinstance(again, AlreadyOpen)
    assert again.state.limit_per_customer == 2


def test_orders_of_one_customer_count_together_over_all_segments(shop: Shop) -> None:
    shop.open(16, 8, limit_per_customer=3)
    assert buys(shop, "large", 4) == LimitReached("large", 4, "ann", limit=3, taken=0)
    for _ in range(3):  # a repeat counts once
        assert isinstance(buys(shop, "a", 2), Reserved)
    assert buys(shop, "b", 2) == LimitReached("b", 2, "ann", limit=3, taken=2)
    assert isinstance(buys(shop, "c", 1), Reserved)
    shop.confirm("a")  # and counts forever
    assert buys(shop, "d", 1) == LimitReached("d", 1, "ann", limit=3, taken=3)
    with pytest.raises(OrderMismatch):
        buys(shop, "a", 2, customer="bob")
    assert isinstance(buys(shop, "e", 3, customer="bob"), Reserved)
    assert shop.totals() == (10, 4, 2)


def test_after_a_cancel_the_customer_can_buy_again(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    for number in range(5):
        assert isinstance(buys(shop, f"a{number}", 2), Reserved)
        assert isinstance(buys(shop, "too much"), LimitReached)
        shop.cancel(f"a{number}")
        shop.cancel(f"a{number}")
    assert isinstance(buys(shop, "b", 2), Reserved)
    assert isinstance(buys(shop, "too much"), LimitReached)


def test_a_hold_that_has_lapsed_does_not_count_though_nobody_has_swept(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    buys(shop, "a", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), Reserved)
    assert buys(shop, "c") == LimitReached("c", 1, "ann", limit=2, taken=2)


def test_with_many_holds_due_a_customer_at_its_limit_is_told_to_ask_again(shop: Shop) -> None:
    shop.open(40, 4, limit_per_customer=2)
    shop.reserve_many([Order(f"late{index:02}", 1, f"other{index}") for index in range(20)], hold_ms=SHORT_MS)
    buys(shop, "zz", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), Busy)
    assert isinstance(buys(shop, "b", 2), Reserved)


def test_a_gated_pool_counts_lapsed_holds_until_they_are_voided(shop: Shop) -> None:
    shop.open(9, 3, gated=True, limit_per_customer=2)
    buys(shop, "a", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), LimitReached)
    shop.cancel("a", voided=True)
    assert isinstance(buys(shop, "b", 2), Reserved)


def test_batches_count_within_and_across_calls(shop: Shop) -> None:
    shop.open(20, 4, limit_per_customer=3)
    answers = shop.reserve_many(
        [Order("a", 2, "ann"), Order("b", 2, "ann"), Order("c", 3, "bob"), Order("d", 1, "ann"), Order("a", 2, "ann")]
    )
    assert [type(answer) for answer in answers] == [Reserved, LimitReached, Reserved, Reserved, Reserved]
    assert answers[1] == LimitReached("b", 2, "ann", limit=3, taken=2)
    assert shop.reserve_many([Order("e", 1, "ann")]) == (LimitReached("e", 1, "ann", limit=3, taken=3),)
    shop.cancel_many("a", "d", "a")
    assert [type(answer) for answer in shop.reserve_many([Order("f", 3, "ann"), Order("g", 1, "ann")])] == [
        Reserved,
        LimitReached,
    ]


def test_grants_count_as_reservations_do(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    assert isinstance(shop.grant("a", 2, customer_id="ann", holder_id="first"), Granted)
    assert shop.grant("b", customer_id="ann", keep_refusal=True) == LimitReached("b", 1, "ann", limit=2, taken=2)
    assert shop.record("b") is None  # it is never kept as the order's state
    shop.let_lease_lapse("a", "first")
    assert isinstance(shop.grant("a", 2, customer_id="ann", holder_id="second"), Granted)
    shop.cancel("a")
    assert isinstance(shop.grant("b", 2, customer_id="ann"), Granted)


def test_an_order_without_a_customer_is_an_error_that_changes_nothing(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    sentence = rf"^order 'a' names no customer, but pool '{shop.sku}' limits what one may have$"
    with pytest.raises(InvalidInput, match=sentence):
        shop.reserve("a")
    with pytest.raises(InvalidInput, match=sentence):
        shop.grant("a")
    answers = shop.reserve_many([Order("a", 1), Order("b", 1, "bob")])
    assert [type(answer) for answer in answers] == [InvalidInput, Reserved]
    assert shop.totals() == (8, 1, 0)


def test_closed_goes_before_the_limit_and_the_limit_before_sold_out(shop: Shop) -> None:
    shop.open(2, 2, limit_per_customer=2)
    buys(shop, "a", 2)
    assert isinstance(buys(shop, "b"), LimitReached)
    assert isinstance(buys(shop, "c", customer="bob"), SoldOut)
    shop.close()
    assert buys(shop, "b") == Closed("b")


def test_with_partial_limit_and_stock_both_bound_what_a_customer_gets(shop: Shop) -> None:
    shop.open(6, 2, limit_per_customer=3)
    buys(shop, "a", 1)
    assert getattr(shop.reserve("b", 5, customer_id="ann", partial=True), "quantity", None) == 2
    assert isinstance(shop.reserve("c", 5, customer_id="ann", partial=True), LimitReached)
    buys(shop, "d", 1, customer="bob")
    answer = shop.reserve("e", 5, customer_id="cid", partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 2  # all that is left
    shop.cancel("d")
    again = Reserved("e", 2, answer.segment, answer.parts, 1, answer.sequence, replay=True)
    assert shop.reserve("e", 5, customer_id="cid", partial=True) == again


def test_a_limit_survives_a_resize_and_a_restock(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    buys(shop, "a", 2)
    shop.resize(7)
    shop.restock(100, "r")
    assert isinstance(buys(shop, "b"), LimitReached)
    shop.cancel("a")
    assert isinstance(buys(shop, "b", 2), Reserved)
