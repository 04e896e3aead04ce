"""The model's state of a pool, and the helpers that its operations share: units, records, the ledger, locks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from segmented.ledger_lines import NO_DIGEST, digest
from segmented.models import (
    Busy,
    LedgerEntry,
    Order,
    OrderRecord,
    Part,
    PoolState,
    Reserved,
    Settled,
    SoldOut,
    Transfer,
)
from segmented.models.assignments import UNASSIGNED, Assignment
from segmented.models.profiles import pool_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models import EntryKind
    from segmented.models.archives import Archiving
    from segmented.protocol.lock.line_model import LineModel

AnswerT = TypeVar("AnswerT")

INCREASING = frozenset({"cancelled", "expired", "restocked", "received"})
"""Kinds of change after which more units may be free."""
RUN = 64
"""Changes of a pool in which submitted orders begin at the same segment."""
WORK_MAX = 1_000
"""Work after which one step begins no further order: an order that is not plain is 2, each of its parts 1."""
ORDER_WORK = 2


@dataclass(slots=True)
class Room:
    """How many due holds one operation has expired."""

    due_so_far: int = 0
    is_nothing_due: bool = False
    is_stuck: bool = False
    """Whether an order must ask again; later orders must not get its units."""
    work: int = 0
    """Work done by this step; after much of it, the step begins no further order."""

    @property
    def is_full(self) -> bool:
        """Return whether this step leaves the remaining orders to another one."""
        return self.work >= WORK_MAX


@dataclass(slots=True)
class Entry:
    """The entry of a submitted order, next to its record."""

    begun: int = 0
    published: int = 0
    order: Order | None = None
    """The requested units, if it was queued."""
    reason: str = ""
    until_ms: int = 0
    worker: str = ""


@dataclass(slots=True)
class ModelPool:
    """One pool of the model."""

    sku: str
    epoch: int
    gated: bool
    opened: int
    stock: list[int]
    limit_per_customer: int | None = None
    sale_id: str = ""
    """Identity of the sale in its order database."""
    assignment: Assignment = UNASSIGNED
    """The workers that take its submitted orders."""
    is_closed: bool = False
    archive: Archiving | None = None
    """Set while the pool is being archived."""
    frozen: tuple[int, int] | None = None
    """Epoch and sequence number that were seen, if the pool is frozen."""
    is_verified: bool = True
    """Whether a gated pool was compared with its order database since it was thawed."""
    lost: int = 0
    """Units that count as confirmed although the pool has no orders for them: lost at a thaw, or forgotten."""
    forgotten: int | None = None
    """Records of finished orders that were dropped; None: the pool keeps all."""
    forgets_from: int | None = None
    """Server milliseconds from which records may be dropped."""
    relayed: tuple[int, int] | None = None
    """Epoch and sequence number up to which a database has the ledger."""
    restocked: int = 0
    withdrawn: int = 0
    sent_to: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Other shard -> number of the last transfer there, units of all transfers there."""
    away: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Other shard -> number and units of the last transfer there, until it is acknowledged."""
    received_from: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Other shard -> number of the last transfer from there, units of all transfers from there."""
    epochs_of: dict[int, int] = field(default_factory=dict)
    """Other shard -> the latest epoch noted of it; transfers from an earlier one add nothing."""
    sent: int = 0
    received: int = 0
    increases: int = 0
    sequence: int = 0
    fence: int = 0
    available: int = 0
    reserved: int = 0
    confirmed: int = 0
    cursor: int = 0
    """The segment that last gave units to another one."""
    chain: str = NO_DIGEST
    free: dict[int, int] = field(default_factory=dict)
    locks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """segment -> (holder id, server milliseconds at which the lease expires)"""
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    bought: dict[str, int] = field(default_factory=dict)
    changes: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    ledger: list[LedgerEntry] = field(default_factory=list)
    ledger_start: int = 1
    checkpoints: tuple[int, ...] = ()
    outbox: dict[str, int] = field(default_factory=dict)
    """Submitted, unfinished order -> server milliseconds at which it is published again."""
    entries: dict[str, Entry] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    """Orders cancelled for callers that were gone: their ids can be used again."""
    sold_before: set[str] = field(default_factory=set)
    """Orders cancelled because an earlier epoch sold them: callers learn that they are confirmed."""
    dead: dict[str, tuple[int, int, str, Order | None]] = field(default_factory=dict)
    """Dead order -> how often it was begun, when and why it became dead, and its request if it was queued."""
    swept_under: int = 0
    line: LineModel | None = None
    """The processes that wait for a segment, once one did."""

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The notes of units between this shard and others."""
        kinds: tuple[tuple[Literal["sent", "away", "received"], dict[int, tuple[int, int]]], ...] = (
            ("sent", self.sent_to),
            ("away", self.away),
            ("received", self.received_from),
        )
        return tuple(sorted(Transfer(kind, other, *kept[other]) for kind, kept in kinds for other in kept))

    @property
    def missing_key(self) -> str | None:
        """The key that is gone although the numbers say that it has content. Memory loses none, so a test did it.

        The stock is not among them: the number of segments is its length here.
        """
        if self.archive is not None:
            return None
        has_units = self.reserved > 0 or self.confirmed > self.lost
        gone = {
            "ledger": not self.ledger,
            "orders": has_units and not self.orders,
            "holds": self.reserved > 0 and not self.holds,
        }
        return next((key for key, is_gone in gone.items() if is_gone), None)

    @property
    def segment_count(self) -> int:
        """The current number of segments."""
        return len(self.stock)

    def append(self, kind: EntryKind, at_us: int, entries: Sequence[LedgerEntry]) -> int:
        """Add the changes of one step to the ledger, and return their sequence number."""
        self.sequence += 1
        self.increases += kind in INCREASING
        numbered = [
            replace(entry, epoch=self.epoch, sequence=self.sequence, kind=kind, at_us=at_us) for entry in entries
        ]
        self.chain = digest(self.chain, numbered)
        self.ledger += [replace(entry, chain=self.chain) for entry in numbered]
        return self.sequence

    def gather(self, start: int, quantity: int) -> tuple[Part, ...]:
        """Take units: first from `start`, then from any other segment, beginning where some were found last."""
        parts: list[Part] = []
        needed = quantity

        def take_from(segment: int) -> None:
            nonlocal needed
            taken = min(self.stock[segment], needed)
            if taken > 0:
                parts.append((segment, taken))
                self.stock[segment] -= taken
                needed -= taken

        take_from(start)
        for offset in range(self.segment_count):
            if needed == 0:
                break
            segment = (self.cursor + offset) % self.segment_count
            take_from(segment)
            if needed == 0:
                self.cursor = segment
                break
        return tuple(parts)

    def put_back(self, record: OrderRecord) -> None:
        """Return an order's units; those of a removed segment go to another one."""
        for segment, units in record.parts:
            self.stock[segment % self.segment_count] += units
        self.available += record.quantity
        self.add_bought(record.customer_id, -record.quantity)

    def add_bought(self, customer_id: str | None, units: int) -> None:
        """Count a customer's units, if the pool limits them."""
        if self.limit_per_customer is None or customer_id is None:
            return
        self.bought[customer_id] = self.bought.get(customer_id, 0) + units
        if self.bought[customer_id] <= 0:
            del self.bought[customer_id]

    def queued(self, order_id: str) -> Order | None:
        """Return the request of an order that no worker has decided yet."""
        entry = self.entries.get(order_id)
        is_free = order_id not in self.orders or order_id in self.undone
        return entry.order if entry and is_free else None

    def binding(self, order_id: str) -> OrderRecord | None:
        """Return the record that answers for an order; one that was undone is queued again as if for the first time."""
        return None if self.queued(order_id) else self.orders.get(order_id)

    def leave_outbox(self, order_id: str, *, is_dead_kept: bool = False) -> None:
        """Stop publishing an order: it is decided."""
        self.outbox.pop(order_id, None)
        self.entries.pop(order_id, None)
        if not is_dead_kept:
            self.dead.pop(order_id, None)

    def note_free_at(self, segment: int, at_ms: int) -> None:
        """Remember when a segment may be free; a segment that a resize removed is not granted again."""
        if segment < self.segment_count:
            self.free[segment] = at_ms

    def record_of(self, order_id: str) -> OrderRecord | None:
        """Return the record with the end of its hold."""
        record, until_ms = self.orders.get(order_id), self.holds.get(order_id)
        if record is None or record.hold_until_ms == until_ms:
            return record
        return replace(record, hold_until_ms=until_ms)

    def state(self, transfers: tuple[Transfer, ...] = ()) -> PoolState:
        """Read totals and units by segment."""
        return PoolState(
            sku=self.sku,
            epoch=self.epoch,
            segment_count=self.segment_count,
            gated=self.gated,
            sequence=self.sequence,
            opened=self.opened,
            available=self.available,
            reserved=self.reserved,
            confirmed=self.confirmed,
            order_count=len(self.orders),
            stock=tuple(self.stock),
            restocked=self.restocked,
            withdrawn=self.withdrawn,
            sent=self.sent,
            received=self.received,
            limit_per_customer=self.limit_per_customer,
            is_closed=self.is_closed,
            profile=str(pool_profile(self.sku, None, gated=self.gated)),
            sale_id=self.sale_id,
            queue=self.assignment.queue,
            step=self.assignment.step,
            frozen=self.frozen or ((self.epoch, self.sequence) if self.missing_key else None),
            lost=self.lost,
            forgotten=self.forgotten,
            transfers=transfers,
        )


def new_record(order: Order, quantity: int, segment: int, parts: tuple[Part, ...]) -> OrderRecord:
    """Return the record of an order without a lease."""
    return OrderRecord(
        order_id=order.order_id,
        state="reserved",
        quantity=quantity,
        segment=segment,
        parts=parts,
        holder_id=None,
        fencing_token=None,
        hold_until_ms=None,
        customer_id=order.customer_id,
        sequence=0,
        asked=order.quantity,
    )


def entry_of(record: OrderRecord) -> LedgerEntry:
    """Return the change of an order, to be numbered."""
    return LedgerEntry(
        epoch=0,
        sequence=0,
        kind="reserved",
        at_us=0,
        order_id=record.order_id,
        quantity=record.quantity,
        parts=record.parts,
        segment=record.segment if record.segment >= 0 else None,
        fencing_token=record.fencing_token,
        customer_id=record.customer_id,
    )


def pool_entry(quantity: int, parts: tuple[Part, ...], *, change_id: str | None = None, note: str = "") -> LedgerEntry:
    """Return a change of the pool, to be numbered."""
    return LedgerEntry(0, 0, "opened", 0, change_id, quantity, parts, None, None, None, note)


def even_parts(units: int, segment_count: int) -> tuple[Part, ...]:
    """Split units evenly over segments, leaving out segments that get none."""
    base, extra = divmod(units, segment_count)
    shares = ((segment, base + (segment < extra)) for segment in range(segment_count))
    return tuple((segment, share) for segment, share in shares if share)


def part_count(record: OrderRecord) -> int:
    """Return how many parts a record lists; 0 if all its units are from its own segment."""
    return 0 if record.parts in {(), ((record.segment, record.quantity),)} else len(record.parts)


def is_plain(record: OrderRecord) -> bool:
    """Return whether a reservation has units of its own segment and nothing else."""
    has_more = record.customer_id or record.holder_id or record.fencing_token is not None or record.cart_home
    is_whole = record.asked == record.quantity and record.segment >= 0 and part_count(record) == 0
    return record.state == "reserved" and is_whole and not has_more


def reserved_answer(pool: ModelPool, record: OrderRecord, *, replay: bool) -> Reserved:
    """Answer a reservation."""
    return Reserved(
        record.order_id,
        record.quantity,
        record.segment,
        record.parts,
        pool.epoch,
        record.sequence,
        replay=replay,
        hold_until_ms=pool.holds.get(record.order_id, 0),
    )


def as_of_now(pool: ModelPool, answer: AnswerT) -> AnswerT | SoldOut | Busy:
    """Set a refusal's numbers to the pool's at its sequence number, as in the ledger at the end of a call."""
    match answer:
        case SoldOut():
            return replace(answer, available=pool.available, reserved=pool.reserved, sequence=pool.sequence)
        case Busy():
            return replace(answer, sequence=pool.sequence)
    return answer


def settled_answer(record: OrderRecord, *, replay: bool) -> Settled:
    """Answer with an order's final state; one that was sold before had perhaps no units here yet."""
    is_sold = record.state == "confirmed"
    return Settled(
        order_id=record.order_id,
        state=record.state,
        quantity=record.quantity or (record.asked if is_sold else 0),
        segment=record.segment,
        fencing_token=record.fencing_token,
        sequence=record.sequence,
        replay=replay,
    )
