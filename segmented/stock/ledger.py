"""Read the ledger page by page, fold it even while it is being trimmed, and trim it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models import shortened
from segmented.plans import Plan, perform
from segmented.stock.audit_fold import AuditFold
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from segmented.models import LedgerEntry, PoolState, Trimmed

SEQUENCE_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""
PAGE: Final = 1_000
NEEDED: Final = frozenset({"epoch", "sequence", "ledger_start"})
"""Without these numbers no entry of the ledger can be found."""


def first_page_plan(sku: str, after: int) -> Plan[tuple[LedgerEntry, ...]]:
    """Read the first remaining entries after change `after`. Raises InvalidInput."""
    if type(after) is not int or not 0 <= after <= SEQUENCE_MAX:
        message = f"sequence number {shortened(after)} of {sku!r} is not a whole number from 0"
        raise InvalidInput(message)
    start = yield from perform(op.ReadLedgerStart(sku))
    return (yield from perform(op.ReadLedger(sku, max(after, start - 1), PAGE)))


def next_page(sku: str, page: tuple[LedgerEntry, ...]) -> op.ReadLedger:
    """Build the operation that reads the entries after those of `page`."""
    return op.ReadLedger(sku, page[-1].sequence, PAGE)


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


def begin_plan(sku: str) -> Plan[tuple[PoolState, AuditFold]]:
    """Read the pool, and fold its ledger up to the pool's sequence number. Raises LedgerTrimmed, LedgerUnreadable."""
    start = yield from perform(op.ReadLedgerStart(sku))
    state = yield from perform(op.ReadPool(sku))
    if start < 1:
        state = replace(state, unreadable=(*state.unreadable, "ledger_start"))
    if NEEDED & set(state.unreadable):
        raise LedgerUnreadable(state)
    fold = AuditFold(
        sequence=start - 1,
        first_sequence=start,
        spill=Spill(state.order_count),
        has_limit=state.customer_limit is not None,
    )
    yield from extend_plan(sku, fold, state.sequence)
    return state, fold


def extend_plan(sku: str, fold: AuditFold, sequence: int) -> Plan[None]:
    """Continue the fold up to `sequence`. Raises LedgerTrimmed."""
    known_gaps = len(fold.gaps)
    while fold.sequence < sequence:
        limit = min(PAGE, sequence - fold.sequence)
        steps = yield from perform(op.ReadSteps(sku, fold.sequence, limit))
        before = fold.sequence
        fold.apply_steps(step for step in steps if step.sequence <= sequence)
        if fold.sequence == before:
            fold.note_gap(sequence + 1)
    if len(fold.gaps) > known_gaps and (yield from perform(op.ReadLedgerStart(sku))) != fold.first_sequence:
        raise LedgerTrimmed
