"""Read, fold and trim the ledger, also while others trim it; and drift, a place where a pool differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolDrifted
from segmented.models import LedgerEntry, PoolState, Trimmed, shortened
from segmented.plans import Plan, perform
from segmented.stock.fold import LedgerFold
from segmented.stock.spill import Spill

DriftKind = Literal["lost", "duplicate", "leaked hold", "orphan transfer", "foreign write", "torn cart"]
"""The kind of damage.

| kind | meaning |
| --- | --- |
| lost | the ledger has an order, a restock or a withdrawal without a record |
| duplicate | two effects for one order id |
| leaked hold | a hold without a reserved order, or a reserved order that would never expire |
| orphan transfer | units that left one shard, and are neither in the other nor known to be on the way |
| foreign write | a number, a record or a ledger entry that no operation of the pool could have written |
| torn cart | a cart whose decision and whose orders contradict each other |
"""
About = Literal["total", "segment", "customer", "order", "change", "transfer", "ledger", "sum", "cart"]
SEQUENCE_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""
PAGE: Final = 1_000
NEEDED: Final = frozenset({"epoch", "sequence", "ledger_start"})
"""Without these numbers no entry of the ledger can be found."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One place where the pool and its ledger disagree."""

    kind: DriftKind
    order_id: str | None
    detail: str
    about: About = "order"
    """The subject of the drift; a "sum" follows from other drift, and is repaired with it."""
    name: str = ""
    """Name of the total, segment, customer, restock, withdrawal or cart."""

    @property
    def place(self) -> tuple[str, str]:
        """The place's name, the same in every audit that finds it."""
        return self.about, self.order_id if self.order_id is not None else self.name

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.detail}"
            if self.order_id is None
            else f"{self.kind}: order {self.order_id}: {self.detail}"
        )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The audit's findings as of `state.sequence`."""

    state: PoolState
    drift: tuple[Drift, ...]
    """The first 1,000 drifts."""
    drift_count: int
    refused_wrongly: int
    """Recorded refusals although enough units were free."""
    oversold: int
    """Units confirmed and reserved beyond all units ever stocked."""
    by_kind: Mapping[str, int]
    """Number of drifts of each kind found."""
    first_sequence: int = 1
    """Where the ledger begins: 1, or the checkpoint of a trim. Changes before it are compared only as sums."""
    unread: tuple[str, ...] = ()
    """Other pools of this one's carts that did not answer, and why; whatever depends on them was not judged."""

    @property
    def is_clean(self) -> bool:
        """Return whether all numbers follow from a complete ledger, none is oversold, and no refusal was wrong."""
        return not (self.drift_count or self.refused_wrongly or self.oversold or self.state.frozen)


def first_page_plan(sku: str, after: int) -> Plan[tuple[LedgerEntry, ...]]:
    """Read the first remaining entries after change `after`. Raises InvalidInput."""
    if type(after) is not int or not 0 <= after <= SEQUENCE_MAX:
        raise InvalidInput(f"sequence number {shortened(after)} of {sku!r} is not a whole number from 0")
    start = yield from perform(op.ReadLedgerStart(sku))
    return (yield from perform(op.ReadLedger(sku, max(after, start - 1), PAGE)))


def next_page(sku: str, page: tuple[LedgerEntry, ...]) -> op.ReadLedger:
    """Build the operation that reads the entries after those of `page`."""
    return op.ReadLedger(sku, page[-1].sequence, PAGE, page[-1].epoch)  # a number alone may come again after a thaw


def trim_plan(operation: op.TrimLedger) -> Plan[Trimmed]:
    """Trim the ledger, and free the memory of the deleted entries, a bounded number in one step."""
    trimmed = yield from perform(operation)
    while trimmed.is_more_left:
        trimmed = yield from perform(operation)
    return trimmed


class LedgerUnreadable(Exception):
    """The ledger cannot be found: the numbers that locate it were overwritten. Never reaches a caller."""

    def __init__(self, state: PoolState) -> None:
        """Create the error with the part of the state that could be read."""
        super().__init__(state.sku)
        self.state = state


class LedgerTrimmed(Exception):
    """The ledger was trimmed while it was folded: start again at its new first entry. Never reaches a caller."""


def begin_plan(sku: str) -> Plan[tuple[PoolState, LedgerFold]]:
    """Read the pool, and fold its ledger up to the pool's sequence number. Raises LedgerTrimmed, LedgerUnreadable."""
    start = yield from perform(op.ReadLedgerStart(sku))
    state = yield from perform(op.ReadPool(sku))
    if start < 1:
        state = replace(state, unreadable=(*state.unreadable, "ledger_start"))
    if NEEDED & set(state.unreadable):
        raise LedgerUnreadable(state)
    fold = LedgerFold(
        sequence=start - 1,
        first_sequence=start,
        available_after=None,
        spill=Spill(state.order_count),
        has_limit=state.limit_per_customer is not None,
    )
    try:
        yield from extend_plan(sku, fold, state.sequence)
    except PoolDrifted:
        raise LedgerUnreadable(replace(state, unreadable=(*state.unreadable, "sequence"))) from None
    return state, fold


def extend_plan(sku: str, fold: LedgerFold, sequence: int) -> Plan[None]:
    """Continue the fold up to `sequence`.

    Raises LedgerTrimmed, and PoolDrifted if `sequence` cannot be a number of this ledger.
    """
    known_gaps = len(fold.gaps)
    while fold.sequence < sequence:
        limit = min(PAGE, sequence - fold.sequence)
        steps = yield from perform(op.ReadSteps(sku, fold.sequence, limit))
        before = fold.sequence
        try:
            fold.apply_steps(step for step in steps if step.sequence <= sequence)
            if fold.sequence == before:
                fold.note_gap(sequence + 1)
        except InvalidInput as error:
            raise PoolDrifted(sku) from error
    if len(fold.gaps) > known_gaps and (yield from perform(op.ReadLedgerStart(sku))) > fold.first_sequence:
        raise LedgerTrimmed
