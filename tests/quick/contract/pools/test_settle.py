"""Confirm, cancel, expire: exactly one wins, and who comes later is told who won."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.errors import OrderUnknown, PoolGated
from segmented.models import Settled
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import Superseded
    from tests.support.contract.pools.shop import Shop

ENDS = ("confirm", "cancel", "expire")
STATE = {"confirm": "confirmed", "cancel": "cancelled", "expire": "expired"}


def end_of(shop: Shop, end: str) -> Callable[[str], Settled | Superseded | None]:
    ends: dict[str, Callable[[str], Settled | Superseded | None]] = {
        "confirm": shop.confirm,
        "cancel": shop.cancel,
        "expire": shop.expire,
    }
    return ends[end]


@pytest.mark.parametrize("first", ENDS)
def test_the_first_wins_and_the_second_is_told_so(shop: Shop, first: str) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    state = STATE[first]
    settled = Settled("a", state, 3, 1, None, sequence=3, replay=False)  # type: ignore[arg-type]  # one of STATE
    assert end_of(shop, first)("a") == settled
    for end in ENDS:
        assert end_of(shop, end)("a") == replace(settled, replay=True), end
    assert shop.story() == [("opened", None), ("reserved", "a"), (state, "a")]
    assert shop.totals() == ((5, 0, 3) if state == "confirmed" else (8, 0, 0))


def test_an_order_nobody_knows_is_an_error_and_a_kept_refusal_stays_what_it_is(shop: Shop) -> None:
    shop.open(1, 2)
    shop.grant("refused", 2, keep_refusal=True)
    for end in ENDS:
        with pytest.raises(OrderUnknown, match=r"^order 'a' is not known to the pool$") as caught:
            end_of(shop, end)("a")
        assert caught.value.order_id == "a"
        assert end_of(shop, end)("refused") == Settled("refused", "refused", 2, -1, None, sequence=2, replay=True)
    assert shop.totals() == (1, 0, 0)


def test_a_confirmed_grant_names_its_segment_and_token(shop: Shop) -> None:
    shop.open(8, 1)
    token = shop.granted("a", 3).fencing_token
    assert shop.confirm("a") == Settled("a", "confirmed", 3, 0, token, sequence=3, replay=False)
    record = shop.record("a")
    assert record is not None
    assert (record.state, record.sequence, record.parts) == ("confirmed", 3, ((0, 3),))
    token = shop.granted("b", 2).fencing_token
    assert shop.cancel("b") == Settled("b", "cancelled", 2, 0, token, sequence=5, replay=False)  # by an operator
    assert shop.granted("c").segment == 0


def test_confirming_after_the_hold_has_lapsed_wins_if_nobody_took_the_units_back(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.confirm("a").state == "confirmed"
    assert shop.due() == ()


def test_a_lapsed_hold_under_a_living_lease_does_not_expire(shop: Shop) -> None:
    shop.open(8, 2)
    shop.reserved("lives")
    token = shop.granted("a", 3, hold_ms=SHORT_MS).fencing_token
    shop.let_short_holds_lapse()
    assert (shop.expire("a"), shop.expire("lives")) == (None, None)
    shop.let_lease_lapse("a")
    assert shop.expire("a") == Settled("a", "expired", 3, 0, token, sequence=4, replay=False)


def test_due_orders_are_named_longest_lapsed_first(shop: Shop) -> None:
    shop.open(8, 2)
    for order_id in ("z", "m", "a"):
        shop.reserved(order_id, hold_ms=SHORT_MS)
        shop.side.pass_time(0.002)
    shop.reserved("not due")
    shop.let_short_holds_lapse()
    assert shop.due() == ("z", "m", "a")
    assert shop.due(limit=2) == ("z", "m")
    shop.confirm("m")
    assert shop.due() == ("z", "a")


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_a_gated_pool_gives_units_back_only_once_the_database_has_voided_the_order(shop: Shop, end: str) -> None:
    shop.open(8, 2, gated=True)
    shop.reserved("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    with pytest.raises(PoolGated) as caught:
        end_of(shop, end)("a")
    assert (caught.value.sku, caught.value.order_id) == (shop.sku, "a")
    assert shop.totals() == (5, 3, 0)
    voided = shop.cancel("a", voided=True) if end == "cancel" else shop.expire("a", voided=True)
    assert voided == Settled("a", STATE[end], 3, 1, None, sequence=3, replay=False)  # type: ignore[arg-type]  # one of STATE
    assert shop.totals() == (8, 0, 0)


def test_a_gated_pool_confirms_only_what_the_database_has_stored(shop: Shop) -> None:
    shop.open(8, 2, gated=True)
    token = shop.granted("a", 3).fencing_token
    with pytest.raises(
        PoolGated,
        match=r"its order database must store order 'a' first; use Pool.*, or segmented.orders.take_order",
    ) as caught:
        shop.confirm("a")
    assert (caught.value.sku, caught.value.order_id) == (shop.sku, "a")
    assert (shop.totals(), len(shop.ledger())) == ((5, 3, 0), 2)
    assert shop.confirm("a", stored=True) == Settled("a", "confirmed", 3, 0, token, 3, replay=False)
    assert shop.confirm("a") == Settled("a", "confirmed", 3, 0, token, 3, replay=True)
    assert shop.totals() == (5, 0, 3)
