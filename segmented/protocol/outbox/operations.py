"""Operations on submitted orders: the outbox, which says whom a worker has to be told of, and the dead-letter set."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.errors import SegmentedError
from segmented.models.orders import Closed, Order, Reserved, Settled
from segmented.models.submitted import (
    DeadOrder,
    KeptMessage,
    OutboxState,
    Queued,
    Replayed,
    Submitted,
    SweepSuperseded,
    Swept,
    TakenOrders,
)
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class QueueOrders(Operation[tuple[Queued | Reserved | Settled | Closed | SegmentedError, ...]]):
    """Accept up to 1,000 orders whose units a worker takes, with their places in the outbox, in one step."""

    sku: str
    orders: tuple[Order, ...]
    publish_after_ms: int


@dataclass(frozen=True, slots=True)
class TakeOrders(Operation[TakenOrders]):
    """Begin work on up to 1,000 different orders that share a message, under one segment's lock where one is needed."""

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int
    """After which another worker may begin."""
    begun_max: int


@dataclass(frozen=True, slots=True)
class RenewWork(Operation[tuple[str, ...]]):
    """Push out until when a worker has its orders; names those that are still its own."""

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int


@dataclass(frozen=True, slots=True)
class PutOff(Operation[int]):
    """Give orders back unfinished, for `delay_ms`; says how many were buried, because they were begun too often."""

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    delay_ms: int
    counts: bool
    """Did the orders themselves fail? What stopped the worker otherwise does not count as begun."""
    begun_max: int
    reason: str
    hold_ms: int = 600_000
    """For which the units of what is buried stay reserved."""


@dataclass(frozen=True, slots=True)
class SweepOutbox(Operation[Swept | SweepSuperseded]):
    """Name up to `limit` orders to be published again, each put off by twice the time of the time before."""

    sku: str
    limit: int
    fencing_token: int | None
    base_ms: int
    most_ms: int
    hold_ms: int
    begun_max: int


@dataclass(frozen=True, slots=True)
class ReadSubmitted(Operation[tuple[Submitted, ...]]):
    """Read what is known of up to 1,000 orders, in the order asked."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadOutbox(Operation[OutboxState]):
    """Count what waits."""

    sku: str


@dataclass(frozen=True, slots=True)
class ListDead(Operation[tuple[int, tuple[DeadOrder, ...]]]):
    """Read some of the dead-letter set, and the next cursor (0 at the end)."""

    sku: str
    cursor: int


@dataclass(frozen=True, slots=True)
class ReplayDead(Operation[tuple[Replayed | Settled | None, ...]]):
    """Publish up to 1,000 dead orders again; of one that was decided, its fate; None: not in the set."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoteOutbox(Operation[None]):
    """Note that orders are submitted to a pool, so that whoever sweeps finds it."""

    sku: str


@dataclass(frozen=True, slots=True)
class ListOutboxes(Operation[tuple[str, ...]]):
    """Name the pools that orders were submitted to."""


@dataclass(frozen=True, slots=True)
class KeepMessage(Operation[bool]):
    """Keep a message that no worker could read, once; False when so many are kept that this one is not."""

    queue: str
    digest: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class ListMessages(Operation[tuple[KeptMessage, ...]]):
    """Read the messages that no worker could read, oldest first."""

    queue: str


@dataclass(frozen=True, slots=True)
class DropMessage(Operation[bool]):
    """Forget a kept message; False when there was none."""

    queue: str
    digest: str
