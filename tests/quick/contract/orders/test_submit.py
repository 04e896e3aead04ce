"""Accepting orders: what they are and their place in the outbox are written in one step, and leave in one step."""

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderQueued, PoolGated, PoolMissing
from segmented.models import Closed, Order, Reserved, Settled, SoldOut
from segmented.models.orders import decided_as
from segmented.models.submitted import OutboxState, Queued
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import (
    begin_and_die,
    begun,
    named,
    outbox,
    put_off,
    queue,
    submit,
    submitted,
    waiting,
)
from tests.support.contract.pools.shop import SHORT_MS, Shop

A, B = Order("a", 2), Order("b", 1, "ann")


# --- units taken at acceptance ---


def test_orders_submitted_one_by_one_are_from_one_segment_for_a_run_of_64_changes(shop: Shop) -> None:
    shop.open(900, 3)
    found = [submit(shop, Order(f"o{number}", 1))[0] for number in range(130)]
    segments = [answer.segment for answer in found if isinstance(answer, Reserved)]
    assert segments == [0] * 63 + [1] * 64 + [2] * 3  # opening the pool was the first change


def test_a_repeat_does_not_put_the_publication_off(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, A, after_ms=SHORT_MS)
    queue(shop, B, after_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    submit(shop, A)
    queue(shop, B)
    assert outbox(shop).due == 2


def test_a_repeat_of_a_reservation_that_was_not_submitted_gets_a_place(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 2)
    assert waiting(shop) == 0
    assert submit(shop, A) == (Reserved("a", 2, 1, ((1, 2),), 1, 2, replay=True),)
    assert waiting(shop) == 1


def test_a_reservation_that_is_submitted_later_does_not_lapse_any_more(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", hold_ms=SHORT_MS)
    assert named(queue(shop, Order("a", 1))) == ["Reserved"]
    shop.let_short_holds_lapse()
    assert shop.due() == ()


def test_what_is_refused_at_the_door_leaves_nothing(shop: Shop) -> None:
    shop.open(2, 2)
    assert submit(shop, Order("a", 3)) == (SoldOut("a", 3, 2, 0, 1),)
    shop.close()
    assert submit(shop, Order("b", 1)) == (Closed("b"),)
    assert queue(shop, Order("b", 1)) == (Closed("b"),)
    assert outbox(shop) == OutboxState(0, 0, 0, 0)
    assert [submitted(shop, order_id).state for order_id in "ab"] == ["unknown", "unknown"]


# --- units taken by a worker ---


def test_a_queued_order_that_comes_again_is_told_so_also_in_its_own_call(shop: Shop) -> None:
    shop.open(9, 3)
    assert queue(shop, A, A) == (Queued("a", replay=False), Queued("a", replay=True))
    assert queue(shop, A) == (Queued("a", replay=True),)
    assert waiting(shop) == 1


def test_a_pool_that_limits_customers_queues_none_without_a_name(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    refused, accepted = queue(shop, A, B)
    assert isinstance(refused, InvalidInput)
    assert str(refused) == f"order 'a' names no customer, but pool '{shop.sku}' limits what one may have"
    assert accepted == Queued("b", replay=False)


@pytest.mark.parametrize(
    "operation",
    [
        op.QueueOrders("nowhere", (A,), 1),
        op.TakeOrders("nowhere", ("a",), "w", 1, 1, 1, 5),
        op.PutOff("nowhere", ("a",), "w", 1, counts=True, begun_max=5, reason=""),
        op.RenewWork("nowhere", ("a",), "w", 1, 1, 1),
        op.SweepOutbox("nowhere", 1, None, 1, 1, 1, 5),
        op.ReadOutbox("nowhere"),
        op.ReplayDead("nowhere", ("a",)),
        op.ReserveMany("nowhere", (A,), 1, publish_after_ms=1),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_a_pool_that_is_not_open_is_missing(side: Side, operation: op.Operation[object]) -> None:
    with pytest.raises(PoolMissing):
        side.execute(operation)


# --- other content ---


@pytest.mark.parametrize("other", [Order("a", 3), Order("a", 2, "ann")], ids=["quantity", "customer"])
def test_other_content_under_the_id_of_a_queued_order_is_a_mismatch_for_all(shop: Shop, other: Order) -> None:
    shop.open(9, 3)
    queue(shop, A)
    assert named(queue(shop, other, B)) == ["OrderMismatch", "Queued"]
    assert named(submit(shop, other)) == ["OrderMismatch"]
    with pytest.raises(OrderMismatch):
        shop.reserve("a", other.quantity, customer_id=other.customer_id)
    with pytest.raises(OrderMismatch):
        shop.grant("a", other.quantity, customer_id=other.customer_id)
    assert shop.totals() == (9, 0, 0)
    assert waiting(shop) == 2


def test_a_queued_order_is_cancelled_without_units_and_for_good(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, A, B)
    assert shop.cancel("a") == Settled("a", "cancelled", 0, -1, None, 2, replay=False)
    again = Settled("a", "cancelled", 0, -1, None, 2, replay=True)
    assert shop.cancel("a") == again
    assert queue(shop, A) == (decided_as(again),)
    assert named(queue(shop, Order("a", 3))) == ["OrderMismatch"]
    assert shop.cancel_many("b", "b", "nobody")[:2] == (
        Settled("b", "cancelled", 0, -1, None, 3, replay=False),
        Settled("b", "cancelled", 0, -1, None, 3, replay=True),
    )
    assert (waiting(shop), shop.totals()) == (0, (9, 0, 0))


def test_a_queued_order_of_a_gated_pool_is_voided_first(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    queue(shop, A)
    with pytest.raises(PoolGated):
        shop.cancel("a")
    assert shop.cancel("a", voided=True).quantity == 0  # type: ignore[union-attr]  # nobody else has it


# --- leaving ---


@pytest.mark.parametrize("end", ["confirm", "cancel", "confirm_many", "cancel_many"])
@pytest.mark.parametrize("by_worker", [False, True], ids=["at acceptance", "in the worker"])
def test_who_ends_an_order_takes_it_out_of_the_outbox_in_the_same_step(
    shop: Shop, end: str, *, by_worker: bool
) -> None:
    shop.open(9, 3)
    (queue if by_worker else submit)(shop, A, B)
    begin_and_die(shop, "a")
    assert submitted(shop, "a").begun == 1
    getattr(shop, end)("a")
    found = submitted(shop, "a")
    assert (found.begun, found.published, found.is_in_outbox) == (0, 0, False)
    assert waiting(shop) == 1


def test_an_order_in_the_outbox_does_not_expire_and_a_dead_one_does(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, A, B, hold_ms=SHORT_MS)
    begun(shop, "b")
    put_off(shop, "b", begun_max=1, hold_ms=1)
    shop.let_short_holds_lapse()
    assert shop.expire("a") is None
    settled, _ = shop.expire_due()
    assert [one.order_id for one in settled] == ["b"]
    assert (waiting(shop), submitted(shop, "b").state) == (1, "expired")


def test_a_kept_refusal_takes_the_order_out_of_the_outbox(shop: Shop) -> None:
    shop.open(2, 2)
    queue(shop, Order("a", 3))
    shop.grant("a", 3, keep_refusal=True)
    assert submitted(shop, "a").state == "refused"
    assert waiting(shop) == 0


# --- the pools that orders were submitted to ---


def test_a_thousand_orders_are_accepted_in_one_step(shop: Shop) -> None:
    shop.open(1_000, 7)
    assert set(named(submit(shop, *(Order(f"o{number}", 1) for number in range(1_000))))) == {"Reserved"}
    assert waiting(shop) == 1_000
    assert shop.state().sequence == 2


def test_a_queued_order_cannot_be_confirmed_before_a_worker_has_decided_it(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, A)
    for call in (shop.confirm, shop.expire):
        with pytest.raises(OrderQueued):
            call("a")
    assert named(shop.confirm_many("a", "nobody")) == ["OrderQueued", "OrderUnknown"]
    assert waiting(shop) == 1
