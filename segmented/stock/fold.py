"""Fold the ledger: compute what every number should be, from the changes alone.

The totals are in memory, the orders' lines in a spill, so that the memory of an audit does not grow with them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from segmented.errors import InvalidInput
from segmented.ledger_lines import (
    LETTERS,
    NO_DIGEST,
    UNHEARD,
    Checkpoint,
    entries_of,
    entry_of_line,
    given_back,
    line_of,
    parse_checkpoint,
    step_digest,
    step_of,
)
from segmented.models.ids import plural
from segmented.models.pools import EntryKind, LedgerStep
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from segmented.models import LedgerEntry, OrderState, Part

STATE_AFTER: Final[dict[EntryKind, OrderState]] = {
    "reserved": "reserved",
    "granted": "reserved",
    "confirmed": "confirmed",
    "cancelled": "cancelled",
    "expired": "expired",
    "refused": "refused",
    "returned": "confirmed",
}
"""An order's state after a change; the other kinds are changes of the pool."""

BY_LIMIT: Final = "limit"
"""Note of a refusal because the customer already has the maximum, not for lack of units."""
GAP_MAX: Final = 100_000
UNDECIDED: Final = frozenset({"reserved", "granted"})
BEGINNING: Final = frozenset({"reserved", "refused"})
NOTE_TABS: Final = 5
"""Tabs before the note in the line of an order, after its id."""
SUMS: Final = ("opened", "restocked", "withdrawn", "sent", "received", "reserved", "confirmed")
"""Totals in a checkpoint, besides the free units."""


@dataclass(slots=True)
class FoldedOrder:
    """An order according to the ledger."""

    state: OrderState
    quantity: int
    sequence: int
    customer_id: str | None = None
    segment: int | None = None
    parts: tuple[Part, ...] = ()
    fencing_token: int | None = None

    def __str__(self) -> str:
        return f"{self.state} with {self.quantity} {plural(self.quantity, 'unit')} at {self.sequence}"


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
class LedgerFold:
    """Totals, units of each segment and orders after the entries applied so far, oldest first without a gap.

    A trimmed ledger begins with a checkpoint: pass its sequence number as `first_sequence`, and the one before it as
    `sequence`. Orders whose entries are all older are not included. `part` reads the orders.
    """

    sequence: int = 0
    first_sequence: int = 1
    opened: int = 0
    restocked: int = 0
    withdrawn: int = 0
    sent: int = 0
    received: int = 0
    transfers: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(sent or received, other shard) -> number of the last transfer, total units since this ledger begins."""
    last_sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Other shard -> number and units of the last transfer to it since this ledger begins."""
    available: int = 0
    reserved: int = 0
    confirmed: int = 0
    is_closed: bool = False
    stock: list[int] = field(default_factory=list)
    orders: dict[str, FoldedOrder] = field(default_factory=dict)
    """The orders that are watched."""
    changes: dict[str, str] = field(default_factory=dict)
    """The change made under each restock or withdrawal id, in the pool's notation."""
    bought: dict[str, int] = field(default_factory=dict)
    """Units that each customer has, reserved or confirmed; after a trim, gained or lost since the checkpoint."""
    base: Checkpoint | None = None
    """The checkpoint at which this ledger begins."""
    available_after: list[int] | None = field(default_factory=lambda: [0])
    """Free units after each change, unless None; the first item is the number before `first_sequence`."""
    returned_lost: int = 0
    """Units of orders without a record that were returned since this ledger begins."""
    refused_wrongly: list[str] = field(default_factory=list)
    """Orders with a recorded refusal although enough units were free."""
    gaps: list[int] = field(default_factory=list)
    """Missing sequence numbers."""
    impossible: list[str] = field(default_factory=list)
    """Orders with an entry that cannot follow from the one before, of the parts that an audit has read."""
    headless: set[str] = field(default_factory=set)
    """The subset of `impossible` whose first entry is not a reservation."""
    broken: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Sequence numbers whose content does not match its digest, and the orders named there."""
    contradicted: list[tuple[int, str]] = field(default_factory=list)
    """Checkpoints that contradict the changes before them."""
    chain: str = NO_DIGEST
    spill: Spill | None = field(default_factory=lambda: Spill(0))
    """The lines of all orders so far; None when they are needed no more."""
    has_limit: bool = True
    """Whether the pool limits customers; otherwise `bought` stays empty."""
    watched: set[str] = field(default_factory=set)
    """Orders with drift, which a repair needs."""

    @property
    def segment_count(self) -> int:
        """Number of segments after the entries so far."""
        return len(self.stock)

    @property
    def is_sound(self) -> bool:
        """Return whether the ledger is complete and unchanged, so that its numbers can be trusted."""
        return not (self.gaps or self.broken)

    def apply(self, entries: Iterable[LedgerEntry]) -> None:
        """Fold more entries; entries of the same sequence number must come together."""
        self.apply_steps(step_of(list(group)) for _, group in groupby(entries, key=attrgetter("sequence")))

    def apply_steps(self, steps: Iterable[LedgerStep]) -> None:
        """Fold more steps. One that another program wrote is left out, so that a gap remains."""
        for step in steps:
            try:
                self._apply_step(step)
            except ValueError:
                continue

    def note_gap(self, end: int) -> None:
        """Count every sequence number before `end` that has not come as missing.

        Raises InvalidInput for more than 100,000 at once: then the number itself was overwritten.
        """
        if end - self.sequence > GAP_MAX:
            raise InvalidInput(f"changes {self.sequence + 1} to {end - 1} are missing in the ledger: audit the pool")
        while self.sequence + 1 < end:
            self.sequence += 1
            self.gaps.append(self.sequence)
            self._note_available()

    def covers(self, quantity: int, sequence: int) -> bool:
        """Return whether `quantity` units were free just after change `sequence`, so that a refusal there was wrong.

        Raises InvalidInput for a change before the checkpoint at which the ledger begins.
        """
        index = sequence - self.first_sequence + 1
        if index < 0:
            raise InvalidInput(f"change {sequence} was trimmed: the ledger begins with {self.first_sequence}")
        assert self.available_after is not None  # no audit asks
        return self.available_after[index] >= quantity

    def add_bought(self, customer_id: str | None, units: int) -> None:
        """Count the units that a customer gains or loses, in a pool that limits customers."""
        if customer_id is None or not self.has_limit:
            return
        has = self.bought.get(customer_id, 0) + units
        if has:
            self.bought[customer_id] = has
        else:
            self.bought.pop(customer_id, None)

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
        if self.available_after is not None:
            self.available_after.append(self.available)

    def _apply_step(self, step: LedgerStep) -> None:
        """Fold what one sequence number changed. Raises ValueError, before anything is counted, if it is unreadable."""
        lines = step.lines.split("\n")
        is_of_orders = step.kind in STATE_AFTER and step.kind != "returned"
        # Most lines are the same few, apart from their order ids.
        tails = Counter(line.partition("\t")[2] for line in lines) if is_of_orders else {}
        samples = {tail: entry_of_line(step, f"\t{tail}") for tail in tails}
        entries = [] if is_of_orders else entries_of(step)
        self.note_gap(step.sequence)
        self.sequence = step.sequence
        before = self.chain
        if step.sequence == self.first_sequence > 1:
            self.base = parse_checkpoint(entries[0].note) if step.kind == "checkpoint" else None
            before = self.base.chain_before if self.base else ""
        if step_digest(before, step) != step.chain and not (self.gaps and self.gaps[-1] == step.sequence - 1):
            order_ids = tuple(line.partition("\t")[0] for line in lines) if step.kind in STATE_AFTER else ()
            self.broken.append((step.sequence, order_ids))
        self.chain = step.chain
        for tail, count in tails.items():
            self._count(samples[tail], count)
        for entry in entries:
            self._apply_entry(entry)
        if is_of_orders:
            self._keep(step, lines)
        if step.kind == "refused":
            self._judge_refusals(samples, lines)
        self._note_available()

    def _apply_entry(self, entry: LedgerEntry) -> None:
        if entry.kind != "returned":
            self._apply_to_pool(entry)
            return
        self._give_back(entry)
        if not is_of_lost(entry):
            self._keep(step_of((entry,)), (line_of(entry),))

    def _apply_to_pool(self, entry: LedgerEntry) -> None:
        match entry.kind:
            case "opened":
                self.opened = self.available = entry.quantity
                self._spread(entry, int(entry.note) if entry.note.isdecimal() else len(self.stock))
            case "resized":
                self._resize(entry, int(entry.note) if entry.note.isdecimal() else len(self.stock))
            case "closed":
                self.is_closed = True
            case "restocked":
                self.restocked += entry.quantity
                self._add(entry, +1)
                self.changes[entry.order_id or ""] = f"restocked {entry.quantity} {entry.sequence}"
            case "withdrawn":
                self.withdrawn += entry.quantity
                self._add(entry, -1)
                self.changes[entry.order_id or ""] = f"withdrawn {entry.quantity} {entry.sequence}"
            case "sent" | "received":
                self._transfer(entry)
            case "checkpoint":
                self._check(entry)

    def _give_back(self, entry: LedgerEntry) -> None:
        parts, return_id = given_back(entry)
        units = sum(count for _, count in parts)
        for segment, count in parts:
            if self.stock:
                self.stock[segment % len(self.stock)] += count
        self.available += units
        self.confirmed -= units
        self.returned_lost += units if is_of_lost(entry) else 0
        self.add_bought(entry.customer_id, -units)
        self.changes[return_id] = f"returned {units} {entry.sequence} {entry.order_id}"

    def _transfer(self, entry: LedgerEntry) -> None:
        other, _, number = (entry.order_id or "").partition(":")
        if entry.kind == "sent":
            self.sent += entry.quantity
            self._add(entry, -1)
        else:
            self.received += entry.quantity
            self._add(entry, +1)
        if other.isdecimal() and number.isdecimal():
            place = entry.kind, int(other)
            self.transfers[place] = int(number), self.transfers.get(place, (0, 0))[1] + entry.quantity
            if entry.kind == "sent":
                self.last_sent[int(other)] = int(number), entry.quantity

    def _spread(self, entry: LedgerEntry, count: int) -> None:
        units = dict(entry.parts)
        self.stock = [units.get(segment, 0) for segment in range(count)]

    def _resize(self, entry: LedgerEntry, count: int) -> None:
        """Apply a resize. If it spread units written from outside, spread the units that the ledger expects."""
        if entry.quantity == self.available or count == 0:
            self._spread(entry, count)
            return
        base, extra = divmod(self.available, count)
        self.stock = [base + (segment < extra) for segment in range(count)]
        assert sum(self.stock) == self.available, "a resize neither creates nor loses a unit"

    def _add(self, entry: LedgerEntry, sign: int) -> None:
        for segment, units in entry.parts:
            if self.stock:
                self.stock[segment % len(self.stock)] += sign * units
        self.available += sign * entry.quantity

    def _check(self, entry: LedgerEntry) -> None:
        """Start from a checkpoint, or compare one with the changes before it."""
        found = parse_checkpoint(entry.note)
        if found is None:
            self.contradicted.append((entry.sequence, "it cannot be read"))
        elif entry.sequence == self.first_sequence:
            self.opened, self.restocked, self.withdrawn = found.opened, found.restocked, found.withdrawn
            self.sent, self.received = found.sent, found.received
            self.available, self.reserved, self.confirmed = entry.quantity, found.reserved, found.confirmed
            self.is_closed = found.is_closed
            self._spread(entry, found.segment_count)
        else:
            differing = [
                f"{name} {said}, the changes before it {getattr(self, name)}"
                for name, said in (("available", entry.quantity), *((name, getattr(found, name)) for name in SUMS))
                if said != getattr(self, name)
            ]
            if found.is_closed != self.is_closed:
                differing.append("another answer to whether the pool is closed")
            units = dict(entry.parts)
            if [units.get(segment, 0) for segment in range(found.segment_count)] != self.stock:
                differing.append("other units in segments")
            if differing:
                self.contradicted.append((entry.sequence, f"it says {'; '.join(differing)}"))

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


def is_of_lost(entry: LedgerEntry) -> bool:
    """Return whether an entry is the return of an order that the pool has no record of."""
    return entry.kind == "returned" and entry.segment is None


def needed_before(kind: EntryKind) -> OrderState:
    """Return the state that an order must have before such an entry."""
    return "confirmed" if kind == "returned" else "reserved"


def before_first(entry: LedgerEntry) -> FoldedOrder:
    """Return an order before the first entry that a trimmed ledger has of it."""
    returned = sum(count for _, count in given_back(entry)[0]) if entry.kind == "returned" else 0
    return FoldedOrder(needed_before(entry.kind), entry.quantity + returned, 0, entry.customer_id)


def folded(entry: LedgerEntry) -> FoldedOrder:
    """Return an order after its latest entry."""
    return FoldedOrder(
        "returned" if entry.kind == "returned" and not entry.quantity else STATE_AFTER[entry.kind],
        entry.quantity,
        entry.sequence,
        entry.customer_id,
        entry.segment,
        entry.parts,
        entry.fencing_token,
    )
