"""The order database: opened, confirmed, many orders in a call, transactions."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Final
from unicodedata import normalize

import pytest
from sqlalchemy import func, select

from segmented import MemoryStore, Pool, Reserved
from segmented.errors import InvalidInput, OrderMismatch, StoreRefused
from segmented.models import Order, Shard
from segmented.orders import Claim, Gate, connect, take_envelope
from segmented.orders.answers import (
    AlreadyConfirmed,
    AlreadyOpen,
    Confirmed,
    EpochChanged,
    Missing,
    Opened,
    SegmentRow,
    SegmentTotals,
    SoldOut,
    Superseded,
    Voided,
)
from segmented.orders.deciding import decide
from segmented.orders.engine import STATEMENTS
from segmented.orders.opening import restock_gated
from segmented.orders.sale import finish_reserved, take_order
from segmented.stock import ShardedPool
from segmented.stock.outbox import Outbox
from tests.support.dying import Deaths
from tests.support.pools.engines import engine_of
from tests.support.pools.gating import NEW, REPLAY, confirm, hundred, on_mariadb_too, one_by_one, sold, stored
from tests.support.workers.envelope_till import BOTH


@pytest.fixture
def own_gate(every_database: str, open_gate: Callable[..., Gate]) -> Gate:
    return open_gate(every_database)


# --- tables and rows ---


def test_opening_stores_a_row_a_segment(own_gate: Gate) -> None:
    assert own_gate.open("mug", [3, 0, 2], epoch=4) == Opened(stock=5, segment_count=3, epoch=4)
    rows = (SegmentRow(0, 3, 0, 0, 4), SegmentRow(1, 0, 0, 0, 4), SegmentRow(2, 2, 0, 0, 4))
    totals = own_gate.totals("mug")
    assert totals == SegmentTotals(quota=5, sold=0, segments=rows, sale_id=totals.sale_id)


@on_mariadb_too
def test_opening_again_changes_nothing_and_says_what_is_there(own_gate: Gate) -> None:
    own_gate.open("mug", [3, 2], epoch=4)
    confirm(own_gate, "o-1", epoch=4)
    before = own_gate.totals("mug")
    assert own_gate.open("mug", [9, 9, 9], epoch=5) == AlreadyOpen(stock=5, segment_count=2, sold=1, epoch=4)
    assert own_gate.totals("mug") == before


def test_an_order_behind_a_thousand_that_do_not_exist_is_found(own_gate: Gate) -> None:
    own_gate.open("mug", [1])
    confirm(own_gate, "last")
    found = own_gate.orders("mug", [*(f"none-{number}" for number in range(1_000)), "last"])
    assert [(row.order_id, row.quantity) for row in found.values()] == [("last", 1)]


def test_a_sku_that_was_never_opened_has_nothing(own_gate: Gate) -> None:
    assert own_gate.totals("mug") == SegmentTotals(quota=0, sold=0, segments=())
    assert own_gate.confirmed_units("mug") == 0
    assert list(own_gate.each_order("mug")) == []


def test_an_opening_that_makes_no_sense_is_refused(own_gate: Gate) -> None:
    wrong: list[tuple[str, list[int], int, str]] = [
        ("mug", [], 1, "0 segments"),
        ("mug", [1] * 4_097, 1, "4097 segments"),
        ("mug", [1, -1], 1, "must not be negative"),
        ("mug", [10**12, 1], 1, "nor more than"),
        ("mug", [1], 0, "epoch 0"),
        ("", [1], 1, "sku ''"),
        ("m" * 257, [1], 1, "1 to 256 characters"),
    ]
    for sku, quotas, epoch, said in wrong:
        with pytest.raises(InvalidInput, match=said):
            own_gate.open(sku, quotas, epoch)
        assert own_gate.totals(sku).segments == ()


# --- confirm ---


def test_a_confirmed_order_is_stored_with_everything_and_moves_sold(own_gate: Gate) -> None:
    own_gate.open("mug", [5, 5])
    assert confirm(own_gate, "o-1", segment=1, quantity=3, fence=2**33, customer_id="ann") == NEW
    row = own_gate.orders("mug", ["o-1"])["o-1"]
    assert (row.state, row.quantity, row.segment, row.fence) == ("confirmed", 3, 1, 2**33)
    assert (row.sku, row.epoch, row.customer_id) == ("mug", 1, "ann")
    assert own_gate.totals("mug").segments == (SegmentRow(0, 5, 0, 0, 1), SegmentRow(1, 5, 3, 2**33, 1))
    assert own_gate.confirmed_units("mug") == 3


@on_mariadb_too
def test_the_time_of_an_order_is_the_databases_own(own_gate: Gate, every_database: str) -> None:
    own_gate.open("mug", [5])
    engine = connect(every_database)

    def clock() -> datetime:
        with engine.connect() as connection:
            told: datetime = connection.execute(select(func.current_timestamp())).scalar_one()
        return told.replace(tzinfo=told.tzinfo or UTC)

    before = clock()
    confirm(own_gate, "o-1")
    made = own_gate.orders("mug", ["o-1"])["o-1"].created_at
    assert made.tzinfo is UTC
    assert before.replace(microsecond=0) <= made
    assert made.replace(microsecond=0) <= clock()
    engine.dispose()


def test_a_repeat_is_a_replay_and_sells_nothing_again(own_gate: Gate) -> None:
    own_gate.open("mug", [5, 5])
    assert confirm(own_gate, "o-1", quantity=2, fence=7) == NEW
    assert confirm(own_gate, "o-1", quantity=2, fence=7) == REPLAY
    assert sold(own_gate) == {0: 2, 1: 0}


def test_a_repeat_from_another_segment_epoch_or_fence_is_a_replay_too(own_gate: Gate) -> None:
    own_gate.open("mug", [5, 5])
    confirm(own_gate, "o-1", quantity=2, fence=7)
    assert confirm(own_gate, "o-1", quantity=2, segment=1, fence=9) == REPLAY
    assert confirm(own_gate, "o-1", quantity=2, fence=3) == REPLAY
    assert confirm(own_gate, "o-1", quantity=2, epoch=2) == REPLAY
    assert confirm(own_gate, "o-1", quantity=2, segment=8) == REPLAY
    assert own_gate.totals("mug").segments == (SegmentRow(0, 5, 2, 7, 1), SegmentRow(1, 5, 0, 0, 1))


def test_a_repeat_is_a_replay_when_everything_is_sold(own_gate: Gate) -> None:
    own_gate.open("mug", [1])
    confirm(own_gate, "o-1")
    assert confirm(own_gate, "o-1") == REPLAY
    assert confirm(own_gate, "o-2") == SoldOut(total=1, sold=1)


def test_the_same_id_with_other_content_is_an_error_and_changes_nothing(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    confirm(own_gate, "o-1", customer_id="ann")
    with pytest.raises(OrderMismatch, match="'o-1' exists with other content: quantity 1 is stored, 2 was given"):
        confirm(own_gate, "o-1", quantity=2)
    with pytest.raises(OrderMismatch, match="another customer is stored, bob was given"):
        confirm(own_gate, "o-1", customer_id="bob")
    assert confirm(own_gate, "o-1") == REPLAY
    assert sold(own_gate) == {0: 1}


def test_the_same_id_under_another_sku_is_another_order(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    own_gate.open("cup", [5])
    assert confirm(own_gate, "o-1", quantity=1) == NEW
    assert confirm(own_gate, "o-1", quantity=2, sku="cup") == NEW
    assert (own_gate.confirmed_units("mug"), own_gate.confirmed_units("cup")) == (1, 2)


def test_a_fence_only_grows_and_an_overtaken_holder_changes_nothing(own_gate: Gate) -> None:
    own_gate.open("mug", [5, 5])
    assert confirm(own_gate, "o-1", fence=7) == NEW
    assert confirm(own_gate, "o-2", fence=7) == NEW
    assert confirm(own_gate, "o-3", fence=6) == Superseded(fence=7)
    assert confirm(own_gate, "o-3", fence=8) == NEW
    assert confirm(own_gate, "o-4", fence=7, segment=1) == NEW
    assert own_gate.totals("mug").segments == (SegmentRow(0, 5, 3, 8, 1), SegmentRow(1, 5, 1, 7, 1))
    assert set(own_gate.orders("mug", ["o-1", "o-2", "o-3", "o-4", "o-5"])) == {"o-1", "o-2", "o-3", "o-4"}


def test_without_a_fence_orders_of_a_segment_confirm_in_any_order(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    confirm(own_gate, "o-1", fence=7)
    assert confirm(own_gate, "o-2") == NEW
    assert own_gate.totals("mug").segments == (SegmentRow(0, 5, 2, 7, 1),)
    assert own_gate.orders("mug", ["o-2"])["o-2"].fence is None


def test_another_epoch_a_missing_segment_and_an_old_fence_come_before_sold_out(own_gate: Gate) -> None:
    own_gate.open("mug", [1], epoch=2)
    confirm(own_gate, "o-1", epoch=2, fence=7)
    assert confirm(own_gate, "o-2", epoch=1, fence=1) == EpochChanged(epoch=2)
    assert confirm(own_gate, "o-2", epoch=3) == EpochChanged(epoch=2)
    assert confirm(own_gate, "o-2", epoch=2, segment=1) == Missing()
    assert confirm(own_gate, "o-2", epoch=2, sku="cup") == Missing()
    assert confirm(own_gate, "o-2", epoch=2, fence=6) == Superseded(fence=7)
    assert confirm(own_gate, "o-2", epoch=2, fence=8) == SoldOut(total=1, sold=1)
    assert own_gate.totals("mug").segments == (SegmentRow(0, 1, 1, 7, 2),)
    assert own_gate.orders("mug", ["o-2"]) == {}


@on_mariadb_too
def test_a_full_segment_gets_quota_from_the_richest_with_slack(own_gate: Gate) -> None:
    own_gate.open("mug", [1, 10, 4])
    confirm(own_gate, "o-1")
    assert confirm(own_gate, "o-2") == NEW
    assert own_gate.totals("mug").segments == (
        SegmentRow(0, 6, 2, 0, 1),
        SegmentRow(1, 5, 0, 0, 1),
        SegmentRow(2, 4, 0, 0, 1),
    )


def test_an_order_larger_than_any_segment_gathers_from_all(own_gate: Gate) -> None:
    own_gate.open("mug", [1] * 20)
    assert confirm(own_gate, "o-1", quantity=15, segment=3) == NEW
    assert confirm(own_gate, "o-2", quantity=6, segment=3) == SoldOut(total=20, sold=15)
    assert confirm(own_gate, "o-3", quantity=5, segment=19) == NEW
    totals = own_gate.totals("mug")
    assert (totals.quota, totals.sold, own_gate.confirmed_units("mug")) == (20, 20, 20)


def test_moving_quota_obeys_fence_and_epoch_too(own_gate: Gate) -> None:
    own_gate.open("mug", [1, 9])
    confirm(own_gate, "o-1", fence=7)
    assert confirm(own_gate, "o-2", fence=6) == Superseded(fence=7)
    assert confirm(own_gate, "o-2", fence=7, epoch=2) == EpochChanged(epoch=1)
    assert sold(own_gate) == {0: 1, 1: 0}


@on_mariadb_too
def test_ids_are_kept_as_they_are(own_gate: Gate) -> None:
    own_gate.open("mug", [9])
    ids = ["a", "A", "á", "a ", "%s", ":x", "'; --", "\N{SNOWMAN}", "%(given_sku)s"]
    assert [confirm(own_gate, order_id) for order_id in ids] == [NEW] * 9
    assert [row.order_id for row in own_gate.each_order("mug")] == sorted(ids, key=str.encode)


# --- void ---


def test_a_void_order_can_never_be_confirmed(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    assert own_gate.void(order_id="o-1", sku="mug", quantity=2) == Voided(replay=False)
    assert own_gate.void(order_id="o-1", sku="mug", quantity=2) == Voided(replay=True)
    assert confirm(own_gate, "o-1", quantity=2) == Voided(replay=True)
    row = own_gate.orders("mug", ["o-1"])["o-1"]
    assert (row.state, row.quantity, row.segment, row.fence, row.epoch) == ("void", 2, None, None, None)
    assert (sold(own_gate), own_gate.confirmed_units("mug")) == ({0: 0}, 0)


@on_mariadb_too
def test_a_confirmed_order_cannot_be_voided(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    confirm(own_gate, "o-1", quantity=2)
    assert own_gate.void(order_id="o-1", sku="mug", quantity=2) == AlreadyConfirmed()
    assert own_gate.orders("mug", ["o-1"])["o-1"].state == "confirmed"
    with pytest.raises(OrderMismatch):
        own_gate.void(order_id="o-1", sku="mug", quantity=1)


# --- reading ---


def test_orders_are_found_by_id_in_any_number(own_gate: Gate) -> None:
    own_gate.open("mug", [2_500])
    assert all(confirm(own_gate, f"o-{number}") == NEW for number in range(40))
    found = own_gate.orders("mug", (f"o-{number}" for number in range(2_100)))
    assert set(found) == {f"o-{number}" for number in range(40)}


def test_an_order_is_decided_once_it_is_sold_or_void(own_gate: Gate) -> None:
    own_gate.open("mug", [5])
    confirm(own_gate, "sold")
    own_gate.void(order_id="void", sku="mug", quantity=1)
    asked = [("mug", "sold"), ("mug", "void"), ("mug", "other"), ("cup", "sold")]
    assert [own_gate.is_decided(sku, order_id) for sku, order_id in asked] == [True, True, False, False]


def test_all_orders_are_read_a_page_at_a_time(own_gate: Gate) -> None:
    own_gate.open("mug", [9])
    for order_id in "gcafbed":
        confirm(own_gate, order_id)
    for page_size in (1, 3, 4, 7, 8):
        assert [row.order_id for row in own_gate.each_order("mug", page_size=page_size)] == list("abcdefg")


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


def check_as_if_alone(own_gate: Gate, claims: list[Claim], quotas: list[int]) -> list[object]:
    """Confirm the claims together and, of another sku, one by one; both get the same and leave the same rows."""
    alone = [replace(claim, sku="cup") for claim in claims]
    for sku in ("mug", "cup"):
        own_gate.open(sku, quotas)
    together = shown(own_gate.confirm_many(claims))
    assert together == shown(one_by_one(own_gate, alone))
    assert stored(own_gate, "mug") == stored(own_gate, "cup")
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug")
    return together


# --- as if alone ---


def test_an_envelope_that_comes_again_is_a_replay_and_sells_nothing_again(own_gate: Gate) -> None:
    own_gate.open("mug", [60] * 4)
    own_gate.confirm_many(hundred())
    before = own_gate.totals("mug")
    assert own_gate.confirm_many(hundred()) == [REPLAY] * 100
    assert own_gate.confirm_many([replace(claim, segment=9, epoch=7, fence=0) for claim in hundred()]) == [REPLAY] * 100
    assert own_gate.totals("mug") == before


def test_only_the_rest_of_an_envelope_is_stored_when_some_of_it_was(own_gate: Gate) -> None:
    own_gate.open("mug", [60] * 4)
    own_gate.confirm_many(hundred()[:34])
    assert own_gate.confirm_many(hundred()) == [REPLAY] * 34 + [NEW] * 66
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 199


def test_a_mismatch_stands_in_its_place_and_spoils_nothing(own_gate: Gate) -> None:
    own_gate.open("mug", [60] * 4)
    confirm(own_gate, "o-41", quantity=7)
    answers = own_gate.confirm_many(hundred())
    assert isinstance(answers[41], OrderMismatch)
    assert str(answers[41]) == "order 'o-41' exists with other content: quantity 7 is stored, 3 was given"
    assert answers[:41] + answers[42:] == [NEW] * 99
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 199 - 3 + 7


def test_a_void_order_is_not_confirmed_and_spoils_nothing(own_gate: Gate) -> None:
    own_gate.open("mug", [60] * 4)
    own_gate.void(order_id="o-41", sku="mug", quantity=3)
    answers = own_gate.confirm_many(hundred())
    assert answers[41] == Voided(replay=True)
    assert answers[:41] + answers[42:] == [NEW] * 99
    assert own_gate.orders("mug", ["o-41"])["o-41"].state == "void"
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 199 - 3


def test_quota_moves_to_a_full_segment_as_it_does_for_orders_alone(own_gate: Gate) -> None:
    answers = check_as_if_alone(own_gate, hundred(), [0, 10, 150, 60])
    assert answers == [NEW] * 100
    assert own_gate.totals("mug").quota == 220


def test_the_last_units_go_to_the_same_orders_as_alone_and_the_rest_is_sold_out(own_gate: Gate) -> None:
    answers = check_as_if_alone(own_gate, hundred(), [7, 0, 90, 3])
    assert answers[:48] == [NEW] * 48
    assert SoldOut(total=100, sold=100) in answers
    assert own_gate.totals("mug").sold == 100


def test_what_refuses_one_order_is_told_and_the_others_are_confirmed(own_gate: Gate) -> None:
    own_gate.open("mug", [9, 9])
    confirm(own_gate, "o-1", fence=7)
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
    assert own_gate.confirm_many(claims) == refused
    assert own_gate.totals("mug").segments == (SegmentRow(0, 9, 3, 9, 1), SegmentRow(1, 9, 1, 1, 1))
    assert own_gate.confirm_many([replace(claim, sku="cup") for claim in claims]) == [Missing()] * 7


def test_an_id_that_comes_twice_is_a_repeat(own_gate: Gate) -> None:
    own_gate.open("mug", [9, 9])
    answers = own_gate.confirm_many([claimed("a"), claimed("b"), claimed("a", 1), claimed("a", 0, 2), claimed("b")])
    assert [type(answer) for answer in answers] == [Confirmed, Confirmed, Confirmed, OrderMismatch, Confirmed]
    assert (answers[:3], answers[4]) == ([NEW, NEW, REPLAY], REPLAY)
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 2


def test_of_an_order_that_took_what_was_left_any_smaller_number_is_a_repeat(own_gate: Gate) -> None:
    own_gate.open("mug", [9])
    confirm(own_gate, "a", quantity=2)
    assert own_gate.confirm_many([Claim(Order("a", 3), "mug", 0, 1, asked=4)]) == [REPLAY]


# --- what an envelope may hold ---


def test_a_thousand_orders_fit_and_one_more_does_not(own_gate: Gate) -> None:
    own_gate.open("mug", [2_000] * 3)
    claims = [claimed(f"o-{number}", number % 3) for number in range(1_001)]
    with pytest.raises(InvalidInput, match="1,001 orders are too many for one transaction: up to 1,000 are possible"):
        own_gate.confirm_many(claims)
    assert own_gate.totals("mug").sold == 0
    assert own_gate.confirm_many(iter(claims[:1_000])) == [NEW] * 1_000
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 1_000


def test_a_value_that_no_database_can_hold_is_refused_in_its_place(own_gate: Gate) -> None:
    own_gate.open("mug", [9])
    answers = own_gate.confirm_many([claimed("a"), claimed("b", fence=2**70), claimed("c", 2**40), claimed("d")])
    assert isinstance(answers[1], InvalidInput)
    assert (answers[0], answers[3]) == (NEW, NEW)
    assert isinstance(answers[2], InvalidInput | Missing)  # SQLite has no number that is too large for it
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 2


def test_ids_of_an_envelope_are_kept_as_they_are(own_gate: Gate) -> None:
    own_gate.open("mug", [99])
    ids = ["a", "A", "á", "a ", "%s", ":x", "'; --", "\N{SNOWMAN}", "%(given_sku)s", "{a,b}", "NULL", "é" * 128]
    claims = [Claim(Order(order_id, 1, order_id), "mug", 0, 1) for order_id in ids]
    assert own_gate.confirm_many(claims) == [NEW] * 12
    assert own_gate.confirm_many(claims) == [REPLAY] * 12
    rows = list(own_gate.each_order("mug"))
    assert [row.order_id for row in rows] == [row.customer_id for row in rows] == sorted(ids, key=str.encode)


# --- what happens meanwhile ---


@on_mariadb_too
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


@on_mariadb_too
def test_what_was_decided_from_rows_that_have_changed_since_is_not_written(own_gate: Gate) -> None:
    """The locks do not let it come so far; this is what holds without them."""
    own_gate.open("mug", [9, 9])
    decision = decide([claimed("a"), claimed("b", 1)], own_gate.totals("mug").segments, {}, are_all_rows=True)
    assert decision is not None
    confirm(own_gate, "c")
    with engine_of(own_gate).connect() as connection:  # to say what the gate would say
        statements = STATEMENTS[connection.dialect.name]()
        connection.exec_driver_sql(statements.begin)
        assert not statements.store_many(connection, decision)
        connection.rollback()
    assert own_gate.totals("mug").sold == own_gate.confirmed_units("mug") == 1


def test_missing_tables_fail_the_whole_call(own_gate: Gate) -> None:
    own_gate.open("mug", [5, 5])
    with engine_of(own_gate).connect() as connection:  # an administrator's statement
        connection.exec_driver_sql("DROP TABLE segmented_orders")
    with pytest.raises(StoreRefused, match="segmented_orders"):
        own_gate.confirm_many([claimed("a"), claimed("b", 1)])
    assert own_gate.totals("mug").sold == 0


def test_every_way_to_sell_stores_the_change_that_took_the_units(gate: Gate) -> None:
    pool = Pool(MemoryStore(), "mug")
    Pool(pool.store, pool.sku, gate=gate).open(stock=9, segments=1)
    take_order(pool, gate, Order("granted"), timeout=0)
    assert gate.totals("mug").sequence == pool.state().sequence - 1  # the confirm in the pool comes after
    reserved = pool.reserve(Order("reserved"))
    assert isinstance(reserved, Reserved)
    finish_reserved(pool, gate, Order("reserved"), reserved)
    assert gate.totals("mug").sequence == reserved.sequence == pool.state().sequence - 1
    for decides in BOTH:
        shop = Pool(pool.store, "mug", outbox=Outbox(decides=decides))
        ids = [f"{decides} {number}" for number in range(2)]
        shop.submit_many([Order(order_id) for order_id in ids])
        take_envelope(shop, ids, gate=gate)
        assert gate.totals("mug").sequence == pool.state().sequence - 1
    assert gate.totals("mug").sold == 6


@pytest.fixture
def empty_gate(sqlite_url: str) -> Gate:
    made = Gate(connect(sqlite_url))
    made.create()
    return made


def in_shards(empty_gate: Gate, sku: str = "mug") -> None:
    ShardedPool(MemoryStore(), sku, gate=empty_gate).open(stock=10, segments=4, shards=2)


def test_shards_with_other_names_are_not_opened_beside_those_that_sold(empty_gate: Gate) -> None:
    empty_gate.open(Shard("mug", 1, "zz"), [5])
    with pytest.raises(InvalidInput, match=r"^the order database knows 'mug' in other shards, so it is not opened"):
        in_shards(empty_gate)


TEXT: Final = "Caf\u00e9\u00a07"


class Mixed(str, Enum):  # noqa: UP042  # its str() is its name
    MEMBER = TEXT


class Plain(StrEnum):
    MEMBER = TEXT


@pytest.mark.parametrize("form", [Mixed.MEMBER, Plain.MEMBER, normalize("NFD", TEXT)], ids=["enum", "StrEnum", "NFD"])
def test_an_order_and_a_change_count_once_in_redis_and_in_sql(order_database: str, form: str) -> None:
    with Gate(order_database) as gate:
        store = MemoryStore()
        Pool(store, form, gate=gate).open(stock=10, segments=2)
        pools = [Pool(store, one, gate=gate) for one in (form, TEXT)]
        for pool, other in zip(pools, (TEXT, form), strict=True):
            pool.reserve(Order(other, 1, other))
            pool.confirm(form)
            pool.confirm_many([other])
            pool.restock(5, restock_id=other)
            restock_gated(pool, gate, 5, restock_id=form)
        assert pools[0].available() == 14
        assert gate.confirmed_units(TEXT) == 1
        assert gate.is_decided(form, form)
        assert list(gate.orders(form, [form])) == [TEXT]
        answers = [gate.confirm(order_id="o-2", sku=one, segment=0, quantity=1, epoch=1) for one in (form, TEXT)]
        assert answers == [Confirmed(replay=False), Confirmed(replay=True)]


def test_rows_keep_the_highest_sequence_of_their_confirmed_orders(gate: Gate) -> None:
    gate.open("mug", [9, 9])
    for order_id, said in (
        ("first", {"sequence": 5}),
        ("lower", {"sequence": 3}),
        ("unknown", {}),
        ("granted", {"sequence": 7, "fence": 4}),
        ("refused", {"sequence": 99, "fence": 2}),
        ("first", {"sequence": 99}),
        ("another epoch", {"sequence": 99, "epoch": 2}),
    ):
        confirm(gate, order_id, **said)
    assert gate.totals("mug").segments == (SegmentRow(0, 9, 4, 4, 1, 7), SegmentRow(1, 9, 0, 0, 1, 0))
    confirm(gate, "other", segment=1, sequence=6)
    assert gate.totals("mug").sequence == 7
