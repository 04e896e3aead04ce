"""Submitted orders: the answers when one is accepted, begun by a worker, put off or moved to the dead-letter set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from segmented.models.orders import (
    Busy,
    Closed,
    Decided,
    Done,
    LimitReached,
    NotDone,
    Order,
    OrderRecord,
    Part,
    Reserved,
    Settled,
    SoldOut,
)

REASON_MAX: Final = 200
SUBMITTED_UNTIL_MS: Final = 253_402_300_798_000
"""The end of the hold of an order in the outbox, which does not expire; a cart's pin ends one second later."""
Deciding = Literal["at acceptance", "in the worker"]
"""When a submitted order's units are taken."""
SubmittedState = Literal[
    "queued", "reserved", "confirmed", "cancelled", "expired", "refused", "returned", "dead", "unknown"
]
"""States of a submitted order: queued and reserved are in progress; a dead one is no longer published to workers."""
FINAL_STATES: frozenset[SubmittedState] = frozenset(
    {"confirmed", "cancelled", "expired", "refused", "returned", "dead", "unknown"}
)


@dataclass(frozen=True, slots=True)
class Queued(Done):
    """The order is accepted; a worker takes its units, or refuses it. As a replay, it was accepted before."""

    order_id: str
    replay: bool


Accepted = Queued | Reserved | Decided | SoldOut | Busy | Closed | LimitReached
"""The answer to a submitted order."""


@dataclass(frozen=True, slots=True)
class BegunOrder:
    """An order that belongs to this worker for a while: its units are taken."""

    order: Order
    quantity: int
    """Units taken: fewer than asked for if fewer were left."""
    segment: int
    parts: tuple[Part, ...]
    fencing_token: int | None
    """The segment lock's token; None for an order whose units were taken at acceptance, without a lock."""
    epoch: int
    sequence: int
    begun: int
    """How often a worker has begun it, including this time."""


@dataclass(frozen=True, slots=True)
class TooManyOthers:
    """The order was begun before and not finished: it is published again, in a smaller envelope."""

    order_id: str


@dataclass(frozen=True, slots=True)
class Dead(NotDone):
    """The order was begun too often: it is in the dead-letter set."""

    order_id: str
    begun: int


@dataclass(frozen=True, slots=True)
class TakenOrders:
    """The answers for each order of an envelope, in their order; a failure takes its order's place."""

    orders: tuple[BegunOrder | Settled | Busy | TooManyOthers | Dead | Exception, ...]
    free_in_ms: int | None
    """Milliseconds until some segment may be free."""
    epoch: int
    is_gated: bool
    """Whether an order database decides the pool's orders: it may have been opened again since the worker asked."""
    ahead: int = 0
    """Processes that are ahead of the worker's in the pool's line, if no segment was free."""

    def lease(self) -> tuple[int, int] | None:
        """Return the segment that the worker holds for these orders, with its fencing token; None if it holds none."""
        begun = (order for order in self.orders if isinstance(order, BegunOrder))
        return next(((one.segment, one.fencing_token) for one in begun if one.fencing_token is not None), None)


@dataclass(frozen=True, slots=True)
class Swept:
    """The orders to publish again, and those moved to the dead-letter set."""

    due: tuple[tuple[str, int], ...]
    """Order id, and how often a worker has begun it."""
    buried: tuple[str, ...]
    is_more_due: bool
    traces: dict[str, str] = field(default_factory=dict)
    """Order id -> the trace context in which it was submitted."""


@dataclass(frozen=True, slots=True)
class SweepSuperseded:
    """A sweep with a later fencing token has been seen; nothing changed."""

    fencing_token: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """The known state of a submitted order."""

    order_id: str
    state: SubmittedState
    record: OrderRecord | None
    """The pool's record, once the units were taken or refused."""
    begun: int
    published: int
    """How often it was published again since a worker last began it."""
    reason: str
    """Why it was last put off, or given up."""
    is_in_outbox: bool
    order: Order | None = None
    """The order's content, until a worker takes its units."""
    worker: str = ""
    """The holder id of the worker that processes it; it proves ownership, so do not show it in full."""
    until_ms: int = 0
    """End of that worker's time. This and the other times are the server's; `read_at_ms` is when this was read."""
    due_ms: int | None = None
    """When it is published again; None: it is not in the outbox."""
    dead_at_ms: int | None = None
    """When it was given up; None: not in the dead-letter set. An order decided since stays there until a replay."""
    read_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class OutboxState:
    """The contents of a pool's outbox."""

    waiting: int
    due: int
    dead: int
    oldest_due_ms: int
    """How long the first order has been due."""


@dataclass(frozen=True, slots=True)
class DeadOrder:
    """An order in the dead-letter set."""

    order_id: str
    begun: int
    at_ms: int
    """When it was given up, by the server's clock."""
    reason: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The order is out of the dead-letter set, and published again."""

    order_id: str


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that no worker could read."""

    digest: str
    at_ms: int
    reason: str
    text: str
    age_ms: int = 0
    """How long it has been kept, by the server's clock."""


def one_line(reason: str) -> str:
    """Shorten the reason of a failure to one line of up to 200 characters that can be stored and printed."""
    line = " ".join(reason.split())[:REASON_MAX]
    return line if line.isprintable() else "".join(one if one.isprintable() else "?" for one in line)


def encodable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode, such as those of a file name read as bytes: any text must be kept."""
    return text.encode(errors="backslashreplace").decode()
