"""An envelope of orders in one transaction: what each of them alone would have got, on PostgreSQL and SQLite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput, OrderMismatch, StoreRefused
from segmented.models import Order
from segmented.orders import Claim
from segmented.orders.answers import Confirmed, EpochChanged, Missing, SegmentRow, SoldOut, Superseded, Voided
from segmented.orders.deciding import decide
from segmented.orders.postgresql import PostgresStatements
from segmented.orders.sqlite import SqliteStatements
from tests.support.dying import Deaths
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, REPLAY, confirm, hundred, one_by_one, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.orders import Gate


@pytest.fixture
def gate(every_database: str, open_gate: Callable[..., Gate]) -> Gate:
    return open_gate(every_database)


def claimed(order_id: str, segment: int = 0, quantity: int = 1, *, fence: int | None = None, epoch: int = 1) -> Claim:
    return Claim(Order(order_id, quantity), "mug", segment, epoch, fence)


def shown(answers: Sequence[object]) -> list[object]:
    """Return the answers, and an error as its text."""
    return [str(answer) if isinstance(answer, Exception) else answer for answer in answers]


def test_an_id_that_comes_twice_in_an_envelope_is_decided_once() -> None:
    rows = (SegmentRow(0, 5, 0, 0, 1),)
    decision = decide([claimed("a"), claimed("a")], rows, {}, are_all_rows=True)
    assert decision is not None
    assert (decision.answers, decision.confirmed) == ((NEW, REPLAY), (claimed("a"),))


def check_as_if_alone(gate: Gate, claims: list[Claim], quotas: list[int]) -> list[object]:
    """Confirm the claims together and, of another sku, one by one; both get the same and leave the same rows."""
    alone = [replace(claim, sku="cup") for claim in claims]
    for sku in ("mug", "cup"):
        gate.open(sku, quotas)
    together = shown(gate.confirm_many(claims))
    assert together == shown(one_by_one(gate, alone))
    assert stored(gate, "mug") == stored(gate, "cup")
    assert gate.totals("mug").sold == gate.confirmed_units("mug")
    return together


# --- as if alone ---


def test_a_hundred_orders_together_are_a_hundred_orders_alone(gate: Gate) -> None:
    answers = check_as_if_alone(gate, hundred(), [60, 60, 60, 60])
    assert answers == [NEW] * 100
    assert gate.totals("mug").segments == (
        SegmentRow(0, 60, 49, 0, 1),
        SegmentRow(1, 60, 50, 97, 1),
        SegmentRow(2, 60, 51, 0, 1),
        SegmentRow(3, 60, 49, 99, 1),
    )
    row = gate.orders("mug", ["o-7"])["o-7"]
    assert (row.state, row.quantity, row.segment, row.fence, row.epoch) == ("confirmed", 2, 3, 7, 1)
    assert (row.customer_id, gate.orders("mug", ["o-10"])["o-10"].customer_id) == ("ann", None)


def test_an_envelope_that_comes_again_is_a_replay_and_sells_nothing_again(gate: Gate) -> None:
    gate.open("mug", [60] * 4)
    gate.confirm_many(hundred())
    before = gate.totals("mug")
    assert gate.confirm_many(hundred()) == [REPLAY] * 100
    assert gate.confirm_many([replace(claim, segment=9, epoch=7, fence=0) for claim in hundred()]) == [REPLAY] * 100
    assert gate.totals("mug") == before


def test_only_the_rest_of_an_envelope_is_stored_when_some_of_it_was(gate: Gate) -> None:
    gate.open("mug", [60] * 4)
    gate.confirm_many(hundred()[:34])
    assert gate.confirm_many(hundred()) == [REPLAY] * 34 + [NEW] * 66
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 199


def test_a_mismatch_stands_in_its_place_and_spoils_nothing(gate: Gate) -> None:
    gate.open("mug", [60] * 4)
    confirm(gate, "o-41", quantity=7)
    answers = gate.confirm_many(hundred())
    assert isinstance(answers[41], OrderMismatch)
    assert str(answers[41]) == "order 'o-41' exists with other content: quantity 7 is stored, 3 was given"
    assert answers[:41] + answers[42:] == [NEW] * 99
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 199 - 3 + 7


def test_a_void_order_is_not_confirmed_and_spoils_nothing(gate: Gate) -> None:
    gate.open("mug", [60] * 4)
    gate.void(order_id="o-41", sku="mug", quantity=3)
    answers = gate.confirm_many(hundred())
    assert answers[41] == Voided(replay=True)
    assert answers[:41] + answers[42:] == [NEW] * 99
    assert gate.orders("mug", ["o-41"])["o-41"].state == "void"
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 199 - 3


def test_quota_moves_to_a_full_segment_as_it_does_for_orders_alone(gate: Gate) -> None:
    answers = check_as_if_alone(gate, hundred(), [0, 10, 150, 60])
    assert answers == [NEW] * 100
    assert gate.totals("mug").quota == 220


def test_the_last_units_go_to_the_same_orders_as_alone_and_the_rest_is_sold_out(gate: Gate) -> None:
    answers = check_as_if_alone(gate, hundred(), [7, 0, 90, 3])
    assert answers[:48] == [NEW] * 48
    assert SoldOut(total=100, sold=100) in answers
    assert gate.totals("mug").sold == 100


def test_what_refuses_one_order_is_told_and_the_others_are_confirmed(gate: Gate) -> None:
    gate.open("mug", [9, 9])
    confirm(gate, "o-1", fence=7)
    claims = [
        claimed("late", fence=6),
        claimed("elsewhere", epoch=2),
        claimed("nowhere", 5),
        claimed("newer", fence=9),
        claimed("between", fence=8),
        claimed("free"),
        claimed("other", 1, fence=1),
    ]
    refused = [Superseded(fence=7), EpochChanged(epoch=1), Missing(), NEW, Superseded(fence=9), NEW, NEW]
    assert gate.confirm_many(claims) == refused
    assert gate.totals("mug").segments == (SegmentRow(0, 9, 3, 9, 1), SegmentRow(1, 9, 1, 1, 1))
    assert gate.confirm_many([replace(claim, sku="cup") for claim in claims]) == [Missing()] * 7


def test_an_id_that_comes_twice_is_a_repeat(gate: Gate) -> None:
    gate.open("mug", [9, 9])
    answers = gate.confirm_many([claimed("a"), claimed("b"), claimed("a", 1), claimed("a", 0, 2), claimed("b")])
    assert [type(answer) for answer in answers] == [Confirmed, Confirmed, Confirmed, OrderMismatch, Confirmed]
    assert (answers[:3], answers[4]) == ([NEW, NEW, REPLAY], REPLAY)
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 2


def test_of_an_order_that_took_what_was_left_any_smaller_number_is_a_repeat(gate: Gate) -> None:
    gate.open("mug", [9])
    confirm(gate, "a", quantity=2)
    assert gate.confirm_many([Claim(Order("a", 3), "mug", 0, 1, asked=4)]) == [REPLAY]


# --- what an envelope may hold ---


def test_a_thousand_orders_fit_and_one_more_does_not(gate: Gate) -> None:
    gate.open("mug", [2_000] * 3)
    claims = [claimed(f"o-{number}", number % 3) for number in range(1_001)]
    with pytest.raises(InvalidInput, match="1,001 orders are too many for one transaction: up to 1,000 are possible"):
        gate.confirm_many(claims)
    assert gate.totals("mug").sold == 0
    assert gate.confirm_many(iter(claims[:1_000])) == [NEW] * 1_000
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 1_000


def test_orders_of_two_skus_are_refused(gate: Gate) -> None:
    gate.open("mug", [9])
    with pytest.raises(InvalidInput, match="must have one sku, not 'cup' and 'mug'"):
        gate.confirm_many([claimed("a"), replace(claimed("b"), sku="cup")])
    assert gate.totals("mug").sold == 0


def test_a_value_that_no_database_can_hold_is_refused_in_its_place(gate: Gate) -> None:
    gate.open("mug", [9])
    answers = gate.confirm_many([claimed("a"), claimed("b", fence=2**70), claimed("c", 2**40), claimed("d")])
    assert isinstance(answers[1], InvalidInput)
    assert (answers[0], answers[3]) == (NEW, NEW)
    assert isinstance(answers[2], InvalidInput | Missing)  # SQLite has no number that is too large for it
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 2


def test_ids_are_kept_as_they_are(gate: Gate) -> None:
    gate.open("mug", [99])
    ids = ["a", "A", "á", "a ", "%s", ":x", "'; --", "\N{SNOWMAN}", "%(given_sku)s", "{a,b}", "NULL", "é" * 128]
    claims = [Claim(Order(order_id, 1, order_id), "mug", 0, 1) for order_id in ids]
    assert gate.confirm_many(claims) == [NEW] * 12
    assert gate.confirm_many(claims) == [REPLAY] * 12
    rows = list(gate.each_order("mug"))
    assert [row.order_id for row in rows] == [row.customer_id for row in rows] == sorted(ids, key=str.encode)


# --- what happens meanwhile ---


def test_an_envelope_that_died_at_any_step_is_whole_or_not_there(
    every_database: str, open_gate: Callable[..., Gate]
) -> None:
    """The next call finishes it."""
    own, dying = open_gate(every_database), open_gate(every_database)
    seen = set()
    deaths = Deaths(dying)
    for step in deaths:
        sku = f"mug-{step}"
        claims = [replace(claimed(f"o-{number}", number % 2), sku=sku) for number in range(10)]
        own.open(sku, [3, 9])  # quota has to move
        deaths.at_step(dying.confirm_many, claims)
        sold = own.totals(sku).sold
        seen.add(sold)
        assert sold == own.confirmed_units(sku)
        assert own.confirm_many(claims) == [REPLAY if sold else NEW] * 10
        totals = own.totals(sku)
        assert (totals.quota, totals.sold, own.confirmed_units(sku)) == (12, 10, 10)
    assert seen == {0, 10}


def test_what_was_decided_from_rows_that_have_changed_since_is_not_written(gate: Gate) -> None:
    """The locks do not let it come so far; this is what holds without them."""
    gate.open("mug", [9, 9])
    decision = decide([claimed("a"), claimed("b", 1)], gate.totals("mug").segments, {}, are_all_rows=True)
    assert decision is not None
    confirm(gate, "c")
    with engine_of(gate).connect() as connection:  # to say what the gate would say
        statements = PostgresStatements() if connection.dialect.name == "postgresql" else SqliteStatements()
        connection.exec_driver_sql(statements.begin)
        assert not statements.store_many(connection, decision)
        connection.rollback()
    assert gate.totals("mug").sold == gate.confirmed_units("mug") == 1


def test_missing_tables_fail_the_whole_call(gate: Gate) -> None:
    gate.open("mug", [5, 5])
    with engine_of(gate).connect() as connection:  # an administrator's statement
        connection.exec_driver_sql("DROP TABLE segmented_orders")
    with pytest.raises(StoreRefused, match="segmented_orders"):
        gate.confirm_many([claimed("a"), claimed("b", 1)])
    assert gate.totals("mug").sold == 0
