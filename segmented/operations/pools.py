"""Operations on stock pools."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import (
    AlreadyOpen,
    Busy,
    Granted,
    LedgerEntry,
    Lost,
    Opened,
    Order,
    OrderRecord,
    PoolState,
    Renewed,
    Reserved,
    Settled,
    SoldOut,
    Superseded,
)
from segmented.operations.base import Operation


@dataclass(frozen=True, slots=True)
class OpenPool(Operation[Opened | AlreadyOpen]):
    """Put `stock` units into `segment_count` segments, as evenly as whole units allow."""

    sku: str
    stock: int
    segment_count: int
    gated: bool
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class ReadPool(Operation[PoolState]):
    """Read totals and units a segment, in one step."""

    sku: str


@dataclass(frozen=True, slots=True)
class Reserve(Operation[Reserved | SoldOut | Busy | Settled]):
    """Take units until `hold_ms` from now, without a lock."""

    sku: str
    order: Order
    hold_ms: int


@dataclass(frozen=True, slots=True)
class Grant(Operation[Granted | SoldOut | Busy | Settled]):
    """Take units and the lock of a free segment in one step; `hold_ms` >= `ttl_ms`."""

    sku: str
    order: Order
    holder_id: str
    ttl_ms: int
    hold_ms: int
    keep_refusal: bool
    """Store "refused" as the order's final state, so that a repeat gets that answer."""


@dataclass(frozen=True, slots=True)
class RenewGrant(Operation[Renewed | Lost]):
    """Push the end of a grant's lease, and of its hold, out from now, if the lease is still the holder's."""

    sku: str
    order_id: str
    holder_id: str
    ttl_ms: int
    hold_ms: int


@dataclass(frozen=True, slots=True)
class Confirm(Operation[Settled]):
    """Make a reservation final and free its segment. Needs no lease; with a holder id, frees only that holder's."""

    sku: str
    order_id: str
    holder_id: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel(Operation[Settled | Superseded]):
    """Give the units back on purpose and free the segment; with a holder id, only if the order is still its own.

    A gated pool refuses unless `voided` says that the order database has voided the order.
    """

    sku: str
    order_id: str
    holder_id: str | None = None
    voided: bool = False


@dataclass(frozen=True, slots=True)
class Expire(Operation[Settled | None]):
    """Give the units back if the hold has lapsed and no lease lives; None when that is not so yet.

    A gated pool refuses unless `voided` says that the order database has voided the order.
    """

    sku: str
    order_id: str
    voided: bool = False


@dataclass(frozen=True, slots=True)
class ListDue(Operation[tuple[str, ...]]):
    """Name up to `limit` orders whose hold has lapsed, longest ago first."""

    sku: str
    limit: int


@dataclass(frozen=True, slots=True)
class ReadOrders(Operation[tuple[OrderRecord | None, ...]]):
    """Read the records of up to 1,000 orders, in the order asked."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanOrders(Operation[tuple[int, tuple[OrderRecord, ...]]]):
    """Read some records and the next cursor (0 at the end); one may come twice while the sale runs."""

    sku: str
    cursor: int


@dataclass(frozen=True, slots=True)
class ReadLedger(Operation[tuple[LedgerEntry, ...]]):
    """Read up to `limit` entries after sequence `after`, oldest first."""

    sku: str
    after: int
    limit: int
