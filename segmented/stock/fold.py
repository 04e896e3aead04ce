"""Fold the ledger: what every number should be, from the changes alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from segmented.ledger_lines import NO_DIGEST, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.models import EntryKind, LedgerEntry, OrderState

STATE_AFTER: Final[dict[EntryKind, OrderState]] = {
    "reserved": "reserved",
    "granted": "reserved",
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
}
"""What an order is after a change; the other kinds are changes of the pool."""


@dataclass(slots=True)
class FoldedOrder:
    """What the ledger says of an order."""

    state: OrderState
    quantity: int
    sequence: int
    customer_id: str | None = None


@dataclass(slots=True)
class LedgerFold:
    """Totals, units a segment and orders after the entries applied so far, oldest first without a gap."""

    sequence: int = 0
    opened: int = 0
    restocked: int = 0
    withdrawn: int = 0
    available: int = 0
    reserved: int = 0
    confirmed: int = 0
    is_closed: bool = False
    stock: list[int] = field(default_factory=list)
    orders: dict[str, FoldedOrder] = field(default_factory=dict)
    bought: dict[str, int] = field(default_factory=dict)
    """Units that each customer has, reserved or confirmed."""
    available_after: list[int] = field(default_factory=lambda: [0])
    """Index: sequence number; value: units free just after that change."""
    refused_wrongly: list[str] = field(default_factory=list)
    """Orders whose recorded refusal stands where enough units were free."""
    gaps: list[int] = field(default_factory=list)
    """Sequence numbers that are missing."""
    impossible: list[str] = field(default_factory=list)
    """Orders with an entry that cannot follow from the one before."""
    broken: list[int] = field(default_factory=list)
    """Sequence numbers whose content does not have the digest that stands beside it."""
    chain: str = NO_DIGEST

    @property
    def segment_count(self) -> int:
        """How many segments there are after the entries so far."""
        return len(self.stock)

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Fold more entries; those of one sequence number must come together."""
        for sequence, group in groupby(entries, key=attrgetter("sequence")):
            while self.sequence + 1 < sequence:
                self.sequence += 1
                self.gaps.append(self.sequence)
                self.available_after.append(self.available)
            self.sequence = sequence
            self._apply_step(list(group))
            self.available_after.append(self.available)

    def covers(self, quantity: int, sequence: int) -> bool:
        """Were `quantity` units free just after change `sequence`? A refusal decided there was wrong if so."""
        return self.available_after[sequence] >= quantity

    def _apply_step(self, entries: Sequence[LedgerEntry]) -> None:
        chain = entries[0].chain
        if digest(self.chain, entries) != chain and not (self.gaps and self.gaps[-1] == self.sequence - 1):
            self.broken.append(self.sequence)
        self.chain = chain
        for entry in entries:
            if entry.kind in STATE_AFTER:
                self._apply_to_order(entry)
            else:
                self._apply_to_pool(entry)

    def _apply_to_pool(self, entry: LedgerEntry) -> None:
        match entry.kind:
            case "opened":
                self.opened = self.available = entry.quantity
                self._spread(entry)
            case "resized":
                self._spread(entry)
            case "closed":
                self.is_closed = True
            case "restocked":
                self.restocked += entry.quantity
                self._add(entry, +1)
            case "withdrawn":
                self.withdrawn += entry.quantity
                self._add(entry, -1)

    def _spread(self, entry: LedgerEntry) -> None:
        units = dict(entry.parts)
        count = int(entry.note) if entry.note.isdecimal() else len(self.stock)
        self.stock = [units.get(segment, 0) for segment in range(count)]

    def _add(self, entry: LedgerEntry, sign: int) -> None:
        for segment, units in entry.parts:
            if self.stock:
                self.stock[segment % len(self.stock)] += sign * units
        self.available += sign * entry.quantity

    def _apply_to_order(self, entry: LedgerEntry) -> None:
        order_id = entry.order_id or ""
        before = self.orders.get(order_id)
        is_new = before is None
        if (entry.kind in {"reserved", "refused"}) != is_new or (before is not None and before.state != "reserved"):
            self.impossible.append(order_id)
        if entry.kind == "reserved":
            self._add(entry, -1)
            self.reserved += entry.quantity
            self._buy(entry, entry.quantity)
        elif entry.kind in {"cancelled", "expired"}:
            self._add(entry, +1)
            self.reserved -= entry.quantity
            self._buy(entry, -entry.quantity)
        elif entry.kind == "confirmed":
            self.reserved -= entry.quantity
            self.confirmed += entry.quantity
        elif entry.kind == "refused" and self.available >= entry.quantity:
            self.refused_wrongly.append(order_id)
        self.orders[order_id] = FoldedOrder(STATE_AFTER[entry.kind], entry.quantity, entry.sequence, entry.customer_id)

    def _buy(self, entry: LedgerEntry, units: int) -> None:
        if entry.customer_id is None:
            return
        has = self.bought.get(entry.customer_id, 0) + units
        if has:
            self.bought[entry.customer_id] = has
        else:
            self.bought.pop(entry.customer_id, None)
