"""The same order granted twice: a lost reply, a second delivery, a dead holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.models import Busy, Granted, Renewed, Settled, Superseded
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_the_same_holder_is_told_its_lease_again(shop: Shop) -> None:
    shop.open(8, 2)
    first = shop.granted("a", 3, holder_id="h")
    assert shop.grant("a", 3, holder_id="h") == Granted(
        order_id="a",
        quantity=3,
        segment=first.segment,
        parts=first.parts,
        holder_id="h",
        fencing_token=first.fencing_token,
        epoch=1,
        sequence=2,
        free_in_ms=0,
        replay=True,
    )
    assert shop.totals() == (5, 3, 0)
    assert shop.story() == [("opened", None), ("reserved", "a")]


def test_a_repeat_counts_the_lease_anew(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="h", ttl_ms=60_000)
    shop.granted("a", holder_id="h", ttl_ms=LONG_MS)
    answer = shop.grant("b")
    assert isinstance(answer, Busy)
    assert answer.free_in_ms is not None
    assert LONG_MS - 60_000 < answer.free_in_ms <= LONG_MS


def test_a_repeat_keeps_the_segment_from_others_beyond_the_first_life(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", holder_id="h", ttl_ms=SHORT_MS)
    shop.granted("a", holder_id="h", ttl_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.grant("b"), Busy)
    assert shop.renew("a", holder_id="h") == Renewed(LONG_MS)


def test_a_repeat_holds_the_units_anew(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", 8, holder_id="h", hold_ms=SHORT_MS)
    shop.granted("a", 8, holder_id="h", hold_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ()


@pytest.mark.parametrize("second", ["h", "second"])
def test_a_shorter_hold_of_a_repeat_or_of_a_second_delivery_does_not_shorten_the_first(shop: Shop, second: str) -> None:
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


def test_after_the_lease_has_lapsed_another_holder_gets_the_same_units_with_a_higher_token(shop: Shop) -> None:
    shop.open(8, 2)
    began_us = shop.now_us()
    first = shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    second = shop.granted("a", 3, holder_id="second")
    assert second.parts == first.parts
    assert (second.sequence, second.replay) == (3, True)
    shop.check_tokens(began_us, first.fencing_token, second.fencing_token)
    assert shop.totals() == (5, 3, 0)
    assert shop.story()[1:] == [("reserved", "a"), ("granted", "a")]


def test_the_first_holder_gets_a_new_token_too_once_its_lease_has_lapsed(shop: Shop) -> None:
    shop.open(8, 2)
    began_us = shop.now_us()
    first = shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    again = shop.granted("a", 3, holder_id="h")
    assert again.replay
    shop.check_tokens(began_us, first.fencing_token, again.fencing_token)


def test_a_second_delivery_may_work_in_another_segment(shop: Shop) -> None:
    shop.open(8, 2)
    first = shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    shop.granted("b", holder_id="b1")
    shop.let_lease_lapse("b", "b1")
    shop.granted("c")
    second = shop.granted("a", 3, holder_id="second")
    assert (first.segment, second.segment) == (0, 1)
    assert second.parts == ((0, 3),)


def test_a_second_delivery_waits_for_a_segment_like_anybody(shop: Shop) -> None:
    shop.open(8, 1)
    shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    shop.granted("b")
    answer = shop.grant("a", 3, holder_id="second")
    assert isinstance(answer, Busy)
    assert answer.is_in_hand is False


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
    shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    token = shop.granted("a", 3, holder_id="second").fencing_token
    assert shop.cancel("a", "h") == Superseded("a", token)
    assert shop.totals() == (5, 3, 0)
    assert shop.cancel("a", "second") == Settled("a", "cancelled", 3, 1, token, sequence=4, replay=False)


def test_a_holder_cannot_cancel_a_reservation_that_was_never_granted_to_it(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    assert shop.cancel("a", "h") == Superseded("a", 0)
    assert shop.totals() == (5, 3, 0)


def test_an_overslept_holder_may_still_confirm_because_the_units_are_the_orders(shop: Shop) -> None:
    shop.open(8, 2)
    shop.granted("a", 3, holder_id="h")
    shop.let_lease_lapse("a", "h")
    shop.granted("a", 3, holder_id="second")
    assert shop.confirm("a").replay is False
    assert shop.confirm("a").replay is True
    assert shop.totals() == (5, 0, 3)
