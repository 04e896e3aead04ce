"""Giving back what lapsed holds kept: longest ago first, a bounded number in a step, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import protocol as op
from segmented.errors import PoolGated
from segmented.models import Order, Reserved, Settled
from segmented.plans import perform
from segmented.stock.plans import due_plan, expire_plan
from tests.support.contract.interposed import asks, interposed
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from segmented.plans import Plan
    from tests.support.contract.pools.shop import Shop


def test_what_has_lapsed_is_given_back_in_one_step(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1), Order("d", 1), Order("e", 1)], hold_ms=SHORT_MS)
    shop.reserved("c", 3)
    shop.confirm_many("d")
    shop.cancel_many("e")
    shop.let_short_holds_lapse()
    expired = [Settled(name, "expired", units, 1, None, 6, replay=False) for name, units in (("a", 2), ("b", 1))]
    assert shop.expire_due(2) == (tuple(expired), False)
    assert shop.totals() == (5, 3, 1)
    before = shop.state()
    assert (shop.expire_due(), shop.state()) == (((), False), before)


def test_the_limit_bounds_a_step_and_the_answer_says_whether_more_are_due(shop: Shop) -> None:
    shop.open(50, 3)
    shop.reserve_many([Order(f"o{index:02}", 1) for index in range(25)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    steps = [shop.expire_due(10) for _ in range(3)]
    assert [(len(settled), is_more) for settled, is_more in steps] == [(10, True), (10, True), (5, False)]
    assert [one.order_id for settled, _ in steps for one in settled] == [f"o{index:02}" for index in range(25)]
    assert shop.totals() == (50, 0, 0)


def test_what_lapsed_first_comes_back_first(shop: Shop) -> None:
    shop.open(9, 3)
    for order_id in "cab":
        shop.reserved(order_id, hold_ms=SHORT_MS)
        shop.side.pass_time(0.003)
    shop.let_short_holds_lapse()
    assert [shop.expire_due(1)[0][0].order_id for _ in range(3)] == ["c", "a", "b"]


def test_a_grants_segment_and_token_are_told(shop: Shop) -> None:
    shop.open(9, 3)
    shop.granted("a", 2)
    shop.let_lease_lapse("a")  # its hold was 600 s: a renewal does not shorten it
    token = shop.granted("b", 2, ttl_ms=SHORT_MS, hold_ms=SHORT_MS).fencing_token
    shop.let_short_holds_lapse()
    settled, _ = shop.expire_due()
    assert settled == (Settled("b", "expired", 2, 1, token, 4, replay=False),)


def test_a_repeat_in_time_keeps_its_units(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(shop.reserve("a"), Reserved)
    assert (shop.expire_due(), shop.due()) == (((), False), ())


def test_a_shorter_hold_of_a_repeat_does_not_shorten_the_first(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a")
    shop.reserve("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.expire_due() == ((), False)


def test_a_gated_pool_gives_nothing_back_by_itself(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    with pytest.raises(
        PoolGated,
        match=rf"^pool '{shop.sku}' is gated: .* must void what is due first; .* segmented.orders.expire_voided",
    ):
        shop.expire_due()
    assert shop.totals() == (8, 1, 0)


def test_a_due_hold_whose_lease_lives_is_left_alone_and_its_units_are_not_sold_again(shop: Shop) -> None:
    shop.open(5, 1)
    shop.granted("a", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.due() == ("a",)
    assert shop.expire_due() == ((), False)
    assert type(shop.reserve("b", 3)).__name__ == "SoldOut"
    assert shop.totals() == (2, 3, 0)
    assert shop.confirm("a").state == "confirmed"


def at_most(steps: int, plan: Plan[Any]) -> Plan[Any]:
    """Run a plan that is to end after so many steps."""
    reply: object = None
    for _ in range(steps):
        try:
            effect = plan.send(reply)
        except StopIteration as stop:
            return stop.value
        reply = yield effect
    pytest.fail(f"it goes on after {steps} steps")


def test_a_sweep_that_meets_a_hundred_due_holds_under_living_leases_ends(shop: Shop) -> None:
    shop.open(101, 101)
    for number in range(101):
        shop.granted(f"o{number}", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert len(shop.due(1_000)) == 101
    assert shop.side.run(at_most(3, expire_plan(shop.sku, 1_000))) == ()


def test_an_order_that_is_decided_after_it_was_named_as_due_is_left_out(shop: Shop) -> None:
    shop.open(8, 2)
    for order_id in "ab":
        shop.reserved(order_id, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()

    def meanwhile() -> Plan[None]:
        yield from perform(op.Confirm(shop.sku, "a"))

    due = shop.side.run(interposed(due_plan(shop.sku, 10), (asks(op.ReadOrders), meanwhile)))
    assert [record.order_id for record in due] == ["b"]
