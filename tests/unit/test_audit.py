"""Every kind of drift, planted, is found and names its order."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segmented import operations as op
from segmented.models import LedgerEntry, Order, OrderRecord, PoolState
from segmented.plans import run_sync
from segmented.stock.audit import Drift, audit_plan
from segmented.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.stock import AuditReport

AnswerT = TypeVar("AnswerT")
SKU = "ticket"


class TamperedStore(MemoryStore):
    """A sound pool whose answers are changed on the way to the auditor."""

    def __init__(self, tamper: Callable[[op.Operation[Any], Any], Any]) -> None:
        super().__init__()
        self._tamper: Callable[[op.Operation[Any], Any], Any] = lambda _, answer: answer
        self.execute(op.OpenPool(SKU, 10, 2, gated=False))
        self.execute(op.Reserve(SKU, Order("kept", 2), 60_000))
        self.execute(op.Grant(SKU, Order("sold", 3), "h", 60_000, 60_000, keep_refusal=True))
        self.execute(op.Confirm(SKU, "sold"))
        self.execute(op.Grant(SKU, Order("refused", 6), "h", 60_000, 60_000, keep_refusal=True))
        self._tamper = tamper

    def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
        answer: AnswerT = self._tamper(operation, super().execute(operation, deadline=deadline))
        return answer


def audited(tamper: Callable[[op.Operation[Any], Any], Any]) -> AuditReport:
    return run_sync(audit_plan(SKU), TamperedStore(tamper))[0]


def state_with(**changes: Any) -> Callable[[op.Operation[Any], Any], Any]:  # noqa: ANN401  # fields of PoolState
    return lambda _, answer: replace(answer, **changes) if isinstance(answer, PoolState) else answer


def record_with(order_id: str, **changes: Any) -> Callable[[op.Operation[Any], Any], Any]:  # noqa: ANN401  # of OrderRecord
    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.ReadOrders):
            return answer
        return tuple(
            replace(record, **changes) if record is not None and record.order_id == order_id else record
            for record in answer
        )

    return tamper


def ledger_as(change: Callable[[list[LedgerEntry]], list[LedgerEntry]]) -> Callable[[op.Operation[Any], Any], Any]:
    return lambda operation, answer: tuple(change(list(answer))) if isinstance(operation, op.ReadLedger) else answer


def lines(report: AuditReport) -> list[str]:
    return [str(drift) for drift in report.drift]


def test_a_sound_pool_is_clean() -> None:
    report = audited(lambda _, answer: answer)
    assert report.is_clean
    assert (report.drift, report.drift_count, report.refused_wrongly, report.oversold) == ((), 0, 0, 0)
    assert report.state.sequence == 5


@pytest.mark.parametrize("name", ["available", "reserved", "confirmed"])
def test_a_total_that_differs_is_named(name: str) -> None:
    expected = {"available": 5, "reserved": 2, "confirmed": 3}[name]
    found = lines(audited(state_with(**{name: expected + 1})))
    assert found[0] == f"total differs: {name} is {expected + 1}, the ledger says {expected}"
    assert found[-1].startswith("not conserved: stocked 10, but ")


def test_a_stock_that_differs_from_what_was_opened_is_named() -> None:
    assert lines(audited(state_with(opened=11))) == [
        "total differs: opened is 11, the ledger says 10",
        "not conserved: stocked 11, but 5 available + 2 reserved + 3 confirmed",
    ]


def test_a_segment_that_differs_is_named() -> None:
    assert lines(audited(state_with(stock=(2, 4)))) == [
        "total differs: the sum over segments is 6, the ledger says 5",
        "segment differs: segment 1 has 4 units, the ledger says 3",
    ]


def test_units_that_changed_segments_are_named_although_the_sum_is_right() -> None:
    assert [drift.kind for drift in audited(state_with(stock=(5, 0))).drift] == ["segment differs", "segment differs"]


def test_a_number_below_zero_is_named_although_the_sum_is_right() -> None:
    report = audited(state_with(available=-1, reserved=8, stock=(-1, 0)))
    assert report.drift[-1] == Drift("not conserved", None, "stocked 10, but -1 available + 8 reserved + 3 confirmed")


def test_more_sold_than_ever_stocked_is_counted() -> None:
    report = audited(state_with(reserved=6, confirmed=8))
    assert report.oversold == 4
    assert not report.is_clean


def test_a_lost_record_names_its_order() -> None:
    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.ReadOrders):
            return answer
        return tuple(None if record and record.order_id == "sold" else record for record in answer)

    assert lines(audited(tamper)) == ["record lost: order sold: the ledger says confirmed"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"state": "reserved"}, "reserved with 3 units at 4"),
        ({"quantity": 4}, "confirmed with 4 units at 4"),
        ({"sequence": 3}, "confirmed with 3 units at 3"),
    ],
)
def test_a_record_that_differs_names_its_order(changes: dict[str, Any], found: str) -> None:
    report = audited(record_with("sold", **changes))
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("record differs", "sold")]
    assert report.drift[0].detail.startswith(f"{found}, the ledger says ")


def test_a_record_touched_after_the_audits_sequence_number_is_left_for_the_next() -> None:
    assert audited(record_with("sold", state="reserved", sequence=6)).is_clean


def test_a_record_without_any_entry_names_its_order() -> None:
    stray = OrderRecord("stray", "confirmed", 2, 0, ((0, 2),), None, None, 0, None, 4, 2)

    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, op.ReadPool):
            return replace(answer, order_count=answer.order_count + 1)
        if isinstance(operation, op.ScanOrders):
            return 0, (*answer[1], stray, stray)
        return answer

    assert lines(audited(tamper)) == ["record unexplained: order stray: confirmed with 2 units, but no ledger entry"]


def test_a_missing_entry_is_a_gap_and_its_order_contradicts_itself() -> None:
    report = audited(ledger_as(lambda entries: [entry for entry in entries if entry.sequence != 3]))
    found = [(drift.kind, drift.order_id) for drift in report.drift]
    assert ("ledger gap", None) in found
    assert ("impossible change", "sold") in found
    assert "ledger gap: entry 3 is missing" in lines(report)


def test_a_ledger_that_was_cut_off_is_a_gap_to_its_end() -> None:
    report = audited(ledger_as(lambda entries: [entry for entry in entries if entry.sequence < 4]))
    gaps = [drift.detail for drift in report.drift if drift.kind == "ledger gap"]
    assert gaps == ["entry 4 is missing", "entry 5 is missing"]


def test_an_entry_that_came_after_the_audits_sequence_number_is_left_for_the_next() -> None:
    later = LedgerEntry(1, 6, "reserved", 0, "later", 1, ((1, 1),), 1, None)
    assert audited(ledger_as(lambda entries: [*entries, later])).is_clean


def test_a_refusal_that_was_wrong_is_counted() -> None:
    report = audited(
        ledger_as(
            lambda entries: [replace(entry, quantity=5) if entry.kind == "refused" else entry for entry in entries]
        )
    )
    assert report.refused_wrongly == 1
    assert not report.is_clean


def test_of_many_drifts_a_hundred_are_named_and_all_are_counted() -> None:
    store = MemoryStore()
    store.execute(op.OpenPool(SKU, 150, 2, gated=False))
    for index in range(150):
        store.execute(op.Reserve(SKU, Order(f"o{index}", 1), 60_000))

    class Forgetful(MemoryStore):
        def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            answer: Any = store.execute(operation, deadline=deadline)
            return tuple(None for _ in answer) if isinstance(operation, op.ReadOrders) else answer  # type: ignore[return-value]  # as the operation's

    report = run_sync(audit_plan(SKU), Forgetful())[0]
    assert (len(report.drift), report.drift_count) == (100, 150)
    assert {drift.kind for drift in report.drift} == {"record lost"}
