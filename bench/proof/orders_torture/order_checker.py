"""Compares the answers to the submitter with the pool's ledger and the order database.

The checker takes a byte or two per order, so that a million orders fit into a few megabytes. It does not rely on the
library's own audit: it folds the ledger's entries again, one by one.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.proof.orders_torture.event_log import number_of, order_id
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models import LedgerEntry

ACCEPTED: Final = 1
REFUSED_AT_DOOR: Final = 2
MOST: Final = 255
NAMED_MAX: Final = 5
DECISIONS: Final = frozenset({"confirmed", "refused", "cancelled", "expired"})
MUST_BE_ZERO: Final = {
    "lost": "lost (accepted, not decided)",
    "doubled": "doubled (more than one effect)",
    "oversold": "oversold, units",
    "refused_wrongly": "refused wrongly",
    "uncalled": "effects without an accepted order",
}


@dataclass(slots=True)
class Count:
    """A number of orders, and the names of the first few."""

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more order."""
        self.count += 1
        if len(self.named) < NAMED_MAX:
            self.named.append(name)


@dataclass(slots=True)
class Verdict:
    """The result of the check."""

    accepted: int = 0
    confirmed: int = 0
    refused: int = 0
    units_confirmed: int = 0
    units_reserved: int = 0
    units_available: int = 0
    lost: Count = field(default_factory=Count)
    doubled: Count = field(default_factory=Count)
    oversold: Count = field(default_factory=Count)
    refused_wrongly: Count = field(default_factory=Count)
    uncalled: Count = field(default_factory=Count)

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts that must be 0."""
        return {name: getattr(self, name).count for name in MUST_BE_ZERO}

    @property
    def broken(self) -> list[str]:
        """Return one sentence per guarantee that did not hold."""
        sentences = []
        for name, label in MUST_BE_ZERO.items():
            found: Count = getattr(self, name)
            named = f" ({', '.join(found.named)}{', ...' if found.count > len(found.named) else ''})"
            if found.count:
                sentences.append(f"{label}: {found.count:,}, must be 0{named if found.named else ''}")
        return sentences


class OrderChecker:
    """Everything known of each order. Feed it the answers, then the ledger, then the database's rows."""

    def __init__(self, order_count: int, stock: int, *, has_database: bool) -> None:
        """Create a checker for that many orders, with nothing known of them."""
        self._count = order_count
        self._stock = stock
        self._has_database = has_database
        size = order_count + 1
        self._answers = bytearray(size)
        self._quantities = bytearray(size)
        self._reserved = bytearray(size)
        self._confirmed = bytearray(size)
        self._refused = bytearray(size)
        self._given_back = bytearray(size)
        self._rows = bytearray(size)
        self._free_at_door = stock
        """Units less those of accepted orders: there is one submitter, and units are never given back."""
        self.decided_us = array("q", bytes(8 * size))
        """When each order was decided, by the stock server's clock."""
        self._verdict = Verdict()
        self._available = 0
        self._held = 0
        """Units reserved or confirmed."""
        self._sold = 0
        self._most_held = 0
        self._row_units = 0
        self.answered = 0

    def answer(self, line: str) -> None:
        """Record a line of the submitter's log. Raises SegmentedError for an impossible line."""
        kind, *numbers = line.split(" ")
        try:
            number, quantity = map(int, numbers)
        except ValueError:
            kind, number, quantity = "?", 0, 0
        if kind not in {"a", "f"} or not 1 <= number <= self._count or self._answers[number]:
            message = f"the submitter's log cannot be counted: {line!r}"
            raise SegmentedError(message)
        self.answered += 1
        self._answers[number] = ACCEPTED if kind == "a" else REFUSED_AT_DOOR
        self._quantities[number] = quantity
        if kind == "a":
            self._verdict.accepted += 1
            self._free_at_door -= quantity
        elif self._free_at_door >= quantity:
            self._verdict.refused_wrongly.add(order_id(number))

    @property
    def accepted(self) -> int:
        """How many orders have been accepted so far."""
        return self._verdict.accepted

    def ledger(self, entries: Iterable[LedgerEntry]) -> None:
        """Fold the pool's ledger, from its first entry on."""
        for entry in entries:
            self._enter(entry)

    def rows(self, found: Iterable[tuple[str, str, int]]) -> None:
        """Record the database's rows: order id, state, quantity."""
        for name, state, quantity in found:
            if state != "confirmed":
                continue
            self._row_units += quantity
            number = self._own(name)
            if number:
                _bump(self._rows, number)
                self._check_quantity(number, quantity)

    def verdict(self) -> Verdict:
        """Compare all sources, and return the result. Call it once."""
        verdict = self._verdict
        for number in range(1, self._count + 1):
            self._draw(number)
        verdict.units_reserved, verdict.units_available = self._held - self._sold, self._available
        verdict.oversold.count = max(0, self._sold - self._stock, self._most_held - self._stock)
        if self._has_database:
            verdict.oversold.count = max(verdict.oversold.count, self._row_units - self._stock)
        return verdict

    def _draw(self, number: int) -> None:
        verdict = self._verdict
        confirmed, refused, rows = self._confirmed[number], self._refused[number], self._rows[number]
        effects = max(confirmed, rows, self._reserved[number] - self._given_back[number])
        if self._answers[number] == REFUSED_AT_DOOR:
            verdict.refused += 1
            if effects:
                verdict.uncalled.add(order_id(number))
            return
        if self._answers[number] != ACCEPTED:
            if effects or refused:
                verdict.uncalled.add(order_id(number))
            return
        is_sold = confirmed > 0 and (rows > 0 or not self._has_database)
        is_refused = refused > 0 and not confirmed and not rows
        verdict.confirmed += is_sold
        verdict.refused += is_refused
        if not is_sold and not is_refused:
            verdict.lost.add(order_id(number))
        if effects > 1 or (refused and effects) or refused > 1:
            verdict.doubled.add(order_id(number))

    def _enter(self, entry: LedgerEntry) -> None:
        quantity = entry.quantity
        if entry.kind == "opened":
            self._available = quantity
            return
        if entry.kind not in DECISIONS and entry.kind != "reserved":
            return
        number = self._own(entry.order_id or "")
        if entry.kind == "refused":
            if self._available >= quantity:
                self._verdict.refused_wrongly.add(entry.order_id or "")
        elif entry.kind == "reserved":
            self._available -= quantity
            self._held += quantity
            self._most_held = max(self._most_held, self._held)
        elif entry.kind == "confirmed":
            self._sold += quantity
            self._verdict.units_confirmed += quantity
        else:
            self._available += quantity
            self._held -= quantity
        if number:
            self._note(number, entry)

    def _note(self, number: int, entry: LedgerEntry) -> None:
        self._check_quantity(number, entry.quantity)
        if entry.kind == "reserved":
            _bump(self._reserved, number)
            return
        is_held = self._reserved[number] > self._given_back[number]
        if entry.kind != "refused" and entry.quantity and not is_held:  # the order was never reserved
            self._verdict.uncalled.add(entry.order_id or "")
        _bump({"confirmed": self._confirmed, "refused": self._refused}.get(entry.kind, self._given_back), number)
        if not self.decided_us[number]:
            self.decided_us[number] = entry.at_us

    def _own(self, name: str) -> int:
        number = number_of(name)
        if 1 <= number <= self._count:
            return number
        self._verdict.uncalled.add(name)
        return 0

    def _check_quantity(self, number: int, quantity: int) -> None:
        if self._answers[number] and self._quantities[number] != quantity:
            self._verdict.uncalled.add(order_id(number))


def _bump(counts: bytearray, number: int) -> None:
    counts[number] = min(MOST, counts[number] + 1)
