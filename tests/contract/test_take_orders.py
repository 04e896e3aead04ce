"""A worker's envelope: one segment's lock and token for all that need one, and each order one worker's at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import PoolDrifted
from segmented.models import Busy, Order, OrderRecord, Reserved, Settled
from segmented.models.submitted import BegunOrder, Dead, TakenOrders, TooManyOthers
from tests.contract.shop import FIRST_FENCE, LONG_MS, SHORT_MS, Shop
from tests.contract.submitting import (
    begin_and_die,
    begun,
    buried,
    confirm,
    dead,
    named,
    orders,
    outbox,
    put_off,
    queue,
    renew_work,
    submit,
    submitted,
    sweep,
    take,
    waiting,
)

if TYPE_CHECKING:
    from tests.fixtures.stores import Side

TEN = [order.order_id for order in orders(10)]
FENCE = FIRST_FENCE + 1


def taken(answer: TakenOrders) -> list[BegunOrder]:
    found = [one for one in answer.orders if isinstance(one, BegunOrder)]
    assert len(found) == len(answer.orders), answer
    return found


# --- one segment, one token ---


def test_an_envelope_takes_one_segment_and_one_token_for_all_its_orders(shop: Shop) -> None:
    shop.open(12, 3)
    queue(shop, Order("a", 2), Order("b", 1, "ann"), Order("c", 4))
    assert take(shop, "a", "b", "c") == TakenOrders(
        (
            BegunOrder(Order("a", 2), 2, 0, ((0, 2),), FENCE, 1, 2, 1),
            BegunOrder(Order("b", 1, "ann"), 1, 0, ((0, 1),), FENCE, 1, 2, 1),
            BegunOrder(Order("c", 4), 4, 0, ((0, 1), (1, 3)), FENCE, 1, 2, 1),
        ),
        0,
    )
    assert shop.totals() == (5, 7, 0)
    assert [(entry.kind, entry.order_id, entry.sequence) for entry in shop.ledger(after=1)] == [
        ("reserved", "a", 2),
        ("reserved", "b", 2),
        ("reserved", "c", 2),
    ]
    assert len(taken(take(shop, "a", "b", "c"))) == 3


def test_two_envelopes_have_two_segments_and_a_third_waits_until_one_is_free(shop: Shop) -> None:
    shop.open(9, 2)
    queue(shop, *orders(6))
    first, second = taken(take(shop, *TEN[:2], holder="w1")), taken(take(shop, *TEN[2:4], holder="w2"))
    assert {one.segment for one in first} != {one.segment for one in second}
    assert (first[0].fencing_token, second[0].fencing_token) == (FENCE, FENCE + 1)
    busy = take(shop, *TEN[4:6], holder="w3")
    assert named(busy.orders) == ["Busy", "Busy"]
    assert all(isinstance(one, Busy) and not one.is_in_hand for one in busy.orders)
    assert 0 < (busy.free_in_ms or 0) <= LONG_MS
    assert submitted(shop, "o04").begun == 0
    confirm(shop, *TEN[:2], holder="w1")
    assert {one.segment for one in taken(take(shop, *TEN[4:6], holder="w3"))} == {first[0].segment}


def test_a_confirmation_by_the_holder_frees_the_segment(shop: Shop) -> None:
    shop.open(9, 1)
    queue(shop, *orders(3))
    taken(take(shop, *TEN[:2]))
    assert named(confirm(shop, *TEN[:2])) == ["Settled", "Settled"]
    assert begun(shop, "o02", holder="w2").fencing_token == FENCE + 1
    assert shop.totals() == (6, 1, 2)


def test_orders_whose_units_were_taken_at_acceptance_need_no_segment(shop: Shop) -> None:
    shop.open(9, 1)
    shop.granted("other")
    submit(shop, *orders(3))
    answers = taken(take(shop, *TEN[:3]))
    assert [(one.fencing_token, one.begun, one.sequence) for one in answers] == [(None, 1, 3)] * 3
    assert shop.state().sequence == 3


def test_only_those_that_need_a_segment_are_told_that_none_is_free(shop: Shop) -> None:
    shop.open(9, 1)
    shop.granted("other")
    submit(shop, Order("a", 1))
    queue(shop, Order("b", 1))
    assert named(take(shop, "a", "b").orders) == ["BegunOrder", "Busy"]


def test_an_envelope_without_an_order_to_sell_leaves_the_segment_free(shop: Shop) -> None:
    shop.open(2, 1)
    queue(shop, Order("large", 3), Order("a", 1))
    assert named(take(shop, "large", holder="w1").orders) == ["Settled"]
    assert begun(shop, "a", holder="w2").segment == 0


def test_an_order_of_one_unit_is_taken_where_there_are_units_under_the_one_lock(shop: Shop) -> None:
    shop.open(2, 2)
    queue(shop, *orders(2))
    first, second = taken(take(shop, *TEN[:2]))
    assert (first.segment, first.parts, second.segment, second.parts) == (0, ((0, 1),), 0, ((1, 1),))


def test_an_order_asked_for_partly_is_told_with_what_it_asked_for(shop: Shop) -> None:
    shop.open(3, 1)
    shop.reserve("a", 5, partial=True)
    assert begun(shop, "a") == BegunOrder(Order("a", 5), 3, 0, ((0, 3),), None, 1, 2, 1)


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


def test_a_lost_reply_is_told_again_after_the_lease_under_a_new_token(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 2))
    first = begun(shop, "a", ttl_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    again = begun(shop, "a")
    assert (again.begun, again.fencing_token, again.parts) == (1, FENCE + 1, first.parts)
    assert shop.totals() == (7, 2, 0)


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
    first = begun(shop, "a", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    second = begun(shop, "a", holder="w2")
    assert (first.begun, second.begun) == (1, 2)
    assert (first.fencing_token, second.fencing_token) == (FENCE, FENCE + 1)
    assert second.parts == first.parts == ((0, 3), (1, 2))
    assert shop.story()[-1] == ("granted", "a")
    assert shop.totals() == (4, 5, 0)
    assert confirm(shop, "a", holder="w1")[0] == Settled(
        "a", "confirmed", 5, second.segment, FENCE + 1, 4, replay=False
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


def test_a_decided_order_is_told_as_it_is_and_leaves_the_outbox(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 2), Order("b", 1))
    shop.confirm("a")
    shop.cancel("b")
    assert take(shop, "a", "b").orders == (
        Settled("a", "confirmed", 2, 1, None, 3, replay=True),
        Settled("b", "cancelled", 1, 1, None, 4, replay=True),
    )


def test_an_order_that_nobody_submitted_is_unknown(shop: Shop) -> None:
    shop.open(9, 3)
    assert named(take(shop, "nobody").orders) == ["OrderUnknown"]
    assert waiting(shop) == 0


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


def test_a_lost_reply_of_the_fifth_time_is_told_again(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begin_and_die(shop, "a", times=4)
    assert begun(shop, "a").begun == 5
    assert begun(shop, "a").begun == 5


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


def test_what_must_go_alone_stays_in_the_outbox(shop: Shop) -> None:
    shop.open(99, 3)
    submit(shop, *orders(2), after_ms=SHORT_MS)
    begin_and_die(shop, "o00", times=2)
    take(shop, "o00", "o01", work_ms=LONG_MS)
    shop.let_short_holds_lapse()
    assert sweep(shop).due == (("o00", 2),)  # type: ignore[union-attr]  # it has no token to be superseded


# --- units ---


def test_the_pool_is_sold_out_exactly(shop: Shop) -> None:
    shop.open(5, 2)
    queue(shop, *orders(8))
    answers = take(shop, *TEN[:8]).orders
    assert named(answers) == ["BegunOrder"] * 5 + ["Settled"] * 3
    assert answers[5] == Settled("o05", "refused", 1, -1, None, 3, replay=True)
    assert shop.totals() == (0, 5, 0)
    assert waiting(shop) == 5
    assert queue(shop, Order("o05", 1)) == (Settled("o05", "refused", 1, -1, None, 3, replay=True),)


def test_a_smaller_order_behind_a_refused_one_is_served(shop: Shop) -> None:
    shop.open(5, 2)
    queue(shop, Order("a", 3), Order("b", 3), Order("c", 2))
    assert named(take(shop, "a", "b", "c").orders) == ["BegunOrder", "Settled", "BegunOrder"]


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
    shop.open(9, 3, customer_limit=2)
    queue(shop, Order("a", 2, "ann"), Order("b", 1, "ann"), Order("c", 1, "bob"))
    assert named(take(shop, "a", "b", "c").orders) == ["BegunOrder", "Settled", "BegunOrder"]
    refused = [(entry.order_id, entry.note) for entry in shop.ledger() if entry.kind == "refused"]
    assert refused == [("b", "limit")]
    record = shop.record("b")
    assert isinstance(record, OrderRecord)
    assert (record.state, record.customer_id) == ("refused", "ann")
    shop.check_books()


def test_a_customer_at_the_limit_buys_again_after_a_cancel(shop: Shop) -> None:
    shop.open(9, 3, customer_limit=2)
    queue(shop, Order("a", 2, "ann"), Order("b", 2, "ann"))
    begun(shop, "a")
    shop.cancel("a")
    assert begun(shop, "b", holder="w2").quantity == 2


def test_due_holds_are_given_back_for_an_order_that_needs_them(shop: Shop) -> None:
    shop.open(5, 2)
    submit(shop, Order("late", 5), hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    queue(shop, Order("a", 4))
    assert begun(shop, "a").quantity == 4
    assert submitted(shop, "late").state == "expired"
    assert shop.totals() == (1, 4, 0)


def test_an_order_of_the_same_envelope_loses_its_due_units_to_one_before_it_or_keeps_them(shop: Shop) -> None:
    shop.open(5, 2)
    submit(shop, Order("late", 5), hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    queue(shop, Order("a", 4))
    assert named(take(shop, "late", "a").orders) == ["BegunOrder", "Settled"]
    assert submitted(shop, "a").state == "refused"


def test_an_order_of_the_same_envelope_behind_one_that_took_its_due_units_is_expired(shop: Shop) -> None:
    shop.open(5, 2)
    submit(shop, Order("late", 5), hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    queue(shop, Order("a", 4))
    first, late = take(shop, "a", "late").orders
    assert isinstance(first, BegunOrder)
    assert isinstance(late, Settled)
    assert late.state == "expired"
    assert waiting(shop) == 1


def test_with_many_holds_due_an_order_is_told_to_ask_again_and_those_behind_it_wait(shop: Shop) -> None:
    shop.open(400, 4)
    submit(shop, *(Order(f"late{number:03}", 2) for number in range(200)), hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    queue(shop, Order("a", 400), Order("b", 1))
    answers = take(shop, "a", "b")
    for _ in range(20):
        if named(answers.orders) != ["Busy", "Busy"]:
            break
        assert all(isinstance(one, Busy) and not one.is_in_hand and one.free_in_ms == 0 for one in answers.orders)
        answers = take(shop, "a", "b")
    assert named(answers.orders) == ["BegunOrder", "Settled"]


def test_a_gated_pool_gives_no_due_hold_back_for_an_envelope(shop: Shop) -> None:
    shop.open(5, 2, gated=True)
    submit(shop, Order("late", 5), hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    queue(shop, Order("a", 4))
    assert named(take(shop, "a").orders) == ["Settled"]
    assert submitted(shop, "late").state == "reserved"


def test_a_gated_pool_is_served_as_any_other(shop: Shop) -> None:
    shop.open(9, 3, gated=True)
    queue(shop, Order("a", 2))
    submit(shop, Order("b", 1))
    assert named(take(shop, "a", "b").orders) == ["BegunOrder", "BegunOrder"]
    assert named(confirm(shop, "a", "b")) == ["Settled", "Settled"]
    assert outbox(shop).waiting == 0


def test_a_begun_orders_hold_begins_anew(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 2), hold_ms=SHORT_MS)
    begun(shop, "a")
    shop.let_short_holds_lapse()
    assert shop.expire_due() == ((), False)


# --- giving back, and keeping ---


def test_what_is_put_off_is_not_this_workers_any_more_and_its_segment_is_free(shop: Shop) -> None:
    shop.open(9, 1)
    queue(shop, *orders(2))
    begun(shop, "o00")
    assert put_off(shop, "o00") == 0
    found = submitted(shop, "o00")
    assert (found.state, found.begun, found.reason, found.is_in_outbox) == ("reserved", 1, "it rained", True)
    assert begun(shop, "o01", holder="w2").fencing_token == FENCE + 1
    confirm(shop, "o01", holder="w2")
    assert begun(shop, "o00", holder="w2").begun == 2


@pytest.mark.parametrize(("counts", "times"), [(True, 1), (False, 0)])
def test_what_stopped_the_worker_does_not_count_unless_it_was_the_orders_fault(
    shop: Shop, times: int, *, counts: bool
) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begun(shop, "a")
    put_off(shop, "a", counts=counts)
    put_off(shop, "a", counts=counts)
    assert submitted(shop, "a").begun == times


def test_an_order_that_could_not_be_tried_for_ever_is_never_buried(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    for _ in range(12):
        assert begun(shop, "a").begun == 1
        assert put_off(shop, "a", counts=False) == 0
    assert dead(shop) == []


def test_an_order_that_failed_five_times_is_buried_when_it_is_put_off(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    told = [(begun(shop, "a").begun, put_off(shop, "a", reason="no such\n\taddress")) for _ in range(5)]
    assert told == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1)]
    (found,) = dead(shop)
    assert (found.order_id, found.begun, found.reason) == ("a", 5, "no such address")
    assert submitted(shop, "a").reason == "no such address"
    assert waiting(shop) == 0


def test_what_another_worker_has_by_now_is_left_alone(shop: Shop) -> None:
    shop.open(9, 3)
    queue(shop, Order("a", 1))
    begun(shop, "a", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    begun(shop, "a", holder="w2")
    assert put_off(shop, "a", holder="w1", delay_ms=0, begun_max=1) == 0
    found = submitted(shop, "a")
    assert (found.begun, found.reason, outbox(shop).due) == (2, "", 0)
    assert renew_work(shop, "a", holder="w1") == ()


def test_a_decided_and_an_unknown_order_are_not_put_off(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    shop.confirm("a")
    assert put_off(shop, "a", "nobody", begun_max=1) == 0
    assert waiting(shop) == 0
    assert dead(shop) == []


def test_a_queued_order_that_found_no_segment_is_put_off_for_a_while(shop: Shop) -> None:
    shop.open(9, 1)
    shop.granted("other")
    queue(shop, Order("a", 1), after_ms=1)
    take(shop, "a")
    put_off(shop, "a", counts=False, reason="no segment was free")
    shop.side.pass_time(0.003)
    found = submitted(shop, "a")
    assert (found.state, found.begun, found.reason, outbox(shop).due) == ("queued", 0, "no segment was free", 0)


def test_a_reason_is_kept_in_one_line_of_at_most_two_hundred_characters(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begun(shop, "a")
    put_off(shop, "a", reason="ü" * 300)
    assert submitted(shop, "a").reason == "ü" * 200


def test_a_reason_that_is_no_unicode_is_kept_readable(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 1))
    begun(shop, "a")
    put_off(shop, "a", reason="no file 'x\udcff'")
    assert submitted(shop, "a").reason == "no file 'x\\udcff'"


def test_work_that_is_renewed_stays_this_workers_and_its_units_stay_reserved(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, Order("a", 2), hold_ms=SHORT_MS)
    take(shop, "a", hold_ms=SHORT_MS, work_ms=SHORT_MS)
    assert renew_work(shop, "a") == ("a",)
    shop.let_short_holds_lapse()
    assert named(take(shop, "a", holder="w2").orders) == ["Busy"]
    assert shop.expire_due() == ((), False)
    assert outbox(shop).due == 0


def test_work_under_a_segments_lock_that_is_renewed_keeps_its_lease(shop: Shop) -> None:
    shop.open(9, 1)
    queue(shop, *orders(2))
    take(shop, "o00", ttl_ms=SHORT_MS, work_ms=SHORT_MS)
    assert renew_work(shop, "o00") == ("o00",)
    shop.let_short_holds_lapse()
    assert named(take(shop, *TEN[:2], holder="w2").orders) == ["Busy", "Busy"]
    assert submitted(shop, "o01").state == "queued"
    assert begun(shop, "o00").fencing_token == FENCE


def test_only_what_is_still_this_workers_is_renewed(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(4))
    take(shop, *TEN[:3])
    shop.confirm("o01")
    put_off(shop, "o02")
    assert renew_work(shop, *TEN[:4], "nobody") == ("o00",)


def test_a_buried_order_is_dead_for_an_envelope_too(shop: Shop) -> None:
    shop.open(9, 3)
    submit(shop, *orders(2))
    buried(shop, "o00")
    assert named(take(shop, *TEN[:2]).orders) == ["Dead", "BegunOrder"]


def test_of_a_stock_that_was_written_to_from_outside_nothing_is_taken(plain_redis_side: Side) -> None:
    shop = Shop(plain_redis_side, plain_redis_side.name())
    shop.open(9, 3)
    queue(shop, Order("a", 4), Order("b", 1))
    plain_redis_side.raw().delete(shop.keys.stock)
    (drifted, other) = take(shop, "a", "b").orders
    assert isinstance(drifted, PoolDrifted)
    assert isinstance(other, PoolDrifted)
    assert (submitted(shop, "a").state, submitted(shop, "a").begun) == ("queued", 0)
    assert shop.state().sequence == 1
    assert plain_redis_side.raw().keys(f"{shop.keys.lock}:*") == []
