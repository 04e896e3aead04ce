"""Operations that audit a stock pool, repair it, and bound its ledger."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models.audits import (
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
    """Read what is kept of up to 1,000 orders, whatever it is, each record with the end of its hold in one step."""

    sku: str
    order_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScanIds(Operation[tuple[int, tuple[str, ...]]]):
    """Read some ids of a key and the next cursor (0 at the end); one may come twice while the sale runs."""

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
    """Read the units that up to 1,000 customers have, and the sequence number at which they have them.

    None: somebody else wrote what is no whole number.
    """

    sku: str
    customer_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLedgerStart(Operation[int]):
    """Read the sequence number of the first entry that counts: 1, or that of a checkpoint after a trim.

    0: somebody else wrote what is no whole number.
    """

    sku: str


@dataclass(frozen=True, slots=True)
class TrimLedger(Operation[Trimmed]):
    """Write a checkpoint, and forget what comes before the newest one that leaves the last `keep` changes.

    Frees the memory of at most 10,000 changes in one step. Raises PoolDrifted when the totals do not add up.
    """

    sku: str
    keep: int


@dataclass(frozen=True, slots=True)
class MendNumber(Operation[Mended | Sound | Outrun]):
    """Bring a number to what the ledger says, by adding the difference.

    `expected` is what the ledger says at change `after`; the script adds what the changes since then did. A repeat
    finds nothing to mend.
    """

    sku: str
    kind: NumberKind
    name: str
    """Of a total; or the segment's number; or the customer id."""
    after: int
    expected: int


@dataclass(frozen=True, slots=True)
class MendRecord(Operation[Mended | Sound | Differing | Outrun]):
    """Bring a record to what the ledger says, if it stands as the audit saw it and the ledger has not gone on with it.

    Of an order the hold follows: a reserved one has one, which begins anew where it was missing, any other has none.
    """

    sku: str
    kind: MendedKind
    record_id: str
    after: int
    """The change up to which the ledger was folded."""
    seen: str | None
    wanted: str | None
    """None: it is to go."""
    hold_ms: int


@dataclass(frozen=True, slots=True)
class MendLedger(Operation[Mended | Sound | Differing | Outrun]):
    """Remove what somebody else put behind the ledger's last change, so that the pool can go on.

    A step removes or copies a bounded number of entries; Outrun says that more are there. Differing: one of them is the
    pool's own.
    """

    sku: str
