"""Mending, on every store in both colours: damage is done by the same operations, with a lie about what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.models import Differing, Inspected, Mended, Outrun, Sound
from segmented.stock.audit import audit_plan
from segmented.stock.repair import Repair, RepairReport, repair_plan
from tests.support.contract.pools.shop import LONG_MS, Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models.pools import NumberKind
    from segmented.stock import AuditReport
    from tests.fixtures.stores import Side


class Damaged(Shop):
    """A pool of ten units of which two are reserved and three sold, with two restocks and a limit per customer."""

    def sell_a_little(self) -> None:
        self.open(10, 2, limit_per_customer=9)
        self.reserve("kept", 2, customer_id="ann")
        self.grant("sold", 3, customer_id="bob")
        self.confirm("sold")
        self.restock(4, "r1")
        self.withdraw(1, "w1")

    @property
    def sequence(self) -> int:
        return self.state().sequence

    def spoil(self, kind: NumberKind, name: str, value: int) -> None:
        answer = self.side.execute(op.MendNumber(self.sku, kind, name, self.sequence, value))
        assert isinstance(answer, Mended), answer

    def rewrite(self, order_id: str, raw: str | None) -> None:
        """Write any record; its hold goes with it."""
        seen = self.inspected(order_id).raw
        answer = self.side.execute(op.MendRecord(self.sku, "order", order_id, self.sequence, seen, raw, LONG_MS))
        assert isinstance(answer, Mended), answer

    def rewrite_change(self, change_id: str, seen: str | None, note: str | None) -> None:
        answer = self.side.execute(op.MendRecord(self.sku, "change", change_id, self.sequence, seen, note, 0))
        assert isinstance(answer, Mended), answer

    def inspected(self, order_id: str) -> Inspected:
        return self.side.execute(op.InspectOrders(self.sku, (order_id,)))[0]

    def audit(self) -> AuditReport:
        return self.side.run(audit_plan(self.sku))[0]

    def repair(self, report: AuditReport, *, yes: bool = True) -> RepairReport:
        return self.side.run(repair_plan(report, LONG_MS, yes=yes))

    def mended(self, expected: list[tuple[str, str | None, str]]) -> list[Repair]:
        """Audit, expect this drift, repair it; nothing may be left, and nothing to do for a second repair."""
        report = self.audit()
        assert [(drift.kind, drift.order_id, drift.about) for drift in report.drift] == expected
        before = self.sequence
        told = self.repair(report, yes=False)
        assert [repair.is_done for repair in told.repairs] == [False] * len(expected)
        assert (self.sequence, told.after.drift) == (before, report.drift)
        done = self.repair(report)
        assert [repair.is_done for repair in done.repairs] == [True] * len(expected)
        assert done.is_clean
        after = self.sequence
        again = self.repair(report)
        assert again.done_count == 0
        assert all(repair.detail.endswith("there is nothing left to mend") for repair in again.repairs)
        assert self.sequence == after
        assert {entry.kind for entry in self.ledger(before)} == {"repaired"}
        return list(done.repairs)


@pytest.fixture
def shop(side: Side) -> Iterator[Damaged]:
    shop = Damaged(side, side.name())
    shop.sell_a_little()
    shop.check_books()
    yield shop
    shop.check_books()


def test_a_total_is_mended_by_the_difference(shop: Damaged) -> None:
    total, total_sum = ("foreign write", None, "total"), ("foreign write", None, "sum")
    wrong = {"reserved": 9, "confirmed": 2, "opened": 11, "restocked": 0, "withdrawn": 3, "available": 7}
    for name, value in wrong.items():
        before = shop.state()
        shop.spoil("total", name, value)
        repairs = shop.mended([total, total_sum])
        assert repairs[0].detail.startswith(f"{name} is {value}, the ledger says ")
        assert shop.totals() == (before.available, before.reserved, before.confirmed), name
        assert shop.ledger()[-1].note == f"total {name} by {getattr(before, name) - value}"
    shop.spoil("total", "closed", 1)
    assert shop.state().is_closed
    shop.mended([total])
    assert not shop.state().is_closed


def test_segments_and_customers_are_mended_each_by_its_difference(shop: Damaged) -> None:
    before = shop.state().stock
    shop.spoil("segment", "0", 40)
    shop.spoil("segment", "1", 0)
    shop.mended([("foreign write", None, "sum"), *[("foreign write", None, "segment")] * 2])
    assert shop.state().stock == before
    for customer_id, units in (("ann", 0), ("bob", 8), ("eve", 1)):
        shop.spoil("customer", customer_id, units)
    shop.mended([("foreign write", None, "customer")] * 3)
    assert shop.side.execute(op.ReadCustomers(shop.sku, ("ann", "bob", "eve", "zoe")))[1] == (2, 3, 0, 0)


def test_a_lost_record_is_written_again_with_its_hold(shop: Damaged) -> None:
    shop.reserve("other", 1, customer_id="cy")  # a pool that lost all its records is frozen
    before = shop.record("kept"), shop.record("sold")
    shop.rewrite("kept", None)
    shop.rewrite("sold", None)
    repairs = shop.mended([("lost", "kept", "order"), ("lost", "sold", "order")])
    assert [repair.order_id for repair in repairs] == ["kept", "sold"]
    kept, sold = shop.record("kept"), shop.record("sold")
    assert before[0] is not None
    assert kept is not None
    assert (kept.state, kept.quantity, kept.parts, kept.customer_id) == ("reserved", 2, before[0].parts, "ann")
    assert kept.hold_until_ms is not None
    assert sold is not None
    assert (sold.state, sold.quantity, sold.hold_until_ms, sold.holder_id) == ("confirmed", 3, None, None)
    shop.cancel("kept")


def test_a_record_that_was_changed_is_as_the_ledger_says_again(shop: Damaged) -> None:
    """And one from nowhere is removed with its hold."""
    before = shop.inspected("sold").raw
    assert before is not None
    shop.rewrite("sold", before.replace("\t3\t", "\t5\t", 1))
    shop.mended([("foreign write", "sold", "order")])
    assert shop.inspected("sold").raw == before
    shop.rewrite("stray", "r\t3\t0\t4")
    shop.mended([("foreign write", "stray", "order")])
    assert shop.inspected("stray") == Inspected("stray", None, None)


def test_notes_of_restocks_are_mended(shop: Damaged) -> None:
    shop.rewrite_change("r1", "restocked 4 5", None)
    shop.rewrite_change("w1", "withdrawn 1 6", "withdrawn 7 6")
    shop.rewrite_change("r9", None, "restocked 1 3")
    shop.mended([("lost", None, "change"), *[("foreign write", None, "change")] * 2])
    assert dict(shop.side.execute(op.ScanChanges(shop.sku, 0))[1]) == {"r1": "restocked 4 5", "w1": "withdrawn 1 6"}
    assert getattr(shop.restock(4, "r1"), "replay", None) is True


def test_only_what_the_report_names_is_mended(shop: Damaged) -> None:
    shop.spoil("customer", "ann", 1)
    report = shop.audit()
    shop.spoil("customer", "bob", 1)
    done = shop.repair(report)
    assert (done.done_count, done.after.drift_count, done.is_clean) == (1, 1, False)
    assert shop.repair(shop.audit()).is_clean


def test_a_number_is_mended_by_what_it_should_be_now(shop: Damaged) -> None:
    state = shop.state()
    shop.spoil("total", "reserved", 50)
    after = shop.sequence
    shop.reserve("later", 1, customer_id="ann")
    shop.cancel("kept")
    shop.reserve("more", 3, customer_id="bob")
    shop.confirm("more")
    for name in ("available", "reserved", "confirmed", "restocked", "withdrawn"):
        right = op.MendNumber(shop.sku, "total", name, after, getattr(state, name))
        assert isinstance(shop.side.execute(right), Mended if name == "reserved" else Sound)
        assert shop.side.execute(right) == Sound()
    for segment, units in enumerate(state.stock):
        assert shop.side.execute(op.MendNumber(shop.sku, "segment", str(segment), after, units)) == Sound()
    for customer_id, units in (("ann", 2), ("bob", 3)):
        assert shop.side.execute(op.MendNumber(shop.sku, "customer", customer_id, after, units)) == Sound()


def test_a_number_is_not_mended_past_a_change_that_spreads_the_units_anew(shop: Damaged) -> None:
    after = shop.sequence
    shop.resize(3)
    shop.close()
    assert shop.side.execute(op.MendNumber(shop.sku, "segment", "0", after, 99)) == Outrun()
    assert shop.side.execute(op.MendNumber(shop.sku, "total", "segment_count", after, 9)) == Outrun()
    assert shop.side.execute(op.MendNumber(shop.sku, "total", "closed", after, 0)) == Outrun()
    assert shop.side.execute(op.MendNumber(shop.sku, "total", "opened", after, 10)) == Sound()


def test_a_record_is_not_mended_once_the_ledger_has_gone_on_with_it(shop: Damaged) -> None:
    """Nor is one that is neither as it was seen nor as it is wanted."""
    after, raw = shop.sequence, shop.inspected("kept").raw
    mend = op.MendRecord(shop.sku, "order", "kept", after, "c\t1\t0\t2", None, 1)
    assert shop.side.execute(mend) == Differing()
    assert shop.side.execute(op.MendRecord(shop.sku, "order", "kept", after, "c\t1\t0\t2", raw, 1)) == Sound()
    assert shop.inspected("kept").raw == raw
    shop.confirm("kept")
    assert shop.side.execute(op.MendRecord(shop.sku, "order", "kept", after, raw, None, 1)) == Outrun()
    assert shop.record("kept") is not None


def test_a_thousand_changes_outrun_a_repair(shop: Damaged) -> None:
    after = shop.sequence
    for index in range(1_000):
        shop.restock(1, f"more{index}")
    assert shop.side.execute(op.MendNumber(shop.sku, "total", "opened", after, 10)) == Sound()
    shop.restock(1, "one too many")
    assert shop.side.execute(op.MendNumber(shop.sku, "total", "opened", after, 10)) == Outrun()
    assert shop.side.execute(op.MendRecord(shop.sku, "order", "stray", after, None, None, 1)) == Outrun()
