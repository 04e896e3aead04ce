"""Confirming, cancelling and expiring in batches: each order as if alone, in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import OrderUnknown, PoolGated
from segmented.models import Order, Reserved, Settled
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from segmented.errors import SegmentedError
    from tests.support.contract.pools.shop import Shop


def expire_many(shop: Shop, *order_ids: str, voided: bool = False) -> tuple[Settled | SegmentedError | None, ...]:
    return shop.side.execute(op.SettleMany(shop.sku, "expired", order_ids, voided))


def test_a_batch_is_confirmed_in_one_step(shop: Shop) -> None:
    """And cancelled in one, and its units return to their segments."""
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 3), Order("d", 3)])
    assert shop.confirm_many("c", "a") == (
        Settled("c", "confirmed", 3, 0, None, 3, replay=False),
        Settled("a", "confirmed", 2, 1, None, 3, replay=False),
    )
    cancelled = shop.cancel_many("d", "b", "d")
    assert [isinstance(answer, Settled) and answer.replay for answer in cancelled] == [False, False, True]
    assert shop.state().stock == (0, 1, 3)
    assert shop.totals() == (4, 0, 5)
    story = [(entry.sequence, entry.kind, entry.order_id) for entry in shop.ledger(after=2)]
    assert story == [(3, "confirmed", "c"), (3, "confirmed", "a"), (4, "cancelled", "d"), (4, "cancelled", "b")]
    assert all(isinstance(answer, OrderUnknown) for answer in shop.confirm_many("x", "y", "x"))
    assert shop.state().sequence == 4


def test_every_order_of_a_batch_is_answered_in_its_place(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 3)])
    shop.cancel("b")
    first, unknown, before, again, last = shop.confirm_many("a", "nobody", "b", "a", "c")
    assert first == Settled("a", "confirmed", 2, 1, None, 4, replay=False)
    assert isinstance(unknown, OrderUnknown)
    assert unknown.order_id == "nobody"
    assert before == Settled("b", "cancelled", 1, 1, None, 3, replay=True)
    assert again == Settled("a", "confirmed", 2, 1, None, 4, replay=True)
    assert last == Settled("c", "confirmed", 3, 0, None, 4, replay=False)
    assert shop.totals() == (4, 0, 5)


def test_granted_orders_of_a_batch_free_their_segments_and_none_of_a_successor(shop: Shop) -> None:
    shop.open(9, 2)
    token = shop.granted("a", 2).fencing_token
    shop.granted("b", 2)
    assert not hasattr(shop.grant("c"), "segment")
    assert shop.confirm_many("a")[0] == Settled("a", "confirmed", 2, 0, token, 4, replay=False)
    assert shop.granted("c").segment == 0
    shop.let_lease_lapse("b")
    shop.granted("d")
    shop.confirm_many("b")
    assert not hasattr(shop.grant("e"), "segment")
    shop.cancel_many("c", "d")
    assert sorted(shop.granted(order_id).segment for order_id in "fg") == [0, 1]


def test_a_batch_expires_what_has_lapsed_and_leaves_what_lives(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1)], hold_ms=SHORT_MS)
    shop.granted("g", 1, hold_ms=SHORT_MS)
    shop.reserve_many([Order("c", 3)])
    shop.let_short_holds_lapse()
    gone, alive, leased, again = expire_many(shop, "a", "c", "g", "a")
    assert gone == Settled("a", "expired", 2, 1, None, 5, replay=False)
    assert (alive, leased) == (None, None)
    assert again == Settled("a", "expired", 2, 1, None, 5, replay=True)
    assert shop.totals() == (4, 5, 0)


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_a_gated_pool_gives_back_only_what_was_voided(shop: Shop, end: str) -> None:
    shop.open(9, 3, gated=True)
    shop.reserve_many([Order("a", 2), Order("b", 1)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    settle = (
        shop.cancel_many if end == "cancelled" else lambda *ids, voided=False: expire_many(shop, *ids, voided=voided)
    )
    refused, unknown = settle("a", "nobody")
    assert isinstance(refused, PoolGated)
    assert (refused.sku, refused.order_id) == (shop.sku, "a")
    assert isinstance(unknown, OrderUnknown)
    assert shop.totals() == (6, 3, 0)
    assert [getattr(answer, "state", None) for answer in settle("a", "b", voided=True)] == [end, end]
    assert shop.totals() == (9, 0, 0)


def test_a_gated_pool_confirms_only_what_was_stored(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    shop.reserve_many([Order("a", 2), Order("b", 1)])
    refused, unknown, again = shop.confirm_many("a", "nobody", "a")
    assert isinstance(refused, PoolGated)
    assert isinstance(again, PoolGated)
    assert str(refused) == (
        f"pool '{shop.sku}' is gated: its order database must store order 'a' first; use Pool(store, sku, "
        "gate=gate), or segmented.orders.take_order"
    )
    assert isinstance(unknown, OrderUnknown)
    assert (shop.totals(), len(shop.ledger())) == ((6, 3, 0), 3)
    assert [getattr(answer, "state", None) for answer in shop.confirm_many("a", "b", stored=True)] == ["confirmed"] * 2
    assert shop.totals() == (6, 0, 3)


def test_a_thousand_orders_are_ended_in_one_call(shop: Shop) -> None:
    shop.open(3_000, 7)
    ids = [f"o{index}" for index in range(1_000)]
    answers = shop.reserve_many(Order(order_id, 1 + index % 5) for index, order_id in enumerate(ids))
    assert all(isinstance(answer, Reserved) for answer in answers)
    assert all(isinstance(answer, Settled) and not answer.replay for answer in shop.confirm_many(*ids[:500]))
    assert all(isinstance(answer, Settled) and not answer.replay for answer in shop.cancel_many(*ids[500:]))
    assert all(isinstance(answer, Settled) and answer.replay for answer in shop.cancel_many(*ids))
    assert shop.totals() == (1_500, 0, 1_500)
    assert shop.state().sequence == 4
