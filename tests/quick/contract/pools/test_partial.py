"""Partial orders: what is left, if that is less than asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch
from segmented.models import Busy, Decided, Granted, Order, Reserved, SoldOut
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_a_partial_order_gets_all_of_it_while_there_is_enough_and_then_what_is_left(shop: Shop) -> None:
    shop.open(9, 3)
    assert shop.reserve("a", 5, partial=True) == Reserved("a", 5, 1, ((1, 3), (0, 2)), 1, 2, replay=False)
    assert isinstance(shop.reserve("b", 7), SoldOut)
    assert getattr(shop.reserve("b", 7, partial=True), "quantity", None) == 4
    for order_id, quantity, asked in (("a", 5, 5), ("b", 4, 7)):
        record = shop.record(order_id)
        assert record is not None
        assert (record.quantity, record.asked) == (quantity, asked)
    assert shop.totals() == (0, 9, 0)
    assert shop.ledger()[-1].quantity == 4
    assert shop.reserve("c", 5, partial=True) == SoldOut("c", 5, available=0, reserved=9, sequence=3)
    assert (shop.confirm("a").quantity, shop.totals()) == (5, (0, 4, 5))
    shop.cancel("b")
    assert shop.reserve("b", 7) == Decided("b", "cancelled", 4, 2, None, 5, replay=True)


def test_a_repeat_gets_what_it_got_however_much_is_free_by_then(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    shop.restock(100, "r")
    for partial in (True, False):
        again = shop.reserve("a", 5, partial=partial)
        assert isinstance(again, Reserved)
        assert (again.quantity, again.replay) == (2, True)
        with pytest.raises(OrderMismatch):
            shop.reserve("a", 2, partial=partial)  # what was taken, and not what was asked for
    assert shop.totals() == (100, 2, 0)


def test_a_batch_of_partial_orders_shares_what_is_left_in_its_order(shop: Shop) -> None:
    shop.open(9, 3)
    answers = shop.reserve_many([Order("a", 4), Order("b", 8), Order("c", 8), Order("b", 8)], partial=True)
    assert [getattr(answer, "quantity", None) for answer in answers] == [4, 5, 8, 5]
    assert [type(answer) for answer in answers] == [Reserved, Reserved, SoldOut, Reserved]
    assert isinstance(answers[3], Reserved)
    assert answers[3].replay
    assert shop.totals() == (0, 9, 0)


def test_a_grant_takes_what_is_left_and_says_how_many(shop: Shop) -> None:
    shop.open(3, 2)
    answer = shop.grant("a", 5, partial=True)
    assert isinstance(answer, Granted)
    assert (answer.quantity, sum(units for _, units in answer.parts)) == (3, 3)
    again = shop.grant("a", 5)
    assert isinstance(again, Granted)
    assert (again.quantity, again.replay) == (3, True)
    shop.let_lease_lapse("a")
    second = shop.grant("a", 5, holder_id="second")
    assert isinstance(second, Granted)
    assert (second.quantity, second.replay) == (3, True)


def test_a_partial_grant_of_an_empty_pool_keeps_its_refusal_on_request(shop: Shop) -> None:
    shop.open(1, 1)
    shop.reserved("a")
    assert isinstance(shop.grant("b", 5, partial=True, keep_refusal=True), SoldOut)
    record = shop.record("b")
    assert record is not None
    assert (record.state, record.quantity) == ("refused", 5)


def test_a_partial_order_asks_again_while_more_is_coming_back(shop: Shop) -> None:
    shop.open(40, 4)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(40)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.reserve("a", 40, partial=True), Busy)
    assert isinstance(shop.reserve("a", 40, partial=True), Busy)
    answer = shop.reserve("a", 40, partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 40
