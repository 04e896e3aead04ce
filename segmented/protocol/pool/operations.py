"""Operations on stock pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented.errors import SegmentedError
from segmented.models import (
    AlreadyOpen,
    Closed,
    Granted,
    LedgerEntry,
    Lost,
    Opened,
    Order,
    OrderRecord,
    PoolClosed,
    PoolState,
    Refusal,
    Released,
    Renewed,
    Resized,
    Restocked,
    Settled,
    Superseded,
    Taken,
    TooFew,
)
from segmented.models.assignments import UNASSIGNED, Assignment
from segmented.models.pools import LedgerStep
from segmented.protocol.base import Operation, Release

if TYPE_CHECKING:
    from segmented.models.profiles import Profile

BATCH_MAX = 1_000
"""Maximum orders in one batch: a script must not block other clients for long."""


@dataclass(frozen=True, slots=True)
class OpenPool(Operation[Opened | AlreadyOpen]):
    """Open a pool with `stock` units, split evenly over `segment_count` segments."""

    sku: str
    stock: int
    segment_count: int
    gated: bool
    epoch: int = 1
    limit_per_customer: int | None = None
    """Maximum units of one customer, over all orders; None for no limit."""
    profile: Profile | None = None
    """None for the default: `database` if the pool is gated, otherwise `memory`."""
    sale_id: str = ""
    """Identity of the sale in its order database; empty if there is none."""
    assignment: Assignment = UNASSIGNED
    """The workers that take its submitted orders."""


@dataclass(frozen=True, slots=True)
class CheckProfile(Operation[None]):
    """Check that the server of a pool that is to be opened can keep to the profile; changes nothing."""

    sku: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class ReadPool(Operation[PoolState]):
    """Read totals and units by segment, in one step."""

    sku: str


@dataclass(frozen=True, slots=True)
class Reserve(Operation[Taken]):
    """Take units until `hold_ms` from now, without a lock; with `partial`, fewer if fewer are left."""

    sku: str
    order: Order
    hold_ms: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class ReserveMany(Operation[tuple[Taken | SegmentedError, ...]]):
    """`Reserve` for up to 1,000 orders, in this order; the second use of an id is a repeat.

    Returns for each order the answer, or the error that `Reserve` would have raised. One step, or several with a
    sequence number each: a step begins no further order once it has done enough.
    """

    sku: str
    orders: tuple[Order, ...]
    hold_ms: int
    partial: bool = False
    publish_after_ms: int | None = None
    """For submitted orders: time after which the outbox publishes an unfinished order again."""


@dataclass(frozen=True, slots=True)
class Grant(Operation[Granted | Refusal]):
    """Take units and the lock of a free segment in one step; `hold_ms` >= `ttl_ms`.

    `party` is as for `AcquireLock`: with it, free segments are left to the processes of the pool's line that have
    waited longest, one to each.
    """

    sku: str
    order: Order
    holder_id: str
    ttl_ms: int
    hold_ms: int
    keep_refusal: bool
    """Store "refused" as the order's final state, so that a repeat gets that answer."""
    partial: bool = False
    """Take the remaining units if fewer are left than requested."""
    above: int = 0
    """A resource has accepted this token: grant a higher one, also for a lease that the holder has."""
    party: str = ""
    repeatable: bool = False
    """The caller chose the holder id: the repeat of a call without an answer continues with what that has taken."""


@dataclass(frozen=True, slots=True)
class RenewGrant(Operation[Renewed | Lost]):
    """Extend a grant's lease and hold from now, if the lease is still the holder's."""

    sku: str
    order_id: str
    holder_id: str
    ttl_ms: int
    hold_ms: int


@dataclass(frozen=True, slots=True)
class LeavePoolLine(Release[bool]):
    """Take the process `party`, which waits no more, out of the pool's line; otherwise as `LeaveLine`."""

    sku: str
    party: str


@dataclass(frozen=True, slots=True)
class ReleaseGrant(Release[Released | Lost]):
    """Free the segment of a grant before its lease ends; the units stay reserved for the order."""

    sku: str
    order_id: str
    holder_id: str


@dataclass(frozen=True, slots=True)
class Confirm(Release[Settled]):
    """Make a reservation final and free its segment. Needs no lease; with a holder id, frees only that holder's.

    A gated pool refuses unless `stored` says that the order database has stored the order.
    """

    sku: str
    order_id: str
    holder_id: str | None = None
    stored: bool = False
    epoch: int | None = None
    """The epoch in which the database has stored it: raises EpochEnded if the pool is in a later one, and has counted
    it; None: not compared.
    """
    quiet: bool = False
    """As for `ReleaseLock`: wake no waiter."""


@dataclass(frozen=True, slots=True)
class Cancel(Release[Settled | Superseded]):
    """Cancel an order and free its segment; with a holder id, only if the order is still that holder's.

    A gated pool refuses unless `voided` says that the order database has voided the order.
    """

    sku: str
    order_id: str
    holder_id: str | None = None
    voided: bool = False
    unheard: bool = False
    """The caller was gone before it had the answer: the id can be reserved or granted again."""
    quiet: bool = False
    """As for `ReleaseLock`: wake no waiter."""


@dataclass(frozen=True, slots=True)
class Expire(Operation[Settled | None]):
    """Give the units back if the hold has expired and no lease is alive; None if it is too early.

    A gated pool refuses unless `voided` says that the order database has voided the order.
    """

    sku: str
    order_id: str
    voided: bool = False


@dataclass(frozen=True, slots=True)
class SettleMany(Release[tuple[Settled | SegmentedError | None, ...]]):
    """`Confirm`, `Cancel` or `Expire` for up to 1,000 orders, without a holder or with one for all of them.

    Returns for each order the answer, or the error that the single operation would have raised; None if it is too early
    to expire it, or if a worker has it in hand. One step, or several with a sequence number each: a step begins no
    further order once it has done enough.
    """

    sku: str
    state: Literal["confirmed", "cancelled", "expired"]
    order_ids: tuple[str, ...]
    decided: bool = False
    """The order database of a gated pool has stored, or voided, these orders."""
    holder_id: str | None = None
    idle: bool = False
    """Leave alone orders that were not submitted, and submitted ones that a worker has in hand."""
    unheard: bool = False
    """As for `Cancel`."""
    epoch: int | None = None
    """As for `Confirm`; EpochEnded takes the answer's place."""
    sold_before: bool = False
    """Cancelled because the database sold these orders in an earlier epoch: callers learn that they are confirmed."""
    assignment: Assignment = UNASSIGNED
    """With `idle`, queue and step of the worker: raises AssignedElsewhere if the pool names others."""
    quiet: bool = False
    """As for `ReleaseLock`: wake no waiter."""


@dataclass(frozen=True, slots=True)
class ExpireDue(Operation[tuple[tuple[Settled, ...], bool]]):
    """Expire up to `limit` due holds in one step; also returns whether more are due."""

    sku: str
    limit: int


@dataclass(frozen=True, slots=True)
class Restock(Operation[Restocked | Closed]):
    """Add units, once for each change id."""

    sku: str
    change_id: str
    units: int
    epoch: int | None = None
    """The epoch in which an order database has begun the change: raises EpochEnded if the pool is in another one."""


@dataclass(frozen=True, slots=True)
class Withdraw(Operation[Restocked | TooFew]):
    """Remove free units, all or none, once for each change id."""

    sku: str
    change_id: str
    units: int
    epoch: int | None = None
    """As for `Restock`."""


@dataclass(frozen=True, slots=True)
class Resize(Operation[Resized]):
    """Change the number of segments, and redistribute the free units evenly."""

    sku: str
    segment_count: int


@dataclass(frozen=True, slots=True)
class ClosePool(Operation[PoolClosed]):
    """Stop taking new orders."""

    sku: str


@dataclass(frozen=True, slots=True)
class ListDue(Operation[tuple[str, ...]]):
    """List up to `limit` orders whose hold has expired, longest ago first."""

    sku: str
    limit: int


@dataclass(frozen=True, slots=True)
class ReadOrders(Operation[tuple[OrderRecord | None, ...]]):
    """Read the records of up to 1,000 orders, in the order asked."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanOrders(Operation[tuple[int, tuple[OrderRecord, ...]]]):
    """Read some records and the next cursor (0 at the end); a record may appear twice while the sale runs."""

    sku: str
    cursor: int


@dataclass(frozen=True, slots=True)
class ReadLedger(Operation[tuple[LedgerEntry, ...]]):
    """Read the changes of up to `limit` sequence numbers after `after`, oldest first."""

    sku: str
    after: int
    limit: int
    epoch: int | None = None
    """The epoch of `after`, to read those of an earlier one as well; None: the pool's."""


@dataclass(frozen=True, slots=True)
class ReadSteps(Operation[tuple[LedgerStep, ...]]):
    """Read the same changes as `ReadLedger`, those of each sequence number in one piece."""

    sku: str
    after: int
    limit: int
    epoch: int | None = None
    """As for `ReadLedger`."""
