"""The order database remembers how far the pool was when it last confirmed an order: what a later loss is found by."""

from __future__ import annotations

from segmented import MemoryStore, Order, Pool, Reserved
from segmented.orders import Claim, Gate, finish_reserved, open_gated, take_envelope, take_order
from segmented.orders.answers import SegmentRow
from segmented.stock.outbox import Outbox
from tests.support.pools.gating import NEW, claim, confirm
from tests.support.workers.envelope_till import BOTH


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


def test_an_envelope_and_a_transaction_keep_it_too(gate: Gate) -> None:
    gate.open("mug", [4, 2])
    claims = [Claim(Order(f"o-{number}", 1), "mug", number % 2, 1, sequence=9 - number) for number in range(4)]
    assert gate.confirm_many(claims) == [NEW] * 4
    assert [row.sequence for row in gate.totals("mug").segments] == [9, 8]
    with gate.transaction(**claim("in a transaction"), sequence=11):
        pass
    assert [row.sequence for row in gate.totals("mug").segments] == [11, 8]
    full = [Claim(Order(order_id, 1), "mug", 1, 1, sequence=10) for order_id in ("takes", "quota")]
    assert gate.confirm_many(full)[:1] == [NEW]
    assert [row.sequence for row in gate.totals("mug").segments] == [11, 10]


def test_a_confirm_for_which_quota_moves_keeps_it(gate: Gate) -> None:
    gate.open("mug", [0, 5])
    assert confirm(gate, "o-1", sequence=4) == NEW
    with gate.transaction(**claim("o-2") | {"quantity": 4}, sequence=6):
        pass
    assert gate.totals("mug").segments == (SegmentRow(0, 5, 5, 0, 1, 6), SegmentRow(1, 0, 0, 0, 1, 0))


def test_a_later_epoch_begins_without_one(gate: Gate) -> None:
    gate.open("mug", [5])
    confirm(gate, "o-1", sequence=4)
    for epoch in (2, 2):
        gate.stocking.raise_epoch("mug", 1, epoch=epoch, opened=None)
        assert gate.totals("mug").sequence == 0
    confirm(gate, "o-2", epoch=2, sequence=3)
    gate.stocking.raise_epoch("mug", 1, epoch=2, opened=None)  # a repeat of it loses nothing
    assert gate.totals("mug").sequence == 3


def test_every_way_to_sell_stores_the_change_that_took_the_units(gate: Gate) -> None:
    pool = Pool(MemoryStore(), "mug")
    open_gated(pool, gate, stock=9, segments=1)
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
