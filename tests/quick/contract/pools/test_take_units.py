"""Units for a worker's envelope: exact, within limits, from holds that lapsed, and from a pool that was closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import PoolDrifted
from segmented.models import Busy, Decided, Order, OrderRecord, Reserved, Settled
from segmented.models.submitted import BegunOrder, TakenOrders
from tests.support.contract.orders.submitting import (
    begun,
    confirm,
    named,
    orders,
    outbox,
    queue,
    submit,
    submitted,
    take,
    waiting,
)
from tests.support.contract.pools.shop import SHORT_MS, Shop

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

TEN = [order.order_id for order in orders(10)]


def taken(answer: TakenOrders) -> list[BegunOrder]:
    found = [one for one in answer.orders if isinstance(one, BegunOrder)]
    assert len(found) == len(answer.orders), answer
    return found


def test_the_pool_is_sold_out_exactly(shop: Shop) -> None:
    shop.open(5, 2)
    queue(shop, *orders(8))
    answers = take(shop, *TEN[:8]).orders
    assert named(answers) == ["BegunOrder"] * 5 + ["Settled"] * 3
    assert answers[5] == Settled("o05", "refused", 1, -1, None, 3, replay=True)
    assert shop.totals() == (0, 5, 0)
    assert waiting(shop) == 5
    assert queue(shop, Order("o05", 1)) == (Decided("o05", "refused", 1, -1, None, 3, replay=True),)


def test_a_pool_that_was_closed_since_still_serves_what_it_accepted(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2))
    submit(shop, Order("b", 1))
    shop.close()
    assert named(take(shop, "a", "b").orders) == ["BegunOrder", "BegunOrder"]
    assert isinstance(shop.reserve("c"), Reserved) is False
    assert named(confirm(shop, "a", "b")) == ["Settled", "Settled"]
    assert shop.totals() == (6, 0, 3)


def test_a_customer_above_the_limit_is_refused_with_a_note_and_the_audit_stays_clean(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    queue(shop, Order("a", 2, "ann"), Order("b", 1, "ann"), Order("c", 1, "bob"))
    assert named(take(shop, "a", "b", "c").orders) == ["BegunOrder", "Settled", "BegunOrder"]
    refused = [(entry.order_id, entry.note) for entry in shop.ledger() if entry.kind == "refused"]
    assert refused == [("b", "limit")]
    record = shop.record("b")
    assert isinstance(record, OrderRecord)
    assert (record.state, record.customer_id) == ("refused", "ann")
    shop.check_books()


@pytest.mark.parametrize("order", [("late", "a"), ("a", "late")], ids=" ".join)
def test_a_reservation_not_submitted_loses_its_due_units_wherever_a_message_names_it(
    shop: Shop, order: tuple[str, str]
) -> None:
    shop.open(5, 2)
    shop.reserve("late", 5, hold_ms=0)
    queue(shop, Order("a", 4))
    answers = dict(zip(order, named(take(shop, *order).orders), strict=True))
    assert answers == {"a": "BegunOrder", "late": "OrderUnknown" if order[0] == "late" else "Settled"}
    assert submitted(shop, "late").state == "expired"
    assert (waiting(shop), shop.totals()) == (1, (1, 4, 0))


def test_with_many_holds_due_an_order_is_told_to_ask_again_and_those_behind_it_wait(shop: Shop) -> None:
    shop.open(400, 4)
    shop.reserve_many((Order(f"late{number:03}", 2) for number in range(200)), hold_ms=0)
    queue(shop, Order("a", 400), Order("b", 1))
    answers = take(shop, "a", "b")
    for _ in range(20):
        if named(answers.orders) != ["Busy", "Busy"]:
            break
        assert all(isinstance(one, Busy) and not one.is_in_hand and one.free_in_ms == 0 for one in answers.orders)
        answers = take(shop, "a", "b")
    assert named(answers.orders) == ["BegunOrder", "Settled"]


def test_a_gated_pool_gives_no_due_hold_back_for_an_envelope(shop: Shop) -> None:
    """It is served as any other, and confirms what was stored."""
    shop.open(8, 2, gated=True)
    shop.reserve("late", 5, hold_ms=0)
    queue(shop, Order("large", 4), Order("a", 2))
    submit(shop, Order("b", 1))
    assert named(take(shop, "large", "a", "b").orders) == ["Settled", "BegunOrder", "BegunOrder"]
    assert submitted(shop, "late").state == "reserved"
    assert named(confirm(shop, "a", "b")) == ["PoolGated", "PoolGated"]
    assert outbox(shop).waiting == 2
    assert named(confirm(shop, "a", "b", stored=True)) == ["Settled", "Settled"]
    assert outbox(shop).waiting == 0


def test_a_begun_orders_hold_begins_anew(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 2), hold_ms=SHORT_MS)
    begun(shop, "a")
    shop.let_short_holds_lapse()
    assert shop.expire_due() == ((), False)


def test_of_a_stock_that_was_written_to_from_outside_nothing_is_taken(plain_redis_side: Side) -> None:
    shop = Shop(plain_redis_side, plain_redis_side.name())
    shop.open(9, 3)
    queue(shop, Order("a", 4), Order("b", 1))
    plain_redis_side.raw().hset(shop.keys.stock, mapping=dict.fromkeys(range(3), 0))
    (drifted, other) = take(shop, "a", "b").orders
    assert isinstance(drifted, PoolDrifted)
    assert isinstance(other, PoolDrifted)
    assert (submitted(shop, "a").state, submitted(shop, "a").begun) == ("queued", 0)
    assert shop.state().sequence == 1
    assert plain_redis_side.raw().keys(f"{shop.keys.lock}:*") == []
