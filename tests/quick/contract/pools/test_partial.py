"""Partial orders: what is left, if that is less than asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch
from segmented.models import Busy, Decided, Granted, Order, Reserved, SoldOut
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_all_of_it_while_there_is_enough(shop: Shop) -> None:
    shop.open(9, 3)
    assert shop.reserve("a", 5, partial=True) == Reserved("a", 5, 1, ((1, 3), (0, 2)), 1, 2, replay=False)
    record = shop.record("a")
    assert record is not None
    assert (record.quantity, record.asked) == (5, 5)


def test_what_is_left_when_there_is_less(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 7)
    answer = shop.reserve("b", 5, partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 2
    record = shop.record("b")
    assert record is not None
    assert (record.quantity, record.asked) == (2, 5)
    assert shop.totals() == (0, 9, 0)
    assert shop.ledger()[-1].quantity == 2


def test_nothing_left_is_sold_out(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserved("a", 2)
    assert shop.reserve("b", 5, partial=True) == SoldOut("b", 5, available=0, reserved=2, sequence=2)


def test_without_partial_the_same_order_is_refused(shop: Shop) -> None:
    shop.open(2, 2)
    assert isinstance(shop.reserve("b", 5), SoldOut)
    assert isinstance(shop.reserve("b", 5, partial=True), Reserved)


@pytest.mark.parametrize("partial", [True, False])
def test_a_repeat_gets_what_it_got_however_much_is_free_by_then(shop: Shop, *, partial: bool) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    shop.restock(100, "r")
    again = shop.reserve("a", 5, partial=partial)
    assert isinstance(again, Reserved)
    assert (again.quantity, again.replay) == (2, True)
    assert shop.totals() == (100, 2, 0)


def test_a_repeat_that_asks_for_what_was_taken_is_another_order(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    with pytest.raises(OrderMismatch):
        shop.reserve("a", 2, partial=True)
    with pytest.raises(OrderMismatch):
        shop.reserve("a", 2)


def test_confirming_sells_what_was_taken(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    assert shop.confirm("a").quantity == 2
    assert shop.totals() == (0, 0, 2)
    assert shop.reserve("a", 5) == Decided("a", "confirmed", 2, 1, None, 3, replay=True)


def test_cancelling_gives_back_what_was_taken(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    shop.cancel("a")
    assert shop.totals() == (2, 0, 0)


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


def test_holds_that_have_lapsed_come_back_before_less_is_given(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 6, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    answer = shop.reserve("b", 8, partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 8


def test_a_partial_order_asks_again_while_more_is_coming_back(shop: Shop) -> None:
    shop.open(40, 4)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(40)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.reserve("a", 40, partial=True), Busy)
    assert isinstance(shop.reserve("a", 40, partial=True), Busy)
    answer = shop.reserve("a", 40, partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 40
