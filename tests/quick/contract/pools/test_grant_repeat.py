"""The same order granted twice: a lost reply, a second delivery, a dead holder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.models import Busy, Renewed, Settled, Superseded
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


def test_the_same_holder_is_told_its_lease_again(shop: Shop) -> None:
    shop.open(8, 2)
    first = shop.granted("a", 3, holder_id="h")
    assert shop.grant("a", 3, holder_id="h") == replace(first, replay=True)
    assert shop.totals() == (5, 3, 0)
    assert shop.story() == [("opened", None), ("reserved", "a")]


def test_a_repeat_counts_the_lease_anew(side: Side) -> None:
    """Others are told so, and kept out, also when the first life is over."""
    for first_ms in (60_000, SHORT_MS):
        shop = Shop(side, side.name())
        shop.open(8, 1)
        shop.granted("a", holder_id="h", ttl_ms=first_ms)
        shop.granted("a", holder_id="h", ttl_ms=LONG_MS)
        shop.let_short_holds_lapse()
        answer = shop.grant("b")
        assert isinstance(answer, Busy), first_ms
        assert LONG_MS - 60_000 < (answer.free_in_ms or 0) <= LONG_MS, first_ms
        assert shop.renew("a", holder_id="h") == Renewed(LONG_MS)
        shop.check_books()


def test_a_repeat_holds_the_units_anew(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", 8, holder_id="h", hold_ms=SHORT_MS)
    shop.granted("a", 8, holder_id="h", hold_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ()


@pytest.mark.parametrize("second", ["h", "second"])
def test_a_shorter_hold_of_a_repeat_or_second_delivery_does_not_shorten_the_first(shop: Shop, second: str) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="h", hold_ms=LONG_MS)
    if second != "h":
        shop.let_lease_lapse("a", "h")
    assert shop.granted("a", holder_id=second, hold_ms=SHORT_MS).replay
    shop.let_short_holds_lapse()
    assert shop.due() == ()


def test_a_holder_of_another_orders_segment_has_no_lease_on_this_order(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="first")
    shop.let_lease_lapse("a", "first")
    shop.granted("b", holder_id="second")
    answer = shop.grant("a", holder_id="second")
    assert isinstance(answer, Busy)
    assert not answer.is_in_hand


def test_another_holder_is_told_how_long_the_lease_lives(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", 3, holder_id="h", ttl_ms=60_000)
    answer = shop.grant("a", 3, holder_id="second")
    assert isinstance(answer, Busy)
    assert (answer.order_id, answer.sequence, answer.is_in_hand) == ("a", 2, True)
    assert answer.free_in_ms is not None
    assert 0 < answer.free_in_ms <= 60_000
    assert answer.describe() == "another holder works on it"
    assert shop.totals() == (5, 3, 0)


@pytest.mark.parametrize("successor", ["h", "second"])
def test_after_a_lease_lapses_another_holder_gets_its_units_and_a_higher_token(shop: Shop, successor: str) -> None:
    shop.open(8, 2)
    began_us = shop.now_us()
    first = shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    second = shop.granted("a", 3, holder_id=successor)
    assert (second.parts, second.sequence, second.replay) == (first.parts, 3, True)
    shop.check_tokens(began_us, first.fencing_token, second.fencing_token)
    assert shop.totals() == (5, 3, 0)
    assert shop.story()[1:] == [("reserved", "a"), ("granted", "a")]


def test_a_reservation_without_a_lease_can_be_granted_and_takes_nothing_more(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    began_us = shop.now_us()
    granted = shop.granted("a", 3)
    assert (granted.parts, granted.segment, granted.replay) == (((1, 3),), 0, True)
    shop.check_tokens(began_us, granted.fencing_token)
    assert shop.totals() == (5, 3, 0)


def test_a_lapsed_hold_that_nobody_took_back_is_granted_again(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", 3, holder_id="h", ttl_ms=SHORT_MS, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ("a",)
    assert shop.granted("a", 3, holder_id="second").replay
    assert shop.due() == ()
    assert shop.expire("a") is None


def test_an_overslept_holder_cannot_cancel_what_its_successor_works_on(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("r")
    assert shop.cancel("r", "h") == Superseded("r", 0)  # it was never granted
    shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    token = shop.granted("a", 3, holder_id="second").fencing_token
    assert shop.cancel("a", "h") == Superseded("a", token)
    assert shop.totals() == (4, 4, 0)
    assert isinstance(shop.cancel("a", "second"), Settled)


def test_an_overslept_holder_may_still_confirm_because_the_units_are_the_orders(shop: Shop) -> None:
    """That frees nothing of its successor, who confirms, too."""
    shop.open(8, 1)
    shop.granted("a", 3, holder_id="old")
    shop.let_lease_lapse("a", "old")
    shop.granted("a", 3, holder_id="new")
    assert [shop.confirm("a", "old").replay, isinstance(shop.grant("b"), Busy)] == [False, True]
    assert shop.confirm("a", "new").replay
    assert shop.totals() == (5, 0, 3)
    assert shop.granted("b").segment == 0
