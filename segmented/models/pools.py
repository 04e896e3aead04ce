"""A pool as a whole: its state, its changes, its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from segmented.models.orders import Part


@dataclass(frozen=True, order=True, slots=True)
class Transfer:
    """Units between this shard and another: the number of the last transfer, and units.

    | kind | units |
    | --- | --- |
    | sent | all that this shard has ever sent to the other |
    | away | those of the last transfer to the other, as long as it is not known that they arrived |
    | received | all that this shard has ever received from the other |
    """

    kind: Literal["sent", "away", "received"]
    other: int
    """Number of the other shard."""
    number: int
    units: int
    sent: int = field(default=0, compare=False)
    """Of one that is away, as it is answered: all units that were sent there, these included."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool read in one step: totals, units a segment, and the sequence number at which both hold."""

    sku: str
    epoch: int
    segment_count: int
    gated: bool
    sequence: int
    opened: int
    available: int
    reserved: int
    confirmed: int
    order_count: int
    stock: tuple[int, ...]
    restocked: int = 0
    withdrawn: int = 0
    sent: int = 0
    """Units that a shard has sent to others."""
    received: int = 0
    """Units that a shard has received from others."""
    customer_limit: int | None = None
    is_closed: bool = False
    unreadable: tuple[str, ...] = ()
    """Totals and segments ("segment 3") that somebody else made something else than whole numbers: they count as 0."""
    ledger_end: str = ""
    """Id of the ledger's last entry if somebody else put it beyond `sequence`, where it stops the pool; else empty."""
    transfers: tuple[Transfer, ...] = ()
    """What a shard knows of units between it and others; not in the shorter state that changes answer with."""

    @property
    def stocked(self) -> int:
        """Units that were ever put in and not taken out by a withdrawal or a transfer: the most that can be sold."""
        return self.opened + self.restocked - self.withdrawn + self.received - self.sent


@dataclass(frozen=True, slots=True)
class Opened:
    """The pool is open with this stock, split over its segments."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """The pool was open before; nothing changed. Its stock and segment count may differ from those asked for."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class Restocked:
    """`units` were put in, or taken out, under this change id: now, or before, which is a replay."""

    change_id: str
    units: int
    sequence: int
    available: int
    replay: bool


@dataclass(frozen=True, slots=True)
class TooFew:
    """Fewer units are free than were to be withdrawn; nothing changed."""

    change_id: str
    units: int
    available: int


@dataclass(frozen=True, slots=True)
class Resized:
    """The pool has the number of segments asked for; as a replay, it had it before."""

    state: PoolState
    replay: bool


@dataclass(frozen=True, slots=True)
class PoolClosed:
    """The pool takes no new orders; as a replay, it took none before."""

    state: PoolState
    replay: bool


EntryKind = Literal[
    "opened",
    "reserved",
    "granted",
    "confirmed",
    "cancelled",
    "expired",
    "refused",
    "restocked",
    "withdrawn",
    "sent",
    "received",
    "resized",
    "closed",
    "repaired",
    "checkpoint",
]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One change of one order, or of the pool. `granted` moves a living reservation to a new holder and takes no units.

    Orders that changed in one step share a sequence number and a digest.
    """

    epoch: int
    sequence: int
    kind: EntryKind
    at_us: int
    """The server's clock, in microseconds."""
    order_id: str | None
    """Of a restock or a withdrawal, its change id; of a transfer, the other shard's number, a colon, and its own."""
    quantity: int
    parts: tuple[Part, ...]
    """Units by segment: those of the order; put in or taken out; or, of a pool opened or resized, all that are free."""
    segment: int | None
    fencing_token: int | None
    customer_id: str | None = None
    note: str = ""
    """Of a pool opened or resized, its segment count."""
    chain: str = ""
    """Digest over this change and all before it."""
