"""Operations on pools that lost changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from segmented.models import Frozen, Thawed, Transfer, Verified
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class FreezePool(Operation[Frozen]):
    """Stop a pool of this `epoch`, because its order database, or another shard, knows of changes that it lacks."""

    sku: str
    epoch: int
    latest: int = 0
    """An epoch in which the pool may have been since: it is thawed in a later one only."""


@dataclass(frozen=True, slots=True)
class VerifyPool(Operation[Verified | str]):
    """Compare a gated pool with the `epoch` and the highest `sequence` that its order database has seen.

    If the pool is behind, it is frozen: raises PoolFrozen. Otherwise it is verified on this server, if the database was
    read after the `turn` of this server and this epoch had begun; if not, answers with the turn to give then.

    Raises AnotherDatabase if the pool has noted another sale than `sale_id`; a pool that has noted none notes it.
    """

    sku: str
    epoch: int
    sequence: int
    turn: str = ""
    sale_id: str = ""
    """Identity of the sale in the order database; empty if it has none."""


@dataclass(frozen=True, slots=True)
class ThawPool(Operation[Thawed | None]):
    """Let a frozen pool sell again in a later `epoch`, with `sold` units sold. None: `decided` is ended, more follows.

    `decided` are reserved orders, up to 1,000, that were sold, voided or cancelled; one that is "reserved" gets a hold
    again if it has none. With `is_last` the numbers are replaced: what is neither sold nor still reserved is free. A
    gated pool must be verified before it sells.
    """

    sku: str
    epoch: int
    sold: int
    stocked: int | None = None
    """Units ever stocked, as the order database has it; None: as the pool has it."""
    is_stored: bool = False
    """Whether the order database is in this epoch."""
    decided: tuple[tuple[str, Literal["confirmed", "cancelled", "reserved"]], ...] = ()
    is_last: bool = True
    reserved: tuple[int, int] | None = None
    """The pool's number of reserved units, and their number by its orders, which replaces it; None: it is right."""
    transfers: tuple[Transfer, ...] = ()
    """The units that other shards have sent to it and received from it, with their epochs; it adds those it lacks.

    For a gated shard they are those of the order database, for all other shards, and replace its own numbers.
    """


@dataclass(frozen=True, slots=True)
class RecountPool(Operation[bool]):
    """Replace the numbers of a frozen gated pool by those counted from its records; it stays frozen, for a `ThawPool`.

    One with a number that cannot be read is frozen by this. False: its numbers have changed since they were counted.
    """

    sku: str
    reserved: int
    confirmed: int
    restocked: int
    withdrawn: int
    segment_count: int
    sequence: int
    """The highest sequence number of a record."""
    before: tuple[int, int]
    """Units reserved and confirmed before the count, as `ReadPool` answers."""


@dataclass(frozen=True, slots=True)
class ScanHolds(Operation[tuple[int, tuple[str, ...]]]):
    """Read some ids of reserved orders and the next cursor (0 at the end); an id may appear twice."""

    sku: str
    cursor: int
