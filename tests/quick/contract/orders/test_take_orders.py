"""A worker's envelope: one segment's lock and token for all that need one, and each order one worker's at a time."""

import pytest

from segmented import protocol as op
from segmented.models import Busy, Order, Settled
from segmented.models.submitted import BegunOrder, Dead, TakenOrders, TooManyOthers
from tests.support.contract.orders.submitting import (
    begin_and_die,
    begun,
    confirm,
    dead,
    named,
    orders,
    queue,
    submit,
    submitted,
    take,
    waiting,
)
from tests.support.contract.pools.shop import LONG_MS, SHORT_MS, Shop


def taken(answer: TakenOrders) -> list[BegunOrder]:
    found = [one for one in answer.orders if isinstance(one, BegunOrder)]
    assert len(found) == len(answer.orders), answer
    return found


# --- one segment, one token ---


def test_an_envelope_takes_one_segment_and_one_token_for_all_its_orders(shop: Shop) -> None:
    shop.open(12, 3)
    queue(shop, Order("a", 2), Order("b", 1, "ann"), Order("c", 4))
    began_us = shop.now_us()
    answer = take(shop, "a", "b", "c")
    token = taken(answer)[0].fencing_token
    assert answer == TakenOrders(
        (
            BegunOrder(Order("a", 2), 2, 0, ((0, 2),), token, 1, 2, 1),
            BegunOrder(Order("b", 1, "ann"), 1, 0, ((0, 1),), token, 1, 2, 1),
            BegunOrder(Order("c", 4), 4, 0, ((0, 1), (1, 3)), token, 1, 2, 1),
        ),
        0,
        epoch=1,
        is_gated=False,
    )
    shop.check_tokens(began_us, token)
    assert shop.totals() == (5, 7, 0)
    assert [(entry.kind, entry.order_id, entry.sequence, entry.fencing_token) for entry in shop.ledger(after=1)] == [
        ("reserved", "a", 2, token),
        ("reserved", "b", 2, token),
        ("reserved", "c", 2, token),
    ]
    assert len(taken(take(shop, "a", "b", "c"))) == 3


# --- one worker at a time ---


def test_a_lost_reply_is_told_again_and_counts_once(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2), Order("large", 10))
    submit(shop, Order("c", 1))
    first = take(shop, "a", "large", "c")
    assert take(shop, "a", "large", "c") == first
    assert named(first.orders) == ["BegunOrder", "Settled", "BegunOrder"]
    assert submitted(shop, "a").begun == 1
    assert shop.totals() == (6, 3, 0)


@pytest.mark.parametrize("by_worker", [False, True], ids=["at acceptance", "in the worker"])
def test_another_worker_within_the_time_is_told_that_the_order_is_in_hand(shop: Shop, *, by_worker: bool) -> None:
    shop.open(9, 3)
    (queue if by_worker else submit)(shop, Order("a", 2))
    begun(shop, "a")
    (answer,) = take(shop, "a", holder="w2").orders
    assert isinstance(answer, Busy)
    assert answer.is_in_hand
    assert 0 < (answer.free_in_ms or 0) <= LONG_MS
    assert submitted(shop, "a").begun == 1


def test_after_the_time_another_worker_takes_over_with_a_higher_token(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 5))
    began_us = shop.now_us()
    first = begun(shop, "a", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    second = begun(shop, "a", holder="w2")
    assert (first.begun, second.begun) == (1, 2)
    shop.check_tokens(began_us, first.fencing_token, second.fencing_token)
    assert second.parts == first.parts == ((0, 3), (1, 2))
    assert shop.story()[-1] == ("granted", "a")
    assert shop.totals() == (4, 5, 0)
    assert confirm(shop, "a", holder="w1")[0] == Settled(
        "a", "confirmed", 5, second.segment, second.fencing_token, 4, replay=False
    )


def test_an_order_whose_workers_time_is_over_but_whose_lease_lives_is_in_hand(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2))
    begun(shop, "a", work_ms=1)
    shop.side.pass_time(0.003)
    (answer,) = take(shop, "a", holder="w2").orders
    assert isinstance(answer, Busy)
    assert answer.is_in_hand


def test_a_late_confirmation_of_the_first_worker_does_not_free_the_seconds_segment(shop: Shop) -> None:
    shop.open(9, 1)
    queue(shop, *orders(2))
    begun(shop, "o00", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    begun(shop, "o00", holder="w2")
    confirm(shop, "o00", holder="w1")
    assert named(take(shop, "o01", holder="w3").orders) == ["Busy"]


# --- what ends its workers ---


def test_an_order_begun_five_times_is_dead_and_not_published_again(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begin_and_die(shop, "a", times=5)
    assert submitted(shop, "a").begun == 5
    assert take(shop, "a").orders == (Dead("a", 5),)
    assert (submitted(shop, "a").state, waiting(shop)) == ("dead", 0)
    assert take(shop, "a").orders == (Dead("a", 5),)
    assert [one.begun for one in dead(shop)] == [5]


@pytest.mark.parametrize(("times", "most"), [(0, 12), (1, 10), (2, 1), (3, 1)])
def test_the_more_often_an_order_was_begun_the_fewer_go_with_it(shop: Shop, times: int, most: int) -> None:
    shop.open(99, 3)
    submit(shop, *orders(12))
    begin_and_die(shop, "o00", times=times)
    ids = [order.order_id for order in orders(12)]
    if most < 12:
        assert take(shop, *ids[: most + 1], holder="w2").orders[0] == TooManyOthers("o00")
        assert named(take(shop, *ids[: most + 1], holder="w2").orders[1:]) == ["BegunOrder"] * most
        assert submitted(shop, "o00").begun == times
    assert named(take(shop, *ids[:most], holder="w2").orders) == ["BegunOrder"] * most


# --- workers that confirm at once ---


def test_what_a_worker_has_in_hand_is_left_alone_by_one_that_confirms_what_is_idle(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *(Order(order_id, 1) for order_id in "abc"))
    queue(shop, Order("d", 1))
    begun(shop, "a")
    begin_and_die(shop, "b")
    confirm_idle = op.SettleMany(shop.sku, "confirmed", ("a", "b", "c", "d", "nobody"), idle=True)
    in_hand, *others = shop.side.execute(confirm_idle)
    assert in_hand is None
    assert named(others) == ["Settled", "Settled", "OrderQueued", "OrderUnknown"]
    assert submitted(shop, "a").state == "reserved"
    assert named(confirm(shop, "a")) == ["Settled"]
    assert shop.totals() == (6, 0, 3)
