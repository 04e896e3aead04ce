"""Reservations: one order, many in a call, partly, and until when."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from segmented import protocol as op
from segmented.errors import OrderMismatch
from segmented.models import Busy, Granted, Inspected, LimitReached, Order, Reserved, SoldOut, Taken
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import queue, submit
from tests.support.contract.pools.shop import SHORT_MS, Shop


def test_a_reservation_takes_its_units_and_no_lock(shop: Shop) -> None:
    shop.open(10, 4)
    assert shop.reserve("a", 2) == Reserved("a", 2, segment=1, parts=((1, 2),), epoch=1, sequence=2, replay=False)
    assert shop.totals() == (8, 2, 0)
    assert shop.state().stock == (3, 1, 2, 2)
    record = shop.record("a")
    assert record is not None
    assert (record.state, record.holder_id, record.fencing_token) == ("reserved", None, None)


def test_the_longest_lapsed_are_given_back_first(shop: Shop) -> None:
    shop.open(17, 4)
    shop.reserve_many([Order(f"late{index:02}") for index in range(16)], hold_ms=SHORT_MS)
    shop.reserved("as late", hold_ms=SHORT_MS + 5)
    shop.let_short_holds_lapse()
    shop.reserve("a", 17)
    assert shop.due() == ("as late",)


def test_a_gated_pool_gives_nothing_back_by_itself(shop: Shop) -> None:
    shop.open(4, 2, gated=True)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 4) == SoldOut("a", 4, available=1, reserved=3, sequence=2)
    assert shop.due() == ("late",)
    assert shop.totals() == (1, 3, 0)


def named(answers: Iterable[object]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


def test_a_batch_is_one_step_with_one_answer_an_order(shop: Shop) -> None:
    shop.open(9, 3)
    assert shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 3)]) == (
        Reserved("a", 2, 1, ((1, 2),), 1, 2, replay=False),
        Reserved("b", 1, 1, ((1, 1),), 1, 2, replay=False),
        Reserved("c", 3, 0, ((0, 3),), 1, 2, replay=False),
    )
    assert shop.totals() == (3, 6, 0)
    assert shop.state().stock == (0, 0, 3)
    assert [(entry.sequence, entry.order_id) for entry in shop.ledger()] == [(1, None), (2, "a"), (2, "b"), (2, "c")]
    assert len({entry.chain for entry in shop.ledger(after=1)}) == 1


# --- holds that have lapsed ---


def test_one_batch_gives_back_160_due_holds_and_says_busy_for_the_rest(shop: Shop) -> None:
    shop.open(200, 4)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(200)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    wanted = [Order(f"o{index}", 16) for index in range(13)]
    answers = shop.reserve_many(wanted)
    assert named(answers) == ["Reserved"] * 10 + ["Busy"] * 3
    assert answers[10] == Busy("o10", shop.state().sequence, 0)
    assert shop.totals() == (0, 200, 0)
    assert shop.state().order_count == 210
    assert named(shop.reserve_many(wanted[10:])) == ["Reserved", "Reserved", "SoldOut"]


def test_behind_an_order_that_has_to_ask_again_nobody_gets_its_units(shop: Shop) -> None:
    shop.open(40, 4)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(40)], hold_ms=0)
    orders = [Order("large", 30), Order("small", 16)]
    assert named(shop.reserve_many(orders)) == ["Busy", "Busy"]
    assert named(shop.reserve_many(orders)) == ["Reserved", "SoldOut"]
    assert shop.totals() == (10, 30, 0)


def test_behind_an_order_that_has_to_ask_again_not_even_the_smallest_gets_its_units(shop: Shop) -> None:
    shop.open(40, 4)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(40)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    orders = [Order("large", 30), Order("tiny", 2)]  # one segment alone has units enough for it
    assert named(shop.reserve_many(orders)) == ["Busy", "Busy"]
    assert shop.totals() == (16, 24, 0)
    assert named(shop.reserve_many(orders)) == ["Reserved", "Reserved"]
    assert shop.totals() == (0, 40, 0)


ODD_IDS = ('"', "\\", '\\"', "\\n", "/", "[]", "null", "1", " ", "票", "🎫", "\\u0041")


def test_ids_and_customers_of_printable_text_are_equal_in_answer_record_and_ledger(shop: Shop) -> None:
    shop.open(100, 3)
    wanted = [Order(odd, 1, odd) for odd in ODD_IDS]
    answers = shop.reserve_many(wanted)
    assert [(answer.order_id, answer.replay) for answer in answers if isinstance(answer, Reserved)] == [
        (odd, False) for odd in ODD_IDS
    ]
    assert [shop.reserve(odd, 1, customer_id=odd) for odd in ODD_IDS] == [
        replace(answer, replay=True) for answer in answers if isinstance(answer, Reserved)
    ]
    assert [getattr(shop.record(odd), "customer_id", None) for odd in ODD_IDS] == list(ODD_IDS)
    assert [(entry.order_id, entry.customer_id) for entry in shop.ledger(after=1)] == [(odd, odd) for odd in ODD_IDS]
    assert [getattr(answer, "order_id", None) for answer in shop.confirm_many(*ODD_IDS)] == list(ODD_IDS)
    assert shop.totals() == (88, 0, 12)


def test_a_batch_of_partial_orders_shares_what_is_left_in_its_order(shop: Shop) -> None:
    shop.open(9, 3)
    answers = shop.reserve_many([Order("a", 4), Order("b", 8), Order("c", 8), Order("b", 8)], partial=True)
    assert [getattr(answer, "quantity", None) for answer in answers] == [4, 5, 8, 5]
    assert [type(answer) for answer in answers] == [Reserved, Reserved, SoldOut, Reserved]
    assert isinstance(answers[3], Reserved)
    assert answers[3].replay
    assert shop.totals() == (0, 9, 0)


def test_a_repeat_of_a_grant_that_took_what_was_left_asks_for_the_same_quantity(shop: Shop) -> None:
    shop.open(3, 2)
    first = shop.grant("a", 5, partial=True)
    again = shop.grant("a", 5)
    shop.let_lease_lapse("a")
    answers = (first, again, shop.grant("a", 5, holder_id="second"))
    assert [isinstance(one, Granted) and (one.quantity, one.replay) for one in answers] == [
        (3, False),
        (3, True),
        (3, True),
    ]


def until(answer: Taken | Exception) -> int:
    assert isinstance(answer, Reserved), answer
    return answer.hold_until_ms


def recorded(side: Side, sku: str, order_id: str) -> int | None:
    (found,) = side.execute(op.InspectOrders(sku, (order_id,)))
    assert isinstance(found, Inspected)
    return found.hold_until_ms


def test_a_repeat_says_the_end_that_stands(side: Side) -> None:
    sku = side.name()
    long, short = (side.pool(sku, ttl=1, hold=hold) for hold in (600, 60))
    long.open(stock=9, segments=2)
    first = until(long.reserve("a"))
    assert until(short.reserve("a")) == first
    later, taken, again = long.reserve_many([Order("a"), Order("b"), Order("b")])
    assert until(later) == until(taken) == until(again) >= first
    assert [recorded(side, sku, order_id) for order_id in "ab"] == [until(later), until(taken)]


KNOWN = "order 'a' exists with other content: "
OTHERS = {
    "another quantity": (Order("a", 3, "ann"), "quantity 2 is stored, 3 was given"),
    "another customer": (Order("a", 2, "bob"), "another customer is stored, bob was given"),
    "no customer": (Order("a", 2), "a customer is stored, none was given"),
    "both": (Order("a", 7, "bob"), "quantity 2 is stored, 7 was given; another customer is stored, bob was given"),
}


def said_by(call: Callable[..., object], order: Order) -> str:
    with pytest.raises(OrderMismatch) as caught:
        call(order.order_id, order.quantity, customer_id=order.customer_id)
    assert caught.value.order_id == order.order_id
    return str(caught.value)


@pytest.mark.parametrize("state", ["queued", "reserved", "confirmed", "cancelled"])
def test_an_order_says_what_differs_to_every_call(shop: Shop, state: str) -> None:
    shop.open(10, 4)
    queue(shop, Order("a", 2, "ann")) if state == "queued" else shop.reserve("a", 2, customer_id="ann")
    if state in {"confirmed", "cancelled"}:
        (shop.confirm if state == "confirmed" else shop.cancel)("a")
    for name, (other, difference) in OTHERS.items():
        found = [said_by(shop.reserve, other), said_by(shop.grant, other)]
        found += map(str, [*shop.reserve_many([other]), *submit(shop, other), *queue(shop, other)])
        assert found == [KNOWN + difference] * 5, name


def test_a_customer_whom_another_program_wrote_does_not_break_the_lines_of_a_batch(plain_redis_shop: Shop) -> None:
    """Nor does one in another encoding hide the answers."""
    shop = plain_redis_shop
    shop.open(10, 1)
    shop.reserve("a", 2, customer_id="ann")
    raw = shop.side.raw()
    record = str(raw.hget(shop.keys.orders, "a"))
    for customer in (b"\ta\nn", b"\tM\xfcller"):
        raw.hset(shop.keys.orders, "a", record.encode().replace(b"\tann", customer))
        first, second = shop.reserve_many([Order("a", 3), Order("b", 1)])
        assert str(first) == KNOWN + "quantity 2 is stored, 3 was given; a customer is stored, none was given"
        assert isinstance(second, Reserved)
    raw.hset(shop.keys.orders, "a", record)


def buys(shop: Shop, order_id: str, quantity: int = 1, *, customer: str = "ann", hold_ms: int = 600_000) -> object:
    return shop.reserve(order_id, quantity, customer_id=customer, hold_ms=hold_ms)


def test_a_partial_order_takes_no_more_than_its_customer_may_still_have(shop: Shop) -> None:
    shop.open(16, 8, limit_per_customer=3)
    assert isinstance(buys(shop, "a"), Reserved)
    answer = shop.reserve("b", 5, customer_id="ann", partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 2
    assert buys(shop, "c") == LimitReached("c", 1, "ann", limit=3, taken=3)


def test_orders_of_one_customer_count_together_over_all_segments(shop: Shop) -> None:
    shop.open(16, 8, limit_per_customer=3)
    assert buys(shop, "large", 4) == LimitReached("large", 4, "ann", limit=3, taken=0)
    for _ in range(3):  # a repeat counts once
        assert isinstance(buys(shop, "a", 2), Reserved)
    assert buys(shop, "b", 2) == LimitReached("b", 2, "ann", limit=3, taken=2)
    assert isinstance(buys(shop, "c", 1), Reserved)
    shop.confirm("a")  # and counts forever
    assert buys(shop, "d", 1) == LimitReached("d", 1, "ann", limit=3, taken=3)
    with pytest.raises(OrderMismatch):
        buys(shop, "a", 2, customer="bob")
    assert isinstance(buys(shop, "e", 3, customer="bob"), Reserved)
    assert shop.totals() == (10, 4, 2)


def test_with_many_holds_due_a_customer_at_its_limit_is_told_to_ask_again(shop: Shop) -> None:
    shop.open(40, 4, limit_per_customer=2)
    shop.reserve_many([Order(f"late{index:02}", 1, f"other{index}") for index in range(20)], hold_ms=SHORT_MS)
    buys(shop, "zz", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), Busy)
    assert isinstance(buys(shop, "b", 2), Reserved)


def test_a_reservation_says_when_its_hold_ends(side: Side) -> None:
    sku = side.name()
    long, short = (side.pool(sku, ttl=1, hold=hold) for hold in (600, 60))
    long.open(stock=9, segments=2)
    first, second = until(long.reserve("a")), until(short.reserve("b"))
    assert 480_000 < first - second <= 540_000
    assert [recorded(side, sku, order_id) for order_id in "ab"] == [first, second]
