"""Operations on submitted orders: the outbox, from which orders are published to workers, and the dead-letter set."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.errors import SegmentedError
from segmented.models.assignments import UNASSIGNED, Assignment
from segmented.models.orders import Closed, Decided, Order, Reserved, Settled
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
from segmented.protocol.lock.operations import NEWCOMER


@dataclass(frozen=True, slots=True)
class QueueOrders(Operation[tuple[Queued | Reserved | Decided | Closed | SegmentedError, ...]]):
    """Accept up to 1,000 orders whose units a worker will take, with their outbox entries, in one step."""

    sku: str
    orders: tuple[Order, ...]
    publish_after_ms: int


@dataclass(frozen=True, slots=True)
class TakeOrders(Operation[TakenOrders]):
    """Begin to process up to 1,000 different orders of one message, under one segment's lock if needed.

    One step for 200 orders, or for fewer if they have many parts.
    """

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int
    """Time after which another worker may begin."""
    begun_max: int
    above: int = 0
    """The order database has accepted this token: take a higher one."""
    epoch: int | None = None
    """The epoch in which the worker has asked the order database for these orders: raises EpochEnded if a gated pool is
    in another one. None: not compared.
    """
    earlier: int = 0
    """How many orders of the message earlier steps have answered."""
    lease: tuple[int, int] | None = None
    """The segment that an earlier step took for the message, and its fencing token."""
    assignment: Assignment = UNASSIGNED
    """Queue and step of the worker: raises AssignedElsewhere if the pool names others."""
    party: str = NEWCOMER
    """As for `Grant`, but a segment is left to the processes that wait in any case."""


@dataclass(frozen=True, slots=True)
class RenewWork(Operation[tuple[str, ...]]):
    """Extend a worker's time for its orders; returns those that are still its own."""

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    ttl_ms: int
    hold_ms: int
    work_ms: int


@dataclass(frozen=True, slots=True)
class PutOff(Operation[int]):
    """Give orders back unfinished, for `delay_ms`; returns how many became dead because they were begun too often.

    One step for 500 orders.
    """

    sku: str
    order_ids: tuple[str, ...]
    holder_id: str
    delay_ms: int
    counts: bool
    """Whether the orders themselves failed; if the worker stopped for another reason, they do not count as begun."""
    begun_max: int
    reason: str
    hold_ms: int = 600_000
    """Time for which the units of dead orders stay reserved."""


@dataclass(frozen=True, slots=True)
class SweepOutbox(Operation[Swept | SweepSuperseded]):
    """Return up to `limit` orders to publish again; each one's delay doubles every time."""

    sku: str
    limit: int
    fencing_token: int | None
    base_ms: int
    most_ms: int
    hold_ms: int
    begun_max: int
    assignment: Assignment = UNASSIGNED
    """Queue and step of the workers that get the messages: raises AssignedElsewhere if the pool names others."""


@dataclass(frozen=True, slots=True)
class ReadSubmitted(Operation[tuple[Submitted, ...]]):
    """Read the full state of up to 1,000 orders, in the given order."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadOutbox(Operation[OutboxState]):
    """Count the waiting orders."""

    sku: str


@dataclass(frozen=True, slots=True)
class ListDead(Operation[tuple[int, tuple[DeadOrder, ...]]]):
    """Read some of the dead-letter set, and the next cursor (0 at the end)."""

    sku: str
    cursor: int


@dataclass(frozen=True, slots=True)
class ReplayDead(Operation[tuple[Replayed | Settled | None, ...]]):
    """Publish up to 1,000 dead orders again; returns a decided order's final state; None: not in the set."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoteOutbox(Operation[None]):
    """Note that orders are submitted to a pool, so that the sweep finds it."""

    sku: str


@dataclass(frozen=True, slots=True)
class ListOutboxes(Operation[tuple[str, ...]]):
    """List the pools that orders were submitted to."""


@dataclass(frozen=True, slots=True)
class KeepMessage(Operation[bool]):
    """Keep a message that no worker could read, once; False if too many are kept already."""

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
    """Delete a kept message; False if there was none."""

    queue: str
    digest: str
