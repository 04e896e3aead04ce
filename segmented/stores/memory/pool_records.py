"""What the model keeps of a pool, and the answers read from it. No decisions: those are in `pools`."""

from __future__ import annotations

from dataclasses import dataclass, field

from segmented.models import LedgerEntry, Order, OrderRecord, Part, PoolState, Reserved, Settled


@dataclass(slots=True)
class ModelPool:
    """One pool as the model keeps it."""

    sku: str
    epoch: int
    gated: bool
    opened: int
    stock: list[int]
    sequence: int = 0
    fence: int = 0
    available: int = 0
    reserved: int = 0
    confirmed: int = 0
    free: dict[int, int] = field(default_factory=dict)
    locks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """segment -> (holder id, server milliseconds at which the lease lapses)"""
    orders: dict[str, OrderRecord] = field(default_factory=dict)
    ledger: list[LedgerEntry] = field(default_factory=list)


def new_record(order: Order, segment: int, parts: tuple[Part, ...], hold_until_ms: int) -> OrderRecord:
    """Return the record of an order that nobody holds a lease for."""
    return OrderRecord(
        order_id=order.order_id,
        state="reserved",
        quantity=order.quantity,
        segment=segment,
        parts=parts,
        holder_id=None,
        fencing_token=None,
        hold_until_ms=hold_until_ms,
        customer_id=order.customer_id,
        fingerprint=order.fingerprint,
        sequence=0,
    )


def gathered(pool: ModelPool, start: int, quantity: int) -> tuple[Part, ...]:
    """Return which units an order takes: from `start` first, then from the segments after it, round to it."""
    parts: list[Part] = []
    needed = quantity
    for step in range(len(pool.stock)):
        segment = (start + step) % len(pool.stock)
        taken = min(pool.stock[segment], needed)
        if taken > 0:
            parts.append((segment, taken))
            needed -= taken
    return tuple(parts)


def pool_state(pool: ModelPool) -> PoolState:
    """Read totals and units a segment."""
    return PoolState(
        sku=pool.sku,
        epoch=pool.epoch,
        segment_count=len(pool.stock),
        gated=pool.gated,
        sequence=pool.sequence,
        opened=pool.opened,
        available=pool.available,
        reserved=pool.reserved,
        confirmed=pool.confirmed,
        order_count=len(pool.orders),
        stock=tuple(pool.stock),
    )


def reserved_answer(pool: ModelPool, record: OrderRecord, *, replay: bool) -> Reserved:
    """Answer a reservation."""
    return Reserved(
        record.order_id, record.quantity, record.segment, record.parts, pool.epoch, record.sequence, replay=replay
    )


def settled_answer(record: OrderRecord, *, replay: bool) -> Settled:
    """Answer with an order's fate."""
    return Settled(
        order_id=record.order_id,
        state=record.state,
        quantity=record.quantity,
        segment=record.segment,
        fencing_token=record.fencing_token,
        sequence=record.sequence,
        replay=replay,
    )
