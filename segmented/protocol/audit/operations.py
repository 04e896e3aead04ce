"""Operations that audit a stock pool, repair it, and bound its ledger."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models.pools import (
    Differing,
    Inspected,
    Mended,
    MendedKind,
    NumberKind,
    Outrun,
    ScannedKey,
    Sound,
    Trimmed,
)
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class InspectOrders(Operation[tuple[Inspected, ...]]):
    """Read the raw records of up to 1,000 orders, each with the end of its hold in one step."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanIds(Operation[tuple[int, tuple[str, ...]]]):
    """Read some ids of a key and the next cursor (0 at the end); an id may appear twice while the sale runs."""

    sku: str
    key: ScannedKey
    cursor: int


@dataclass(frozen=True, slots=True)
class ScanChanges(Operation[tuple[int, tuple[tuple[str, str], ...]]]):
    """Read some notes of restocks and withdrawals, id and text, and the next cursor (0 at the end)."""

    sku: str
    cursor: int


@dataclass(frozen=True, slots=True)
class ReadCustomers(Operation[tuple[int, tuple[int | None, ...]]]):
    """Read the units of up to 1,000 customers, and the sequence number of that state.

    None: another program has overwritten the count with a non-integer.
    """

    sku: str
    customer_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLedgerStart(Operation[int]):
    """Read the sequence number of the ledger's first valid entry: 1, or a checkpoint after a trim.

    0: another program has overwritten it with a non-integer.
    """

    sku: str


@dataclass(frozen=True, slots=True)
class TrimLedger(Operation[Trimmed]):
    """Write a checkpoint, and drop the entries before the newest checkpoint that leaves the last `keep` changes.

    Frees the memory of at most 10,000 changes in one step. Raises PoolDrifted if the totals do not add up, and
    StoreRefused for entries of a relayed ledger that were not relayed yet.
    """

    sku: str
    keep: int
    relayed_only: bool = False
    """Delete only what was relayed, instead of refusing."""


@dataclass(frozen=True, slots=True)
class MendNumber(Operation[Mended | Sound | Outrun]):
    """Correct a number to match the ledger, by adding the difference.

    `expected` is the number by the ledger at change `after`; the script adds the effect of later changes. A repeat
    finds nothing to correct.
    """

    sku: str
    kind: NumberKind
    name: str
    """Name of the total, number of the segment, or the customer id."""
    after: int
    expected: int


@dataclass(frozen=True, slots=True)
class MendRecord(Operation[Mended | Sound | Differing | Outrun]):
    """Correct a record to match the ledger, unless the record or its part of the ledger has changed since the audit.

    An order's hold is corrected too: a reserved order has a hold, which starts again if it was missing; any other order
    has none.
    """

    sku: str
    kind: MendedKind
    record_id: str
    after: int
    """The change up to which the ledger was folded."""
    seen: str | None
    wanted: str | None
    """None: remove the record."""
    hold_ms: int


@dataclass(frozen=True, slots=True)
class MendLedger(Operation[Mended | Sound | Differing | Outrun]):
    """Remove entries that another program added after the ledger's last change, so that the pool can continue.

    One step removes or copies a bounded number of entries; Outrun means that more remain. Differing means that one of
    them is the pool's own.
    """

    sku: str
