"""Reservations in batches: each as if alone, in the order given, in one step."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from segmented.models import Busy, Closed, Decided, Order, Reserved, SoldOut
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.contract.pools.shop import Shop


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


def test_a_refused_order_does_not_stop_a_smaller_one_after_it(shop: Shop) -> None:
    shop.open(5, 2)
    answers = shop.reserve_many([Order("a", 3), Order("b", 3), Order("c", 2)])
    assert named(answers) == ["Reserved", "SoldOut", "Reserved"]
    assert answers[1] == SoldOut("b", 3, available=0, reserved=5, sequence=2)
    assert shop.totals() == (0, 5, 0)
    assert shop.record("b") is None


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


def test_a_batch_that_is_sent_again_is_answered_again(shop: Shop) -> None:
    shop.open(9, 3)
    wanted = [Order("a", 2), Order("b", 4), Order("c", 3)]
    first = shop.reserve_many(wanted)
    before = shop.ledger()
    again = shop.reserve_many(reversed([*wanted, Order("too many", 1)]))
    assert named(again[:1]) == ["SoldOut"]
    assert list(reversed(again[1:])) == [
        replace(answer, replay=True) for answer in first if isinstance(answer, Reserved)
    ]
    assert shop.ledger() == before


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


@pytest.mark.parametrize("segments", [1, 64])
def test_a_thousand_orders_a_call_sell_the_last_unit_at_any_segment_count(shop: Shop, segments: int) -> None:
    shop.open(2_500, segments)
    answers = shop.reserve_many(Order(f"o{index}", 1 + index % 5) for index in range(1_000))
    assert sum(answer.quantity for answer in answers if isinstance(answer, Reserved)) == 2_500
    assert shop.totals() == (0, 2_500, 0)
    assert all(answer.available < answer.quantity for answer in answers if isinstance(answer, SoldOut))
    assert shop.state().sequence == 2


def test_a_batch_of_a_closed_pool_answers_repeats_and_refuses_the_rest(shop: Shop) -> None:
    shop.open(9, 3)
    shop.reserved("a", 2)
    shop.close()
    answers = shop.reserve_many([Order("a", 2), Order("b", 1), Order("a", 1)])
    assert named(answers) == ["Reserved", "Closed", "OrderMismatch"]
    assert answers[1] == Closed("b")


# --- holds that have lapsed ---


def test_what_has_lapsed_is_given_back_before_a_batch_is_refused(shop: Shop) -> None:
    shop.open(10, 2)
    shop.reserve_many([Order(f"late{index}", 1) for index in range(10)], hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    answers = shop.reserve_many([Order("a", 4), Order("b", 6), Order("c", 1)])
    assert named(answers) == ["Reserved", "Reserved", "SoldOut"]
    assert shop.totals() == (0, 10, 0)
    assert [kind for kind, _ in shop.story()].count("expired") == 10


def test_a_repeat_holds_its_lapsed_units_anew_before_the_next_order_may_want_them(shop: Shop) -> None:
    shop.open(1, 1)
    shop.reserved("a", hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert named(shop.reserve_many([Order("a", 1), Order("b", 1)])) == ["Reserved", "SoldOut"]


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
