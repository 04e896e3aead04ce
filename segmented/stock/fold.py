"""Fold the ledger: what every number should be, from the changes alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models import EntryKind, LedgerEntry, OrderState

STATE_AFTER: Final[dict[EntryKind, OrderState]] = {
    "reserved": "reserved",
    "granted": "reserved",
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
}


@dataclass(slots=True)
class FoldedOrder:
    """What the ledger says of an order."""

    state: OrderState
    quantity: int
    sequence: int


@dataclass(slots=True)
class LedgerFold:
    """Totals, units a segment and orders after the entries applied so far, oldest first without a gap."""

    segment_count: int
    sequence: int = 0
    opened: int = 0
    available: int = 0
    reserved: int = 0
    confirmed: int = 0
    stock: list[int] = field(init=False)
    orders: dict[str, FoldedOrder] = field(default_factory=dict)
    available_after: list[int] = field(default_factory=lambda: [0])
    """Index: sequence number; value: units free just after that change."""
    refused_wrongly: list[str] = field(default_factory=list)
    """Orders whose recorded refusal stands where enough units were free."""
    gaps: list[int] = field(default_factory=list)
    """Sequence numbers that are missing."""
    impossible: list[str] = field(default_factory=list)
    """Orders with an entry that cannot follow from the one before."""

    def __post_init__(self) -> None:
        """Start empty."""
        self.stock = [0] * self.segment_count

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Fold more entries."""
        for entry in entries:
            while self.sequence + 1 < entry.sequence:
                self.sequence += 1
                self.gaps.append(self.sequence)
                self.available_after.append(self.available)
            self.sequence = entry.sequence
            if entry.kind == "opened":
                self._open(entry.quantity)
            else:
                self._apply_to_order(entry)
            self.available_after.append(self.available)

    def covers(self, quantity: int, sequence: int) -> bool:
        """Were `quantity` units free just after change `sequence`? A refusal decided there was wrong if so."""
        return self.available_after[sequence] >= quantity

    def _open(self, quantity: int) -> None:
        self.opened = self.available = quantity
        base, extra = divmod(quantity, self.segment_count)
        self.stock = [base + (1 if segment < extra else 0) for segment in range(self.segment_count)]

    def _apply_to_order(self, entry: LedgerEntry) -> None:
        order_id = entry.order_id or ""
        before = self.orders.get(order_id)
        is_new = before is None
        if (entry.kind in {"reserved", "refused"}) != is_new or (before is not None and before.state != "reserved"):
            self.impossible.append(order_id)
        if entry.kind == "reserved":
            self._move(entry, -1)
        elif entry.kind in {"cancelled", "expired"}:
            self._move(entry, +1)
        elif entry.kind == "confirmed":
            self.reserved -= entry.quantity
            self.confirmed += entry.quantity
        elif entry.kind == "refused" and self.available >= entry.quantity:
            self.refused_wrongly.append(order_id)
        self.orders[order_id] = FoldedOrder(STATE_AFTER[entry.kind], entry.quantity, entry.sequence)

    def _move(self, entry: LedgerEntry, sign: int) -> None:
        for segment, units in entry.parts:
            self.stock[segment] += sign * units
        self.available += sign * entry.quantity
        self.reserved -= sign * entry.quantity
