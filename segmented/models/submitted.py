"""Submitted orders: what is answered when one is accepted, begun by a worker, put off or given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from segmented.models.orders import Busy, Closed, LimitReached, Order, Part, Reserved, Settled, SoldOut

if TYPE_CHECKING:
    from segmented.models.orders import OrderRecord

REASON_MAX: Final = 200
SUBMITTED_UNTIL_MS: Final = 253_402_300_798_000
"""The end of the hold of an order in the outbox, which does not lapse; a cart pins for ever a second longer."""
Deciding = Literal["at acceptance", "in the worker"]
"""Where a submitted order's units are taken."""
SubmittedState = Literal["queued", "reserved", "confirmed", "cancelled", "expired", "refused", "dead", "unknown"]
"""Of a submitted order: queued and reserved are on their way; of a dead one no worker is told any more."""
FINAL_STATES: frozenset[SubmittedState] = frozenset({"confirmed", "cancelled", "expired", "refused", "dead", "unknown"})


@dataclass(frozen=True, slots=True)
class Queued:
    """The order is accepted; a worker takes its units, or refuses it. As a replay, it was accepted before."""

    order_id: str
    replay: bool


Accepted = Queued | Reserved | Settled | SoldOut | Busy | Closed | LimitReached
"""What a submitted order is answered."""


@dataclass(frozen=True, slots=True)
class BegunOrder:
    """An order that is this worker's for a while: its units are taken."""

    order: Order
    quantity: int
    """Units taken: fewer than the order asks for when it took what was left."""
    segment: int
    parts: tuple[Part, ...]
    fencing_token: int | None
    """Of the segment's lock; None for an order whose units were taken at its acceptance, without a lock."""
    epoch: int
    sequence: int
    begun: int
    """How often a worker has begun it, this time included."""


@dataclass(frozen=True, slots=True)
class TooManyOthers:
    """The order was begun before and not finished: it is published again, in a smaller envelope."""

    order_id: str


@dataclass(frozen=True, slots=True)
class Dead:
    """The order was begun too often: it is in the dead-letter set."""

    order_id: str
    begun: int


@dataclass(frozen=True, slots=True)
class TakenOrders:
    """What a worker may do about each order of an envelope, in their order; a failure stands in an order's place."""

    orders: tuple[BegunOrder | Settled | Busy | TooManyOthers | Dead | Exception, ...]
    free_in_ms: int | None
    """Milliseconds until some segment may be free."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What is to be published again, and what was buried."""

    due: tuple[tuple[str, int], ...]
    """Order id, and how often a worker has begun it."""
    buried: tuple[str, ...]
    is_more_due: bool


@dataclass(frozen=True, slots=True)
class SweepSuperseded:
    """Somebody with a later fencing token sweeps by now; nothing changed."""

    fencing_token: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """What is known of a submitted order."""

    order_id: str
    state: SubmittedState
    record: OrderRecord | None
    """What the pool keeps of it, once its units were taken or refused."""
    begun: int
    published: int
    """How often it was published again since a worker began it last."""
    reason: str
    """Why it was put off last, or given up."""
    is_in_outbox: bool
    order: Order | None = None
    """What it asks for, while no worker has taken its units."""
    worker: str = ""
    """Who has it in hand: the holder id proves it, so it is not for showing in full."""
    until_ms: int = 0
    """For how long. This and the other times are the server's; `read_at_ms` is when this was read."""
    due_ms: int | None = None
    """When it is published again; None: it is not in the outbox."""
    dead_at_ms: int | None = None
    """When it was given up; None: it is not in the dead-letter set. One that was decided since is, until a replay."""
    read_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How much waits in a pool's outbox."""

    waiting: int
    due: int
    dead: int
    oldest_due_ms: int
    """How long the first has been due."""


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
    """For how long it has been kept, by the server's clock."""


def one_line(reason: str) -> str:
    """Shorten why something failed to one line of at most 200 characters, all of which can be stored and printed."""
    line = " ".join(reason.split())[:REASON_MAX]
    return line if line.isprintable() else "".join(one if one.isprintable() else "?" for one in line)


def encodable(text: str) -> str:
    """Write out what UTF-8 cannot say, such as a file's name that was read as bytes: any text must be kept."""
    return text.encode(errors="backslashreplace").decode()
