"""A closed pool takes no new orders; what is reserved can still be confirmed, cancelled, or lapse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch, PoolMissing
from segmented.models import AlreadyOpen, Closed, Reserved, Settled
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_closing_is_told_and_kept(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    closed = shop.close()
    assert not closed.replay
    assert closed.state == shop.state()
    assert (closed.state.is_closed, closed.state.sequence) == (True, 3)
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity, entry.parts) == ("closed", None, 5, ())


def test_closing_again_changes_nothing(shop: Shop) -> None:
    shop.open(8, 2)
    before = shop.close().state
    again = shop.close()
    assert again.replay
    assert again.state == before == shop.state()


def test_new_orders_are_refused_however_they_ask(shop: Shop) -> None:
    shop.open(8, 2)
    shop.close()
    assert shop.reserve("a") == Closed("a")
    assert shop.reserve("a", partial=True) == Closed("a")
    assert shop.grant("b") == Closed("b")
    assert shop.grant("b", keep_refusal=True) == Closed("b")
    assert shop.record("b") is None
    assert shop.totals() == (8, 0, 0)


def test_repeats_are_answered_as_before(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    shop.granted("b", 2, holder_id="h")
    shop.close()
    again = shop.reserve("a", 3)
    assert isinstance(again, Reserved)
    assert again.replay
    assert shop.granted("b", 2, holder_id="h").replay
    with pytest.raises(OrderMismatch):
        shop.reserve("a", 4)


def test_a_second_delivery_still_takes_over(shop: Shop) -> None:
    shop.open(8, 2)
    first = shop.granted("a", 2, holder_id="first")
    shop.let_lease_lapse("a", "first")
    shop.close()
    second = shop.granted("a", 2, holder_id="second")
    assert second.fencing_token > first.fencing_token


def test_what_is_reserved_is_confirmed_cancelled_or_lapses(shop: Shop) -> None:
    shop.open(8, 2)
    for order_id in "abc":
        shop.reserved(order_id, 2, hold_ms=SHORT_MS)
    shop.close()
    shop.let_short_holds_lapse()
    assert shop.confirm("a").state == "confirmed"
    assert isinstance(shop.cancel("b"), Settled)
    assert [settled.order_id for settled in shop.expire_due()[0]] == ["c"]
    assert shop.totals() == (6, 0, 2)
    assert shop.reserve("d") == Closed("d")


def test_a_closed_pool_is_not_opened_again(shop: Shop) -> None:
    shop.open(8, 2)
    shop.close()
    again = shop.open(99, 9)
    assert isinstance(again, AlreadyOpen)
    assert again.state.is_closed
    assert shop.reserve("a") == Closed("a")


def test_an_empty_pool_that_is_closed_says_closed_and_not_sold_out(shop: Shop) -> None:
    shop.open(1, 1)
    shop.reserved("a")
    shop.close()
    assert shop.reserve("b") == Closed("b")


def test_a_pool_that_is_not_open_is_not_closed(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        shop.close()
    shop.open(1, 1)
