"""The audit: the fold of the ledger, and the differences that it names."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby, product
from math import inf
from operator import attrgetter
from typing import Any, Final, TypeVar

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch
from segmented.ledger_lines import Checkpoint, entries_of, parse_record, record_text, step_of
from segmented.models import EntryKind, Inspected, LedgerEntry, Order, Part, PoolState
from segmented.orders.answers import (
    ConfirmAnswer,
    Confirmed,
    EpochChanged,
    Missing,
    OrderRow,
    SoldOut,
    Superseded,
    Voided,
)
from segmented.orders.auditing import is_sold_as, judged
from segmented.orders.deciding import Claim, Standing, classify
from segmented.plans import run_sync
from segmented.stock import AuditReport, LedgerFold
from segmented.stock.audit import audit_plan
from segmented.stores.memory import MemoryStore
from tests.support.pools.ledgers import chained, entry, opened

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
        if isinstance(operation, op.ScanKey) and operation.key == key:
            return 0, (*answer[1], (inspected.order_id, "0"), (inspected.order_id, "0"))
        if isinstance(operation, op.InspectOrders):
            return tuple(inspected if one.order_id == inspected.order_id else one for one in answer)
        return answer

    return tamper


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


OPENED = opened(10, 4)


def folded(*entries: LedgerEntry) -> LedgerFold:
    fold = LedgerFold()
    fold.apply(chained(entries))
    return read_through(fold)


def read_through(fold: LedgerFold) -> LedgerFold:
    """Judge the orders of all parts, and watch each of them."""
    assert fold.spill is not None
    for number in range(fold.spill.part_count):
        part = fold.part(number)
        fold.impossible += part.impossible
        for order_id, line in part.orders.items():
            fold.watch(order_id, line)
    return fold


def test_every_kind_moves_its_units() -> None:
    fold = folded(
        OPENED,
        entry(2, "reserved", "a", 4, (0, 3), (1, 1)),
        entry(3, "granted", "a", 4, (0, 3), (1, 1)),
        entry(4, "confirmed", "a", 4, (0, 3), (1, 1)),
        entry(5, "reserved", "b", 2, (2, 2)),
        entry(6, "cancelled", "b", 2, (2, 2)),
        entry(7, "reserved", "c", 1, (3, 1)),
        entry(8, "expired", "c", 1, (3, 1)),
        entry(9, "reserved", "d", 1, (3, 1)),
        entry(10, "refused", "e", 6),
    )
    assert (fold.available, fold.reserved, fold.confirmed) == (5, 1, 4)
    assert fold.stock == [0, 2, 2, 1]
    assert {order_id: order.state for order_id, order in fold.orders.items()} == {
        "a": "confirmed",
        "b": "cancelled",
        "c": "expired",
        "d": "reserved",
        "e": "refused",
    }
    assert (fold.gaps, fold.impossible, fold.refused_wrongly) == ([], [], [])


def test_a_refusal_beside_enough_free_units_was_wrong() -> None:
    assert folded(OPENED, entry(2, "refused", "a", 10)).refused_wrongly == ["a"]
    assert folded(OPENED, entry(2, "refused", "a", 11)).refused_wrongly == []


def test_a_refusal_by_a_customers_limit_is_right_whatever_is_free() -> None:
    limited = replace(entry(2, "refused", "a", 10), note="limit")
    assert folded(OPENED, limited).refused_wrongly == []


def test_a_customer_has_what_is_reserved_or_confirmed_and_not_what_went_back() -> None:
    def ann(sequence: int, kind: EntryKind, order_id: str, quantity: int) -> LedgerEntry:
        return replace(entry(sequence, kind, order_id, quantity, (0, quantity)), customer_id="ann")

    taken = ann(2, "reserved", "a", 1), ann(3, "reserved", "b", 2), ann(4, "confirmed", "a", 1)
    assert folded(OPENED, *taken).bought == {"ann": 3}
    assert folded(OPENED, *taken, ann(5, "expired", "b", 2)).bought == {"ann": 1}
    assert folded(OPENED, ann(2, "reserved", "a", 1), ann(3, "cancelled", "a", 1)).bought == {}


def test_entries_that_contradict_each_other_name_their_order() -> None:
    taken = entry(2, "reserved", "a", 1, (0, 1))
    ended = entry(3, "confirmed", "a", 1, (0, 1))
    assert folded(OPENED, entry(2, "confirmed", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, entry(2, "granted", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, entry(3, "reserved", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, ended, entry(4, "cancelled", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, ended, entry(4, "reserved", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, entry(2, "refused", "a", 99), entry(3, "confirmed", "a", 99)).impossible == ["a"]


def checkpoint(sequence: int, quantity: int, note: Checkpoint, *parts: Part) -> LedgerEntry:
    return replace(entry(sequence, "checkpoint", None, quantity, *parts), note=note.note())


def begun_at_checkpoint(*later: LedgerEntry) -> LedgerFold:
    """A ledger of which the first three changes were trimmed: of 10 units 5 are free, 2 reserved, 3 confirmed."""
    before = chained([OPENED, entry(2, "reserved", "old", 2, (0, 2)), entry(3, "confirmed", "sold", 3, (1, 3))])
    note = Checkpoint(2, 10, 0, 0, 0, 0, 2, 3, is_closed=False, chain_before=before[-1].chain)
    ledger = chained([*before, checkpoint(4, 5, note, (0, 1), (1, 4)), *later])
    fold = LedgerFold(sequence=3, first_sequence=4)
    fold.apply(one for one in ledger if one.sequence > 3)
    return read_through(fold)


def test_a_fold_begins_with_a_checkpoint() -> None:
    fold = begun_at_checkpoint()
    assert (fold.opened, fold.available, fold.reserved, fold.confirmed, fold.stock) == (10, 5, 2, 3, [1, 4])
    assert (fold.gaps, fold.broken, fold.is_sound) == ([], [], True)


def test_an_order_from_before_the_checkpoint_is_inherited() -> None:
    fold = begun_at_checkpoint(entry(5, "confirmed", "old", 2, (0, 2)), entry(6, "reserved", "new", 1, (1, 1)))
    assert {order_id: order.quantity for order_id, order in fold.part(0).inherited.items()} == {"old": 2}
    assert (fold.impossible, fold.reserved, fold.confirmed) == ([], 1, 5)


def test_a_refusal_is_judged_from_the_checkpoint_on() -> None:
    fold = begun_at_checkpoint(entry(5, "reserved", "new", 1, (1, 1)))
    assert [fold.covers(5, sequence) for sequence in (4, 5)] == [True, False]
    with pytest.raises(InvalidInput, match="change 2 was trimmed: the ledger begins with 4"):
        fold.covers(5, 2)


def test_a_checkpoint_on_the_way_is_compared() -> None:
    right = Checkpoint(4, 10, 0, 0, 0, 0, 4, 0, is_closed=False, chain_before="")
    taken = entry(2, "reserved", "a", 4, (0, 3), (1, 1))
    rest = ((1, 2), (2, 2), (3, 2))
    assert folded(OPENED, taken, checkpoint(3, 6, right, *rest)).contradicted == []
    wrong = replace(right, reserved=3, is_closed=True)
    ((sequence, what),) = folded(OPENED, taken, checkpoint(3, 6, wrong, (0, 6))).contradicted
    assert sequence == 3
    assert what.split("; ") == [
        "it says reserved 3, the changes before it 4",
        "another answer to whether the pool is closed",
        "other units in segments",
    ]
    unread = replace(entry(3, "checkpoint", None, 6, *rest), note="nonsense")
    assert folded(OPENED, taken, unread).contradicted == [(3, "it cannot be read")]


def test_a_resize_that_spread_too_much_is_followed_with_what_there_should_be() -> None:
    resized = replace(entry(2, "resized", None, 17, (0, 9), (1, 8)), note="2")
    assert folded(OPENED, resized).stock == [5, 5]


def test_a_changed_entry_names_its_orders() -> None:
    ledger = chained([OPENED, entry(2, "reserved", "a", 4, (0, 3), (1, 1))])
    fold = LedgerFold()
    fold.apply([ledger[0], replace(ledger[1], quantity=3)])
    assert fold.broken == [(2, ("a",))]


CLAIM: Final = Claim(Order("o-1", 2, "ann"), "mug", 0, epoch=3, fence=7)
NO_ROW: Final = (None, None, None)


@pytest.mark.parametrize(
    ("standing", "answer"),
    [
        (Standing("confirmed", 2, "ann", None, None, 0, 0), Confirmed(replay=True)),
        (Standing("confirmed", 2, None, 9, 9, 0, 0), Confirmed(replay=True)),
        (Standing("void", 2, None, 3, 7, 9, 0), Voided(replay=True)),
        (Standing(*NO_ROW, None, None, 0, 0), Missing()),
        (Standing(*NO_ROW, None, None, 9, 0), Missing()),
        (Standing(*NO_ROW, 4, 9, 9, 9), EpochChanged(4)),
        (Standing(*NO_ROW, 2, 9, 9, 9), EpochChanged(2)),
        (Standing(*NO_ROW, 3, 8, 9, 9), Superseded(8)),
        (Standing(*NO_ROW, 3, 7, 9, 8), SoldOut(9, 8)),
        (Standing(*NO_ROW, 3, 7, 9, 7), None),
    ],
)
def test_the_answers_come_in_order_of_precedence(standing: Standing, answer: ConfirmAnswer | None) -> None:
    assert classify(CLAIM, standing) == answer


def test_a_customer_is_compared_where_both_sides_name_one() -> None:
    named = Standing("confirmed", 2, "bob", 3, 7, 9, 2)
    assert classify(Claim(Order("o-1", 2), "mug", 0, 3, 7), named) == Confirmed(replay=True)
    with pytest.raises(OrderMismatch, match="another customer is stored, ann was given"):
        classify(CLAIM, named)
    more = Standing("confirmed", 5, "bob", 3, 7, 9, 2)
    with pytest.raises(
        OrderMismatch, match="quantity 5 is stored, 2 was given; another customer is stored, ann was given"
    ):
        classify(CLAIM, more)


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


def test_a_record_that_the_audit_does_not_parse_says_what_the_sold_row_says() -> None:
    ends = ("", "1", "-1", "x", "1=1", "ann", "bob")
    tails = [end for size in range(5) for end in product(ends, repeat=size)]
    raws = ["\t".join((state, units, *tail)) for state in "cr" for units in ("0", "1", "x") for tail in tails]
    moment = datetime.fromtimestamp(0, UTC)
    rows = [OrderRow("mug", "o", "confirmed", 1, 1, None, 1, who, moment, None) for who in (None, "ann")]
    unparsed = [(row, raw) for row in rows for raw in raws if is_sold_as(row, raw)]
    assert {judged(1, parse_record("o", raw), row) for row, raw in unparsed} == {None}
    assert [(row.customer_id, raw) for row, raw in unparsed] == [
        *((None, "c\t1\t1\t1"), ("ann", "c\t1\t1\t1")),
        ("ann", "c\t1\t1\t1\t\tann"),
    ]
