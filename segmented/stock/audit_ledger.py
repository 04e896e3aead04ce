"""Reading the ledger into a fold, page by page, also while somebody trims it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.plans import Plan, perform
from segmented.stock.fold import LedgerFold

if TYPE_CHECKING:
    from segmented.models import PoolState

PAGE: Final = 1_000


NEEDED: Final = frozenset({"epoch", "sequence", "ledger_start"})
"""Without these numbers no entry of the ledger can be found."""


class LedgerUnreadable(Exception):
    """The ledger cannot be found: somebody else wrote to the numbers that say where it is. No caller ever sees this."""

    def __init__(self, state: PoolState) -> None:
        """Hand on what could be read."""
        super().__init__(state.sku)
        self.state = state


class LedgerTrimmed(Exception):
    """The ledger was trimmed while it was folded: begin anew, at its new first entry. No caller ever sees this."""


def begin_plan(sku: str) -> Plan[tuple[PoolState, LedgerFold]]:
    """Read the pool, and fold its ledger up to the pool's sequence number. Raises LedgerTrimmed, LedgerUnreadable."""
    start = yield from perform(op.ReadLedgerStart(sku))
    state = yield from perform(op.ReadPool(sku))
    if start < 1:
        state = replace(state, unreadable=(*state.unreadable, "ledger_start"))
    if NEEDED & set(state.unreadable):
        raise LedgerUnreadable(state)
    fold = LedgerFold(sequence=start - 1, first_sequence=start)
    yield from extend_plan(sku, fold, state.sequence)
    return state, fold


def extend_plan(sku: str, fold: LedgerFold, sequence: int) -> Plan[None]:
    """Fold on, up to `sequence`. Raises LedgerTrimmed."""
    known_gaps = len(fold.gaps)
    while fold.sequence < sequence:
        limit = min(PAGE, sequence - fold.sequence)
        entries = yield from perform(op.ReadLedger(sku, fold.sequence, limit))
        known = [entry for entry in entries if entry.sequence <= sequence]
        if known:
            fold.apply(known)
        else:
            fold.note_gap(sequence + 1)
    if len(fold.gaps) > known_gaps and (yield from perform(op.ReadLedgerStart(sku))) != fold.first_sequence:
        raise LedgerTrimmed
