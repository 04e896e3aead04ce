"""A closed pool takes no new orders; what is reserved can still be confirmed, cancelled, or lapse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderMismatch
from segmented.models import AlreadyOpen, Closed, Reserved, Settled
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_closing_again_changes_nothing(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    closed = shop.close()
    assert (closed.replay, closed.state.is_closed, closed.state.sequence) == (False, True, 3)
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity, entry.parts) == ("closed", None, 5, ())
    again = shop.close()
    assert again.replay
    assert again.state == closed.state == shop.state()
    opened = shop.open(99, 9)
    assert isinstance(opened, AlreadyOpen)
    assert opened.state.is_closed


def test_new_orders_are_refused_however_they_ask(shop: Shop) -> None:
    shop.open(8, 2)
    shop.close()
    assert (shop.reserve("a"), shop.reserve("a", partial=True)) == (Closed("a"), Closed("a"))
    assert (shop.grant("b"), shop.grant("b", keep_refusal=True)) == (Closed("b"), Closed("b"))
    assert shop.record("b") is None
    assert shop.totals() == (8, 0, 0)
    shop.withdraw(8, "w")
    assert shop.reserve("c") == Closed("c")  # and not sold out


def test_repeats_and_second_deliveries_are_answered_as_before(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3)
    shop.granted("b", 2, holder_id="h")
    first = shop.granted("c", 2, holder_id="first")
    shop.let_lease_lapse("c", "first")
    shop.close()
    again = shop.reserve("a", 3)
    assert isinstance(again, Reserved)
    assert again.replay
    assert shop.granted("b", 2, holder_id="h").replay
    assert shop.granted("c", 2, holder_id="second").fencing_token > first.fencing_token
    with pytest.raises(OrderMismatch):
        shop.reserve("a", 4)


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
