"""The ledger as a whole: reading it page by page, and bounding it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models import shortened
from segmented.plans import Plan, perform
from segmented.stock.audit_ledger import PAGE

if TYPE_CHECKING:
    from segmented.models import LedgerEntry, Trimmed

SEQUENCE_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""


def first_page_plan(sku: str, after: int) -> Plan[tuple[LedgerEntry, ...]]:
    """Read the first entries after change `after` that a trim has left. Raises InvalidInput."""
    if type(after) is not int or not 0 <= after <= SEQUENCE_MAX:
        message = f"sequence number {shortened(after)} of {sku!r} is not a whole number from 0"
        raise InvalidInput(message)
    start = yield from perform(op.ReadLedgerStart(sku))
    return (yield from perform(op.ReadLedger(sku, max(after, start - 1), PAGE)))


def next_page(sku: str, page: tuple[LedgerEntry, ...]) -> op.ReadLedger:
    """Ask for the entries after those of `page`."""
    return op.ReadLedger(sku, page[-1].sequence, PAGE)


def trim_plan(operation: op.TrimLedger) -> Plan[Trimmed]:
    """Trim, and free the memory of all that was forgotten, a bounded number of entries in one step."""
    trimmed = yield from perform(operation)
    while trimmed.is_more_left:
        trimmed = yield from perform(operation)
    return trimmed
