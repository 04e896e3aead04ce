"""The ledger is bounded without taking from the audit what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolDrifted
from segmented.models import Trimmed
from segmented.stock.audit import audit_plan
from segmented.stock.ledger import first_page_plan, trim_plan
from segmented.stock.repair import repair_plan
from tests.support.contract.pools.shop import LONG_MS, Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side


class TrimmedShop(Shop):
    def trim(self, keep: int) -> Trimmed:
        return self.side.run(trim_plan(op.TrimLedger(self.sku, keep)))

    def audit(self) -> AuditReport:
        return self.side.run(audit_plan(self.sku))[0]

    def first_page(self, after: int = 0) -> list[int]:
        return [entry.sequence for entry in self.side.run(first_page_plan(self.sku, after))]

    def sell(self, count: int) -> None:
        """Two changes an order."""
        for _ in range(count):
            order_id = f"o{self.state().sequence}"
            self.reserve(order_id, customer_id="ann")
            self.confirm(order_id)


@pytest.fixture
def shop(side: Side) -> Iterator[TrimmedShop]:
    """Four changes, one unit reserved and two sold, and a limit per customer."""
    shop = TrimmedShop(side, side.name())
    shop.open(1_000, 3, limit_per_customer=900)
    shop.reserve("kept", 1, customer_id="bob")
    shop.reserve("sold", 2, customer_id="ann")
    shop.confirm("sold")
    yield shop
    shop.check_books()


def test_a_trim_that_keeps_nothing_leaves_a_checkpoint(shop: TrimmedShop) -> None:
    before = shop.state()
    for _ in range(2):
        assert shop.trim(0) == Trimmed(5, 5, is_more_left=False)
    (entry,) = shop.ledger()
    assert (entry.kind, entry.sequence, entry.quantity) == ("checkpoint", 5, 997)
    assert dict(entry.parts) == dict(enumerate(before.stock))
    assert entry.note.split(" ")[:-1] == ["3", "1000", "0", "0", "0", "0", "1", "2", "0"]
    assert shop.audit().is_clean
    assert shop.audit().first_sequence == 5
    again = shop.reserve("sold", 2, customer_id="ann")
    assert (getattr(again, "state", None), getattr(again, "replay", None)) == ("confirmed", True)


def test_a_trim_keeps_at_least_what_it_was_told_to(shop: TrimmedShop) -> None:
    assert shop.trim(8) == Trimmed(1, 5, is_more_left=False)
    shop.sell(2)
    assert shop.trim(8) == Trimmed(1, 10, is_more_left=False)
    shop.sell(2)
    assert shop.trim(8) == Trimmed(5, 15, is_more_left=False)
    assert [entry.sequence for entry in shop.ledger()] == list(range(5, 16))
    assert [entry.sequence for entry in shop.ledger() if entry.kind == "checkpoint"] == [5, 10, 15]
    assert shop.audit().is_clean


def test_the_sale_goes_on_after_a_trim_and_is_audited(shop: TrimmedShop) -> None:
    shop.trim(0)
    shop.check_books()
    shop.cancel("kept")
    shop.check_books()
    shop.sell(3)
    shop.resize(5)
    shop.restock(7, "r1")
    shop.withdraw(2, "w1")
    shop.check_books()
    shop.trim(0)
    shop.check_books()
    shop.reserve("later", 3, customer_id="bob")
    shop.check_books()
    assert shop.audit().state.sequence == 17


def test_a_trimmed_ledger_is_read_from_its_first_entry(shop: TrimmedShop) -> None:
    assert (shop.first_page(), shop.first_page(after=3)) == ([1, 2, 3, 4], [4])
    shop.trim(0)
    shop.sell(1)
    assert [shop.first_page(after=after) for after in (0, 5, 7)] == [[5, 6, 7], [6, 7], []]
    bad: list[Any] = [-1, 1.0, True, "1"]
    for after in bad:
        with pytest.raises(InvalidInput, match="is not a whole number from 0"):
            shop.first_page(after=after)


def test_a_pool_whose_totals_do_not_add_up_is_not_trimmed(shop: TrimmedShop) -> None:
    shop.side.execute(op.MendNumber(shop.sku, "total", "available", 4, 998))
    with pytest.raises(PoolDrifted, match="do not add up: another client wrote to it"):
        shop.trim(0)
    shop.side.execute(op.MendNumber(shop.sku, "total", "available", 5, 997))
    shop.side.execute(op.MendNumber(shop.sku, "segment", "0", 6, 2))
    with pytest.raises(PoolDrifted):
        shop.trim(0)
    shop.side.run(repair_plan(shop.audit(), LONG_MS, yes=True))
    assert shop.trim(0).first_sequence == 9


def test_a_pool_with_a_unit_too_many_in_a_segment_and_in_the_total_is_not_trimmed(shop: TrimmedShop) -> None:
    units = shop.state().stock[0]
    shop.side.execute(op.MendNumber(shop.sku, "total", "available", 4, 998))
    shop.side.execute(op.MendNumber(shop.sku, "segment", "0", 5, units + 1))
    with pytest.raises(PoolDrifted, match="do not add up: another client wrote to it"):
        shop.trim(0)
    shop.side.run(repair_plan(shop.audit(), LONG_MS, yes=True))
    assert shop.state().available == 997


def test_a_closed_pool_is_trimmed_and_audited(shop: TrimmedShop) -> None:
    shop.close()
    shop.trim(0)
    (entry,) = shop.ledger()
    assert entry.note.split(" ")[:-1] == ["3", "1000", "0", "0", "0", "0", "1", "2", "1"]
    assert shop.audit().is_clean


def test_an_order_lost_from_before_the_trim_is_missed_in_the_sum(shop: TrimmedShop) -> None:
    shop.trim(0)
    raw = shop.side.execute(op.InspectOrders(shop.sku, ("sold",)))[0].raw
    state = shop.state().sequence
    shop.side.execute(op.MendRecord(shop.sku, "order", "sold", state, raw, None, 0))
    report = shop.audit()
    assert [drift.detail for drift in report.drift] == [
        "orders from before checkpoint 5 add up to 0 units confirmed, the checkpoint says 2"
    ]
    state = shop.state().sequence
    shop.side.execute(op.MendRecord(shop.sku, "order", "sold", state, None, raw, 0))


def test_a_hold_lost_before_the_trim_is_named_and_a_ledger_cut_without_a_checkpoint(plain_redis_side: Side) -> None:
    shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    shop.open(10, 2)
    shop.reserved("kept", 1)
    shop.trim(0)
    shop.reserved("more", 1)
    plain_redis_side.raw().zrem(shop.keys.holds, "kept")
    assert [(drift.kind, drift.order_id) for drift in shop.audit().drift] == [("leaked hold", "kept")]
    plain_redis_side.raw().xtrim(shop.keys.ledger, maxlen=1, approximate=False)
    assert "entry 3 is missing" in [drift.detail for drift in shop.audit().drift]


def test_a_checkpoint_that_was_changed_breaks_the_chain(plain_redis_side: Side) -> None:
    shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    shop.open(10, 2)
    shop.reserved("kept", 1)
    shop.trim(0)
    server, key = plain_redis_side.raw(), shop.keys.ledger
    (entry,) = cast("list[tuple[str, dict[str, str]]]", server.xrange(key))
    entry_id, fields = entry
    server.delete(key)
    fields["lines"] = fields["lines"].replace("\t9", "\t8")
    server.xadd(key, cast("dict[Any, Any]", fields), id=entry_id)
    report = shop.audit()
    assert "entry 3 is not what was written, or follows another" in [drift.detail for drift in report.drift]


def test_ten_thousand_entries_at_most_are_deleted_in_one_step(plain_redis_side: Side) -> None:
    shop = TrimmedShop(plain_redis_side, plain_redis_side.name())
    shop.open(100_000, 1)
    pipeline = plain_redis_side.raw().pipeline(transaction=False)
    for index in range(2, 10_501):
        pipeline.xadd(shop.keys.ledger, {"kind": "closed", "at_us": "1", "lines": "\t1", "chain": "x"}, id=f"1-{index}")
    pipeline.hset(shop.keys.meta, "sequence", 10_500)
    pipeline.execute()
    first = plain_redis_side.execute(op.TrimLedger(shop.sku, 0))
    assert (first, plain_redis_side.raw().xlen(shop.keys.ledger)) == (Trimmed(10_501, 10_501, is_more_left=True), 501)
    assert plain_redis_side.execute(op.TrimLedger(shop.sku, 0)) == Trimmed(10_501, 10_501, is_more_left=False)
    assert plain_redis_side.raw().xlen(shop.keys.ledger) == 1
