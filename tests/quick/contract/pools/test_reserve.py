from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch
from segmented.models import Busy, Order, Reserved, SoldOut
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_a_reservation_takes_its_units_and_no_lock(shop: Shop) -> None:
    shop.open(10, 4)
    assert shop.reserve("a", 2) == Reserved("a", 2, segment=1, parts=((1, 2),), epoch=1, sequence=2, replay=False)
    assert shop.totals() == (8, 2, 0)
    assert shop.state().stock == (3, 1, 2, 2)
    record = shop.record("a")
    assert record is not None
    assert (record.state, record.holder_id, record.fencing_token) == ("reserved", None, None)


def test_a_repeat_is_answered_again_and_takes_nothing(shop: Shop) -> None:
    shop.open(2, 2)
    first = shop.reserved("a", 2)
    assert shop.reserve("a", 2) == Reserved("a", 2, first.segment, first.parts, epoch=1, sequence=2, replay=True)
    with pytest.raises(OrderMismatch, match=r"^order 'a' exists with other content: quantity 2 is"):
        shop.reserve("a", 3)
    assert shop.totals() == (0, 2, 0)
    assert shop.story() == [("opened", None), ("reserved", "a")]


def test_sold_out_says_what_is_free_what_is_on_hold_and_when_it_was_decided(shop: Shop) -> None:
    """It is not recorded: a repeat is a new attempt."""
    shop.open(10, 4)
    shop.reserved("a", 4)
    shop.confirm("a")
    shop.reserved("b", 5)
    assert shop.reserve("c", 2) == SoldOut("c", 2, available=1, reserved=5, sequence=4)
    assert shop.totals() == (1, 5, 4)
    assert shop.record("c") is None
    shop.cancel("b")
    assert shop.reserved("c", 2).replay is False


def test_an_order_larger_than_any_segment_is_gathered_from_several(shop: Shop) -> None:
    shop.open(10, 4)
    assert shop.reserved("a", 9).parts == ((1, 3), (0, 3), (2, 2), (3, 1))
    assert shop.state().stock == (0, 0, 0, 1)
    assert shop.reserved("b").parts == ((3, 1),)


def test_a_lapsed_reservation_is_given_back_for_an_order_that_needs_its_units(shop: Shop) -> None:
    shop.open(4, 2)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserved("a", 4).sequence == 4
    assert shop.story() == [("opened", None), ("reserved", "late"), ("expired", "late"), ("reserved", "a")]
    assert shop.totals() == (0, 4, 0)


def test_a_lapsed_reservation_stays_while_nobody_needs_its_units(shop: Shop) -> None:
    shop.open(4, 2)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    shop.reserved("a", 1)
    assert shop.totals() == (0, 4, 0)
    assert shop.confirm("late").state == "confirmed"


def test_a_refusal_after_holds_were_given_back_counts_them_as_free(shop: Shop) -> None:
    shop.open(5, 2)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 6) == SoldOut("a", 6, available=5, reserved=0, sequence=3)


def test_with_seventeen_due_holds_the_answer_is_busy_and_the_next_try_succeeds(shop: Shop) -> None:
    shop.open(17, 4)
    shop.reserve_many([Order(f"late{index:02}") for index in range(17)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 17) == Busy("a", sequence=3, free_in_ms=0)
    assert shop.totals() == (16, 1, 0)
    assert shop.reserved("a", 17).sequence == 5


def test_the_longest_lapsed_are_given_back_first(shop: Shop) -> None:
    shop.open(17, 4)
    shop.reserve_many([Order(f"late{index:02}") for index in range(16)], hold_ms=SHORT_MS)
    shop.reserved("as late", hold_ms=SHORT_MS + 5)
    shop.let_short_holds_lapse()
    shop.reserve("a", 17)
    assert shop.due() == ("as late",)


def test_a_gated_pool_gives_nothing_back_by_itself(shop: Shop) -> None:
    shop.open(4, 2, gated=True)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 4) == SoldOut("a", 4, available=1, reserved=3, sequence=2)
    assert shop.due() == ("late",)
    assert shop.totals() == (1, 3, 0)
