"""The fold of an audit: the totals in memory, the orders in a spill, so that its memory does not grow with them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.ledger_lines import LETTERS, UNHEARD, entries_of, entry_of_line, line_of, step_digest, step_of
from segmented.models.ids import plural
from segmented.models.pools import EntryKind, LedgerStep
from segmented.stock.fold import BY_LIMIT, STATE_AFTER, FoldedOrder, LedgerFold, before_first, folded
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.models import LedgerEntry

UNDECIDED: Final = frozenset({"reserved", "granted"})
BEGINNING: Final = frozenset({"reserved", "refused"})
NOTE_TABS: Final = 5
"""Tabs before the note in the line of an order, after its id."""


@dataclass(slots=True)
class OrderLine:
    """An order's last change in the ledger, as its line there."""

    kind: EntryKind
    sequence: int
    tail: str
    """The line without the order's id."""

    @property
    def record(self) -> str:
        """The record that follows from it, if all units are of one segment and nothing else is known of the order."""
        return f"{LETTERS[STATE_AFTER[self.kind]]}\t{self.tail}\t{self.sequence}"

    @property
    def may_return(self) -> bool:
        """Return whether its caller was gone when it was cancelled, so that the id can be used again."""
        return self.kind == "cancelled" and self.tail.endswith(f"\t{UNHEARD}") and self.tail.count("\t") == NOTE_TABS

    def may_precede(self, kind: EntryKind) -> bool:
        """Return whether such an entry may follow."""
        is_sold = self.kind == "confirmed" or (self.kind == "returned" and not self.tail.startswith("0\t"))
        return is_sold if kind == "returned" else self.kind in UNDECIDED

    def folded(self, order_id: str) -> FoldedOrder:
        """Return the order according to the ledger."""
        return folded(self.entry(order_id))

    def entry(self, order_id: str) -> LedgerEntry:
        """Return the line as an entry of the ledger."""
        step = LedgerStep(0, self.sequence, self.kind, 0, "", "")
        return entry_of_line(step, f"{order_id}\t{self.tail}")


@dataclass(slots=True)
class FoldedPart:
    """One part of the orders."""

    orders: dict[str, OrderLine] = field(default_factory=dict)
    inherited: dict[str, FoldedOrder] = field(default_factory=dict)
    """Orders reserved before the checkpoint at which the ledger begins, as implied by their next entry."""
    impossible: list[str] = field(default_factory=list)
    headless: set[str] = field(default_factory=set)


@dataclass(slots=True)
class AuditFold(LedgerFold):
    """A fold whose `orders` has only those that are `watched`; the others are read part by part."""

    spill: Spill | None = field(default_factory=lambda: Spill(0))
    """The lines of all orders so far; None when they are needed no more."""
    has_limit: bool = False
    """Whether the pool limits customers; otherwise `bought` stays empty."""
    watched: set[str] = field(default_factory=set)
    """Orders with drift, which a repair needs."""

    def apply_steps(self, steps: Iterable[LedgerStep]) -> None:
        """Fold more steps. One that another program wrote is left out, so that a gap remains."""
        for step in steps:
            try:
                self._apply_whole(step)
            except ValueError:
                continue

    def covers(self, quantity: int, sequence: int) -> bool:
        """Raise InvalidInput: an audit does not keep the free units after each change."""
        units = f"{quantity} {plural(quantity, 'unit', 'was')}"
        raise InvalidInput(f"whether {units} free after change {sequence} is not kept by an audit: fold the ledger")

    def add_bought(self, customer_id: str | None, units: int) -> None:
        """Count the units that a customer gains or loses, in a pool that limits customers."""
        if self.has_limit:
            LedgerFold.add_bought(self, customer_id, units)

    def watch(self, order_id: str, line: OrderLine | None) -> None:
        """Keep an order with its later changes."""
        self.watched.add(order_id)
        if line is not None:
            self.orders[order_id] = line.folded(order_id)

    def part(self, number: int) -> FoldedPart:
        """Fold the orders of one part of the spill."""
        found = FoldedPart()
        for head, line in self.spill.read(number) if self.spill is not None else ():
            kind, _, sequence = head.partition(" ")
            order_id, _, tail = line.partition("\t")
            self._judge_line(found, order_id, OrderLine(kind, int(sequence), tail))  # type: ignore[arg-type]  # a kind
        return found

    def _judge_line(self, found: FoldedPart, order_id: str, line: OrderLine) -> None:
        before = found.orders.get(order_id)
        begins = line.kind in BEGINNING or (line.kind == "cancelled" and line.tail.partition("\t")[0] == "0")
        if before is not None and before.may_return and begins:
            found.orders[order_id] = line
            return
        if before is None and not begins and self.first_sequence > 1:
            found.inherited[order_id] = before_first(line.entry(order_id))
        elif begins != (before is None) or (before is not None and not before.may_precede(line.kind)):
            found.impossible.append(order_id)
            if before is None:
                found.headless.add(order_id)
        found.orders[order_id] = line

    def _note_available(self) -> None:
        """Keep nothing: a list of all changes would grow with the ledger."""

    def _apply_whole(self, step: LedgerStep) -> None:
        if step.kind not in STATE_AFTER or step.kind == "returned" or step.sequence == self.first_sequence > 1:
            self.apply(entries_of(step))
            return
        lines = step.lines.split("\n")
        tails = Counter(line.partition("\t")[2] for line in lines)
        samples = {tail: entry_of_line(step, f"\t{tail}") for tail in tails}  # raises before anything is counted
        self.note_gap(step.sequence)
        self.sequence = step.sequence
        if step_digest(self.chain, step) != step.chain and not (self.gaps and self.gaps[-1] == step.sequence - 1):
            self.broken.append((step.sequence, tuple(line.partition("\t")[0] for line in lines)))
        self.chain = step.chain
        for tail, count in tails.items():
            self._count(samples[tail], count)
        self._keep(step, lines)
        if step.kind == "refused":
            self._judge_refusals(samples, lines)

    def _apply_to_order(self, entry: LedgerEntry) -> None:
        self._count(entry, 1)
        self._keep(step_of((entry,)), (line_of(entry),))

    def _count(self, entry: LedgerEntry, count: int) -> None:
        """Add what `count` orders with such an entry change."""
        units = entry.quantity * count
        if entry.kind == "reserved":
            self._add(entry, -count)
            self.reserved += units
            self.add_bought(entry.customer_id, units)
        elif entry.kind in {"cancelled", "expired"}:
            self._add(entry, count)
            self.reserved -= units
            self.add_bought(entry.customer_id, -units)
        elif entry.kind == "confirmed":
            self.reserved -= units
            self.confirmed += units

    def _judge_refusals(self, samples: dict[str, LedgerEntry], lines: Sequence[str]) -> None:
        for line in lines:
            order_id, _, tail = line.partition("\t")
            if self.available >= samples[tail].quantity and samples[tail].note != BY_LIMIT:
                self.refused_wrongly.append(order_id)

    def _keep(self, step: LedgerStep, lines: Sequence[str]) -> None:
        if self.spill is not None:
            self.spill.add(f"{step.kind} {step.sequence}", lines)
        if self.watched:
            for line in lines:
                if line.partition("\t")[0] in self.watched:
                    entry = entry_of_line(step, line)
                    self.orders[entry.order_id or ""] = folded(entry)
