"""Every kind of drift, planted, is found and names its order."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from segmented import protocol as op
from segmented.ledger_lines import entries_of, parse_record, record_text, step_of
from segmented.models import Inspected, LedgerEntry, Order, PoolState
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


def inspected_as(order_id: str, change: Callable[[Inspected], Inspected]) -> Callable[[op.Operation[Any], Any], Any]:
    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.InspectOrders):
            return answer
        return tuple(change(one) if one.order_id == order_id else one for one in answer)

    return tamper


def record_with(order_id: str, **changes: Any) -> Callable[[op.Operation[Any], Any], Any]:  # noqa: ANN401  # of OrderRecord
    def change(found: Inspected) -> Inspected:
        record = parse_record(order_id, found.raw or "")
        assert record is not None
        return replace(found, raw=record_text(replace(record, **changes)))

    return inspected_as(order_id, change)


def ledger_as(change: Callable[[list[LedgerEntry]], list[LedgerEntry]]) -> Callable[[op.Operation[Any], Any], Any]:
    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if not isinstance(operation, op.ReadSteps):
            return answer
        entries = change([entry for step in answer for entry in entries_of(step)])
        return tuple(step_of(tuple(group)) for _, group in groupby(entries, key=attrgetter("sequence")))

    return tamper


def lines(report: AuditReport) -> list[str]:
    return [str(drift) for drift in report.drift]


def test_a_sound_pool_is_clean() -> None:
    report = audited(lambda _, answer: answer)
    assert report.is_clean
    assert (report.drift, report.drift_count, report.refused_wrongly, report.oversold) == ((), 0, 0, 0)
    assert report.state.sequence == 5


def test_an_order_that_ended_twice_is_named() -> None:
    def ended_again(entries: list[LedgerEntry]) -> list[LedgerEntry]:
        sold = next(entry for entry in entries if entry.kind == "confirmed")
        return [replace(sold, sequence=5, kind="cancelled") if entry.sequence == 5 else entry for entry in entries]

    found = [(drift.kind, drift.place) for drift in audited(ledger_as(ended_again)).drift]
    assert ("duplicate", ("ledger", "sold")) in found
    assert ("foreign write", ("ledger", "sold")) in found, "the entry's digest does not fit"


@pytest.mark.parametrize("name", ["available", "reserved", "confirmed"])
def test_a_total_that_differs_is_named(name: str) -> None:
    expected = {"available": 5, "reserved": 2, "confirmed": 3}[name]
    found = lines(audited(state_with(**{name: expected + 1})))
    assert found[0] == f"foreign write: {name} is {expected + 1}, the ledger says {expected}"
    assert found[-1].startswith("foreign write: stocked 10, but ")


def test_a_stock_that_differs_from_what_was_opened_is_named() -> None:
    assert lines(audited(state_with(opened=11))) == [
        "foreign write: opened is 11, the ledger says 10",
        "foreign write: stocked 11, but 5 available + 2 reserved + 3 confirmed",
    ]


def test_a_segment_that_differs_is_named() -> None:
    assert lines(audited(state_with(stock=(2, 4)))) == [
        "foreign write: the sum over segments is 6, the ledger says 5",
        "foreign write: segment 1 has 4 units, the ledger says 3",
    ]


def test_units_that_changed_segments_are_named_although_the_sum_is_right() -> None:
    report = audited(state_with(stock=(5, 0)))
    assert [drift.place for drift in report.drift] == [("segment", "0"), ("segment", "1")]
    assert report.by_kind == {"foreign write": 2}


def test_a_number_below_zero_is_named_although_the_sum_is_right() -> None:
    report = audited(state_with(available=-1, reserved=8, stock=(-1, 0)))
    detail = "stocked 10, but -1 available + 8 reserved + 3 confirmed"
    assert report.drift[-1] == Drift("foreign write", None, detail, "sum", "stocked")


def test_more_sold_than_ever_stocked_is_counted() -> None:
    report = audited(state_with(reserved=6, confirmed=8))
    assert report.oversold == 4
    assert not report.is_clean


def test_a_lost_record_names_its_order() -> None:
    report = audited(inspected_as("sold", lambda found: replace(found, raw=None)))
    assert lines(report) == ["lost: order sold: it has no record, the ledger says confirmed with 3 units at 4"]


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
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("foreign write", "sold")]
    assert report.drift[0].detail.startswith(f"its record says {found}, the ledger says ")


@pytest.mark.parametrize(
    "changes", [{"fencing_token": 7}, {"customer_id": "eve"}, {"segment": 1}, {"parts": ((1, 3),)}]
)
def test_a_record_of_another_segment_customer_or_token_names_its_order(changes: dict[str, Any]) -> None:
    (found,) = lines(audited(record_with("sold", **changes)))
    assert found.endswith(" says confirmed with 3 units at 4, the ledger has another segment, customer or token")


def test_a_record_that_cannot_be_read_names_its_order() -> None:
    report = audited(inspected_as("sold", lambda found: replace(found, raw="c\tthree")))
    assert [(drift.kind, drift.order_id) for drift in report.drift] == [("foreign write", "sold")]


def test_a_record_touched_after_the_audits_sequence_number_is_left_for_the_next() -> None:
    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, op.ReadPool):
            reads.append(answer)
            return answer if len(reads) == 1 else replace(answer, sequence=6)
        return touched(operation, answer)

    reads: list[PoolState] = []
    touched = record_with("sold", state="reserved", sequence=6)
    with_hold = inspected_as("sold", lambda found: replace(found, hold_until_ms=1))
    assert audited(lambda operation, answer: with_hold(operation, tamper(operation, answer))).is_clean


def test_a_record_of_a_change_that_never_was_names_its_order() -> None:
    assert lines(audited(record_with("sold", sequence=6))) == [
        "foreign write: order sold: its record is of change 6, the ledger ends with 5"
    ]


@pytest.mark.parametrize(
    ("order_id", "hold_until_ms", "detail"),
    [
        ("kept", None, "it is reserved but has no hold, so it would never expire"),
        ("sold", 1, "it has a hold but is confirmed"),
        ("refused", 1, "it has a hold but is refused"),
    ],
)
def test_a_hold_that_does_not_fit_its_record_names_its_order(
    order_id: str, hold_until_ms: int | None, detail: str
) -> None:
    report = audited(inspected_as(order_id, lambda found: replace(found, hold_until_ms=hold_until_ms)))
    assert lines(report) == [f"leaked hold: order {order_id}: {detail}"]


def strange(inspected: Inspected, key: str) -> Callable[[op.Operation[Any], Any], Any]:
    """Let one order be there that no entry tells of."""

    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, op.ReadPool) and key == "orders":
            return replace(answer, order_count=answer.order_count + 1)
        if isinstance(operation, op.ScanIds) and operation.key == key:
            return 0, (*answer[1], inspected.order_id, inspected.order_id)
        if isinstance(operation, op.InspectOrders):
            return tuple(inspected if one.order_id == inspected.order_id else one for one in answer)
        return answer

    return tamper


def test_a_record_without_any_entry_names_its_order() -> None:
    assert lines(audited(strange(Inspected("stray", "c\t2\t0\t4", None), "orders"))) == [
        "foreign write: order stray: its record says confirmed with 2 units, but it has no ledger entry"
    ]


def test_a_record_of_the_ledgers_first_change_without_an_entry_of_it_names_its_order() -> None:
    assert lines(audited(strange(Inspected("stray", "c\t2\t0\t1", None), "orders"))) == [
        "foreign write: order stray: its record says confirmed with 2 units, but it has no ledger entry"
    ]


def test_a_record_without_any_entry_is_found_although_another_one_is_lost() -> None:
    stray = strange(Inspected("stray", "c\t2\t0\t4", None), "orders")
    lost = inspected_as("sold", lambda found: replace(found, raw=None))

    def tamper(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        if isinstance(operation, op.ReadPool):  # as many records as there should be
            return answer
        return lost(operation, stray(operation, answer))

    assert lines(audited(tamper)) == [
        "lost: order sold: it has no record, the ledger says confirmed with 3 units at 4",
        "foreign write: order stray: its record says confirmed with 2 units, but it has no ledger entry",
    ]


def test_a_hold_without_any_record_names_its_order() -> None:
    assert lines(audited(strange(Inspected("stray", None, 1), "holds"))) == [
        "leaked hold: order stray: it has a hold but no record"
    ]


def test_an_order_that_came_while_its_hold_was_looked_at_is_left_for_the_next_audit() -> None:
    def later(operation: op.Operation[Any], answer: Any) -> Any:  # noqa: ANN401  # any operation's answer
        answer = came(operation, answer)
        if isinstance(operation, op.ReadPool):
            reads.append(answer)
            return answer if len(reads) == 1 else replace(answer, sequence=6)
        return answer

    reads: list[PoolState] = []
    came = strange(Inspected("late", "r\t1\t0\t6", 1), "holds")
    assert audited(later).is_clean


def test_a_missing_entry_is_a_gap_and_its_order_contradicts_itself() -> None:
    report = audited(ledger_as(lambda entries: [entry for entry in entries if entry.sequence != 3]))
    found = [(drift.kind, drift.order_id) for drift in report.drift]
    assert ("foreign write", None) in found
    assert ("foreign write", "sold") in found
    assert "foreign write: entry 3 is missing" in lines(report)


def test_a_ledger_that_was_cut_off_is_a_gap_to_its_end() -> None:
    report = audited(ledger_as(lambda entries: [entry for entry in entries if entry.sequence < 4]))
    gaps = [drift.detail for drift in report.drift if drift.about == "ledger" and drift.order_id is None]
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


def test_of_many_drifts_a_thousand_are_named_and_all_are_counted() -> None:
    store = MemoryStore()
    store.execute(op.OpenPool(SKU, 1_050, 2, gated=False))
    for index in range(1_050):
        store.execute(op.Reserve(SKU, Order(f"o{index}", 1), 60_000))

    class Forgetful(MemoryStore):
        def execute(self, operation: op.Operation[AnswerT], *, deadline: float = inf) -> AnswerT:
            answer: Any = store.execute(operation, deadline=deadline)
            if isinstance(operation, op.InspectOrders):
                return tuple(replace(one, raw=None) for one in answer)  # type: ignore[return-value]  # as the operation's
            return answer  # type: ignore[no-any-return]  # as the operation's

    report = run_sync(audit_plan(SKU), Forgetful())[0]
    assert (len(report.drift), report.drift_count) == (1_000, 1_050)
    assert {drift.kind for drift in report.drift} == {"lost"}
    assert report.by_kind == {"lost": 1_050}
