"""Reservations: one order, many in a call, partly, and until when."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from segmented import protocol as op
from segmented.errors import OrderMismatch
from segmented.models import Busy, Decided, Granted, Inspected, LimitReached, Order, Reserved, SoldOut, Taken
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


def test_sold_out_says_what_is_free_what_is_on_hold_and_when_it_was_decided(shop: Shop) -> None:
    """It is not recorded: a repeat is a new attempt."""
    shop.open(10, 4)
    shop.reserved("a", 4)
    shop.confirm("a")
    shop.reserved("b", 5)
    assert shop.reserve("c", 2) == SoldOut("c", 2, available=1, reserved=5, sequence=4)
    assert shop.totals() == (1, 5, 4)
    assert shop.record("c") is None
    shop.cancel("b")
    assert shop.reserved("c", 2).replay is False


def test_an_order_larger_than_any_segment_is_gathered_from_several(shop: Shop) -> None:
    shop.open(10, 4)
    assert shop.reserved("a", 9).parts == ((1, 3), (0, 3), (2, 2), (3, 1))
    assert shop.state().stock == (0, 0, 0, 1)
    assert shop.reserved("b").parts == ((3, 1),)


def test_a_refusal_after_holds_were_given_back_counts_them_as_free(shop: Shop) -> None:
    shop.open(5, 2)
    shop.reserved("late", 3, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 6) == SoldOut("a", 6, available=5, reserved=0, sequence=3)


def test_with_seventeen_due_holds_the_answer_is_busy_and_the_next_try_succeeds(shop: Shop) -> None:
    shop.open(17, 4)
    shop.reserve_many([Order(f"late{index:02}") for index in range(17)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.reserve("a", 17) == Busy("a", sequence=3, free_in_ms=0)
    assert shop.totals() == (16, 1, 0)
    assert shop.reserved("a", 17).sequence == 5


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


def folded(shop: Shop, sequence: int) -> tuple[int, int]:
    """Units free, and on hold, by the ledger up to an entry; reckoned as neither script nor model does."""
    available, held = 0, dict[str | None, int]()
    for entry in shop.ledger():
        if entry.sequence > sequence:
            continue
        if entry.kind in {"opened", "restocked"}:
            available += entry.quantity
        elif entry.kind in {"reserved", "granted"} and entry.order_id not in held:
            held[entry.order_id] = entry.quantity
            available -= entry.quantity
        elif entry.kind in {"cancelled", "expired"}:
            available += held.pop(entry.order_id)
        elif entry.kind == "confirmed":
            del held[entry.order_id]
    return available, sum(held.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_numbers_of_a_refusal_are_those_of_the_ledger_at_its_sequence(shop: Shop, seed: int) -> None:
    draw, refused = Random(seed), 0
    shop.open(60, draw.randint(1, 7))
    for step in range(12):
        if draw.random() < 0.3:
            shop.reserve_many([Order(f"late{step}-{n}", 1) for n in range(20)], hold_ms=0)
        if draw.random() < 0.3:
            shop.restock(draw.randint(1, 20), f"more{step}")
        wanted = [Order(f"o{step}-{n}", draw.choice((1, 2, 9, 30))) for n in range(draw.randint(1, 6))]
        answers: list[object] = [*shop.reserve_many(wanted, partial=draw.random() < 0.2)]
        answers.append(shop.grant(f"g{step}", draw.choice((1, 40)), keep_refusal=draw.random() < 0.5))
        for answer in answers:
            if isinstance(answer, SoldOut):
                assert (answer.available, answer.reserved) == folded(shop, answer.sequence)
                assert answer.available < answer.quantity
                refused += 1
            elif isinstance(answer, Reserved) and draw.random() < 0.3:
                draw.choice((shop.confirm, shop.cancel))(answer.order_id)
    assert refused >= 12


def test_an_id_that_comes_again_in_its_batch_is_a_repeat(shop: Shop) -> None:
    """With other content it is a mismatch in its place; after a refusal it is a new attempt."""
    shop.open(9, 3)
    wanted = [("a", 2), ("b", 1), ("a", 2), ("a", 3), ("a", 2), ("c", 7), ("c", 6), ("c", 7)]
    orders = [Order(*order) for order in wanted]
    answers = shop.reserve_many([*orders[:4], Order("a", 2, "ann"), *orders[4:]])
    again = Reserved("a", 2, 1, ((1, 2),), 1, 2, replay=True)
    assert (answers[0], answers[2], answers[5]) == (replace(again, replay=False), again, again)
    assert named(answers[3:5]) == ["OrderMismatch"] * 2
    assert named(answers[6:]) == ["SoldOut", "Reserved", "OrderMismatch"]
    assert shop.totals() == (0, 9, 0)
    assert shop.state().order_count == 3


def test_decided_orders_are_told_what_had_happened(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 1)])
    shop.confirm("a")
    shop.cancel("b")
    shop.grant("d", 30, keep_refusal=True)
    answers = shop.reserve_many([Order("a", 2), Order("b", 1), Order("c", 1), Order("d", 30), Order("e", 1)])
    assert answers[0] == Decided("a", "confirmed", 2, 1, None, 3, replay=True)
    assert answers[1] == Decided("b", "cancelled", 1, 1, None, 4, replay=True)
    assert answers[3] == Decided("d", "refused", 30, -1, None, 5, replay=True)
    assert named(answers) == ["Decided", "Decided", "Reserved", "Decided", "Reserved"]


# --- holds that have lapsed ---


def test_a_repeat_that_comes_after_its_units_were_given_back_is_told_so(shop: Shop) -> None:
    shop.open(1, 1)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    answers = shop.reserve_many([Order("b", 1), Order("a", 1)])
    assert named(answers) == ["Reserved", "Decided"]
    assert isinstance(answers[1], Decided)
    assert (answers[1].state, answers[1].replay) == ("expired", True)


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


def test_the_ledger_has_the_orders_of_a_batch_as_they_were_given_whatever_they_share(shop: Shop) -> None:
    shop.open(20, 2)
    quantities = (("a", 1), ("b", 1), ("c", 1, "ann"), ("d", 1), ("e", 2), ("f", 2), ("g", 5), ("h", 1), ("i", 1))
    shop.reserve_many([Order(*order) for order in quantities])
    assert [(one.order_id, one.quantity, one.segment, one.parts, one.customer_id) for one in shop.ledger(after=1)] == [
        ("a", 1, 1, ((1, 1),), None),
        ("b", 1, 1, ((1, 1),), None),
        ("c", 1, 1, ((1, 1),), "ann"),
        ("d", 1, 1, ((1, 1),), None),
        ("e", 2, 1, ((1, 2),), None),
        ("f", 2, 1, ((1, 2),), None),
        ("g", 5, 1, ((1, 2), (0, 3)), None),
        ("h", 1, 0, ((0, 1),), None),
        ("i", 1, 0, ((0, 1),), None),
    ]
    assert shop.totals() == (5, 15, 0)


def test_a_partial_order_gets_all_of_it_while_there_is_enough_and_then_what_is_left(shop: Shop) -> None:
    shop.open(9, 3)
    assert shop.reserve("a", 5, partial=True) == Reserved("a", 5, 1, ((1, 3), (0, 2)), 1, 2, replay=False)
    assert isinstance(shop.reserve("b", 7), SoldOut)
    assert getattr(shop.reserve("b", 7, partial=True), "quantity", None) == 4
    for order_id, quantity, asked in (("a", 5, 5), ("b", 4, 7)):
        record = shop.record(order_id)
        assert record is not None
        assert (record.quantity, record.asked) == (quantity, asked)
    assert shop.totals() == (0, 9, 0)
    assert shop.ledger()[-1].quantity == 4
    assert shop.reserve("c", 5, partial=True) == SoldOut("c", 5, available=0, reserved=9, sequence=3)
    assert (shop.confirm("a").quantity, shop.totals()) == (5, (0, 4, 5))
    shop.cancel("b")
    assert shop.reserve("b", 7) == Decided("b", "cancelled", 4, 2, None, 5, replay=True)


def test_a_repeat_gets_what_it_got_however_much_is_free_by_then(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserve("a", 5, partial=True)
    shop.restock(100, "r")
    for partial in (True, False):
        again = shop.reserve("a", 5, partial=partial)
        assert isinstance(again, Reserved)
        assert (again.quantity, again.replay) == (2, True)
        with pytest.raises(OrderMismatch):
            shop.reserve("a", 2, partial=partial)  # what was taken, and not what was asked for
    assert shop.totals() == (100, 2, 0)


def test_a_batch_of_partial_orders_shares_what_is_left_in_its_order(shop: Shop) -> None:
    shop.open(9, 3)
    answers = shop.reserve_many([Order("a", 4), Order("b", 8), Order("c", 8), Order("b", 8)], partial=True)
    assert [getattr(answer, "quantity", None) for answer in answers] == [4, 5, 8, 5]
    assert [type(answer) for answer in answers] == [Reserved, Reserved, SoldOut, Reserved]
    assert isinstance(answers[3], Reserved)
    assert answers[3].replay
    assert shop.totals() == (0, 9, 0)


def test_a_grant_takes_what_is_left_and_says_how_many(shop: Shop) -> None:
    shop.open(3, 2)
    answer = shop.grant("a", 5, partial=True)
    assert isinstance(answer, Granted)
    assert (answer.quantity, sum(units for _, units in answer.parts)) == (3, 3)
    again = shop.grant("a", 5)
    assert isinstance(again, Granted)
    assert (again.quantity, again.replay) == (3, True)
    shop.let_lease_lapse("a")
    second = shop.grant("a", 5, holder_id="second")
    assert isinstance(second, Granted)
    assert (second.quantity, second.replay) == (3, True)


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


def test_after_a_cancel_the_customer_can_buy_again(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    for number in range(5):
        assert isinstance(buys(shop, f"a{number}", 2), Reserved)
        assert isinstance(buys(shop, "too much"), LimitReached)
        shop.cancel(f"a{number}")
        shop.cancel(f"a{number}")
    assert isinstance(buys(shop, "b", 2), Reserved)
    assert isinstance(buys(shop, "too much"), LimitReached)


def test_a_hold_that_has_lapsed_does_not_count_though_nobody_has_swept(shop: Shop) -> None:
    shop.open(9, 3, limit_per_customer=2)
    buys(shop, "a", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), Reserved)
    assert buys(shop, "c") == LimitReached("c", 1, "ann", limit=2, taken=2)


def test_with_many_holds_due_a_customer_at_its_limit_is_told_to_ask_again(shop: Shop) -> None:
    shop.open(40, 4, limit_per_customer=2)
    shop.reserve_many([Order(f"late{index:02}", 1, f"other{index}") for index in range(20)], hold_ms=SHORT_MS)
    buys(shop, "zz", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert isinstance(buys(shop, "b", 2), Busy)
    assert isinstance(buys(shop, "b", 2), Reserved)


def test_batches_count_within_and_across_calls(shop: Shop) -> None:
    shop.open(20, 4, limit_per_customer=3)
    answers = shop.reserve_many(
        [Order("a", 2, "ann"), Order("b", 2, "ann"), Order("c", 3, "bob"), Order("d", 1, "ann"), Order("a", 2, "ann")]
    )
    assert [type(answer) for answer in answers] == [Reserved, LimitReached, Reserved, Reserved, Reserved]
    assert answers[1] == LimitReached("b", 2, "ann", limit=3, taken=2)
    assert shop.reserve_many([Order("e", 1, "ann")]) == (LimitReached("e", 1, "ann", limit=3, taken=3),)
    shop.cancel_many("a", "d", "a")
    assert [type(answer) for answer in shop.reserve_many([Order("f", 3, "ann"), Order("g", 1, "ann")])] == [
        Reserved,
        LimitReached,
    ]


def test_with_partial_limit_and_stock_both_bound_what_a_customer_gets(shop: Shop) -> None:
    shop.open(6, 2, limit_per_customer=3)
    buys(shop, "a", 1)
    assert getattr(shop.reserve("b", 5, customer_id="ann", partial=True), "quantity", None) == 2
    assert isinstance(shop.reserve("c", 5, customer_id="ann", partial=True), LimitReached)
    buys(shop, "d", 1, customer="bob")
    answer = shop.reserve("e", 5, customer_id="cid", partial=True)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 2  # all that is left
    shop.cancel("d")
    again = Reserved("e", 2, answer.segment, answer.parts, 1, answer.sequence, replay=True)
    assert shop.reserve("e", 5, customer_id="cid", partial=True) == again


def test_a_reservation_says_when_its_hold_ends(side: Side) -> None:
    sku = side.name()
    long, short = (side.pool(sku, ttl=1, hold=hold) for hold in (600, 60))
    long.open(stock=9, segments=2)
    first, second = until(long.reserve("a")), until(short.reserve("b"))
    assert 480_000 < first - second <= 540_000
    assert [recorded(side, sku, order_id) for order_id in "ab"] == [first, second]
