from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.models import LedgerEntry, Order
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from segmented.models import OrderRecord
    from tests.support.contract.pools.shop import Shop


def test_every_change_is_one_entry_with_its_units_segment_and_token(shop: Shop) -> None:
    shop.open(6, 3)
    began_us = shop.now_us()
    first = shop.granted("a", 3, holder_id="h").fencing_token
    shop.let_lease_lapse("a", "h")
    second = shop.granted("a", 3, holder_id="second").fencing_token
    shop.check_tokens(began_us, first, second)
    shop.confirm("a")
    shop.reserved("b", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    shop.expire("b")
    shop.reserved("c")
    shop.cancel("c")
    shop.grant("d", 4, keep_refusal=True)
    entries = shop.ledger()
    units = ((0, 2), (1, 1))
    at = [entry.at_us for entry in entries]
    assert [replace(entry, chain="") for entry in entries] == [
        LedgerEntry(1, 1, "opened", at[0], None, 6, ((0, 2), (1, 2), (2, 2)), None, None, None, "3"),
        LedgerEntry(1, 2, "reserved", at[1], "a", 3, units, 0, first),
        LedgerEntry(1, 3, "granted", at[2], "a", 3, units, 1, second),
        LedgerEntry(1, 4, "confirmed", at[3], "a", 3, units, 1, second),
        LedgerEntry(1, 5, "reserved", at[4], "b", 2, ((1, 1), (2, 1)), 1, None),
        LedgerEntry(1, 6, "expired", at[5], "b", 2, ((1, 1), (2, 1)), 1, None),
        LedgerEntry(1, 7, "reserved", at[6], "c", 1, ((2, 1),), 2, None),
        LedgerEntry(1, 8, "cancelled", at[7], "c", 1, ((2, 1),), 2, None),
        LedgerEntry(1, 9, "refused", at[8], "d", 4, (), None, None),
    ]
    assert at == sorted(at)


def test_what_changes_nothing_leaves_no_entry(shop: Shop) -> None:
    shop.open(6, 1)
    shop.granted("a", 3, holder_id="h")
    shop.grant("a", 3, holder_id="h")
    shop.grant("a", 3, holder_id="second")
    shop.grant("b")
    shop.renew("a", holder_id="h")
    shop.expire("a")
    shop.cancel("a", "second")
    shop.open(6, 1)
    shop.grant("c", 9)
    assert shop.story() == [("opened", None), ("reserved", "a")]
    assert shop.state().sequence == 2


def test_the_ledger_is_read_in_pages_from_any_sequence_number(shop: Shop) -> None:
    shop.open(30, 3)
    for index in range(9):
        shop.reserved(f"o{index}")
    assert [entry.sequence for entry in shop.ledger(after=0, limit=4)] == [1, 2, 3, 4]
    assert [entry.sequence for entry in shop.ledger(after=8, limit=4)] == [9, 10]
    assert shop.ledger(after=10) == ()


def test_a_scan_finds_every_record(shop: Shop) -> None:
    shop.open(2_000, 3)
    shop.reserve_many(Order(f"order number {index}") for index in range(1_000))
    found: dict[str, OrderRecord] = {}
    cursor = -1
    while cursor != 0:
        cursor, records = shop.side.execute(op.ScanOrders(shop.sku, max(cursor, 0)))
        found |= {record.order_id: record for record in records}
    assert len(found) == 1_000
    assert sum(record.quantity for record in found.values()) == shop.state().reserved == 1_000
    asked = shop.side.execute(op.ReadOrders(shop.sku, ("order number 3", "nobody", "order number 1")))
    assert [record and record.order_id for record in asked] == ["order number 3", None, "order number 1"]
