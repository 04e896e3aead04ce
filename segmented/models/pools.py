"""A pool as a whole: its state, its changes, its ledger, and what an audit and a repair read of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from segmented.models.truth import Done, NotDone

if TYPE_CHECKING:
    from segmented.models.carts import Cart, CartState
    from segmented.models.orders import Part

MendedKind = Literal["order", "change"]
"""An order's record with its hold, or the note of a restock or withdrawal."""
NumberKind = Literal["total", "segment", "customer"]
ScannedKey = Literal["orders", "holds", "customers", "changes", "carts", "unfinished"]


@dataclass(frozen=True, order=True, slots=True)
class Transfer:
    """Units between this shard and another: the number of the last transfer, and units.

    | kind | units |
    | --- | --- |
    | sent | all that this shard has ever sent to the other |
    | away | those of the last transfer to the other, until they are known to have arrived |
    | received | all that this shard has ever received from the other |
    """

    kind: Literal["sent", "away", "received"]
    other: int
    """Number of the other shard."""
    number: int
    units: int
    sent: int = field(default=0, compare=False)
    """For a transfer that is away, as answered: all units ever sent there, including these."""
    epoch: int = field(default=0, compare=False)
    """For a transfer that is away, as answered: the epoch of the shard that sent it."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool read in one step: totals, units in each segment, and the sequence number at which both hold."""

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
    limit_per_customer: int | None = None
    is_closed: bool = False
    profile: str = "memory"
    """When the pool acknowledges a change: the text of its `Profile`."""
    queue: str | None = None
    """Queue of the workers that take the submitted orders; None: any."""
    step: str | None = None
    """Step of these workers, as `module:function`; None: they need none."""
    sale_id: str = ""
    """Identity of the sale, which its order database has too; empty for a pool that has not noted one."""
    unreadable: tuple[str, ...] = ()
    """Totals and segments ("segment 3") that another program overwrote with non-integers: they count as 0."""
    ledger_end: str = ""
    """Id of the ledger's last entry if another program added it after `sequence`, which stops the pool; otherwise
    empty.
    """
    frozen: tuple[int, int] | None = None
    """Epoch and sequence number that were seen of a pool that lost them: it answers no order. None: it sells."""
    lost: int = 0
    """Units that count as confirmed although the pool has no orders for them: lost at a thaw, or forgotten."""
    forgotten: int | None = None
    """Finished orders whose records were dropped, so that only the order database knows them; None: the pool keeps all.
    Not included in the shorter state in answers to changes.
    """
    relayed: tuple[int, int] | None = None
    """Epoch and sequence number up to which a database has the ledger; None: it was never relayed. Not included in the
    shorter state in answers to changes.
    """
    relay_age_ms: int = field(default=0, compare=False)
    """Age of the oldest change that was not relayed yet; 0: all were."""
    transfers: tuple[Transfer, ...] = ()
    """A shard's notes of its transfers; not included in the shorter state in answers to changes."""

    @property
    def stocked(self) -> int:
        """Units ever added and not removed by a withdrawal or a transfer: the maximum that can be sold."""
        return self.opened + self.restocked - self.withdrawn + self.received - self.sent

    @property
    def is_sold_out(self) -> bool:
        """Whether no unit is free; reserved ones may come back."""
        return not self.available

    @property
    def condition(self) -> str:
        """Whether the pool sells, in the words of `segmented pool show`: open, sold out, closed or frozen."""
        if self.frozen is not None:
            if self.frozen == (self.epoch, self.sequence):
                return f"frozen at change {self.sequence} of epoch {self.epoch}"
            return f"frozen, change {self.frozen[1]} of epoch {self.frozen[0]} is lost"
        if self.is_closed:
            return "closed"
        if not self.is_sold_out:
            return "open"
        return "sold out" if not self.reserved else f"sold out, {self.reserved} reserved may come back"


@dataclass(frozen=True, slots=True)
class PoolActivity:
    """Held segments, waiting processes, ending holds and the outbox of a pool or shard; `PoolState` has its units."""

    held: tuple[bool, ...]
    """Whether each segment's lock is held."""
    waiting: int
    """Processes that wait for a segment."""
    overdue: int
    """Holds that have ended, whose units come back with the next sweep."""
    due_soon: int
    """Holds that end soon."""
    outbox: int
    """Submitted orders that no worker has finished."""
    outbox_due: int
    """How many of them are published again at the next sweep."""
    outbox_age_ms: int
    """How long the first of them has been due."""
    dead: int
    """Orders that workers gave up."""


def latest_epoch(state: PoolState) -> int:
    """Return the latest epoch that a pool was ever in, as far as anything of it is left."""
    ledger_epoch = state.ledger_end.partition("-")[0] or "0"
    return max(state.epoch, (state.frozen or (0, 0))[0], int(ledger_epoch))


@dataclass(frozen=True, slots=True)
class Opened:
    """The pool is open with this stock, split over its segments."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """The pool was already open; nothing changed. Its stock and segment count may differ from the requested ones."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class Restocked(Done):
    """`units` were added, or removed, under this change id: now, or earlier as a replay."""

    change_id: str
    units: int
    sequence: int
    available: int
    replay: bool


@dataclass(frozen=True, slots=True)
class TooFew(NotDone):
    """Fewer units are free than the withdrawal needs; nothing changed."""

    change_id: str
    units: int
    available: int


@dataclass(frozen=True, slots=True)
class Resized:
    """The pool has the requested number of segments; as a replay, it already had."""

    state: PoolState
    replay: bool


@dataclass(frozen=True, slots=True)
class PoolClosed:
    """The pool takes no new orders; as a replay, it was already closed."""

    state: PoolState
    replay: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """The pool names this queue and this step for its submitted orders; as a replay, it already did."""

    state: PoolState
    replay: bool


@dataclass(frozen=True, slots=True)
class Frozen:
    """The pool is frozen: it is at change `found`, and `seen` was acknowledged. Both are epoch and sequence number."""

    sku: str
    found: tuple[int, int]
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Verified:
    """The pool has all changes that its order database has seen; as a replay, this was known of its server."""

    sku: str
    replay: bool


@dataclass(frozen=True, slots=True)
class Thawed:
    """The pool sells again, in a later epoch; as a replay, it already did."""

    state: PoolState
    replay: bool
    cancelled_count: int = 0
    """Reserved orders that this call cancelled, because their units are sold."""


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
    "returned",
    "sent",
    "received",
    "resized",
    "closed",
    "repaired",
    "checkpoint",
    "thawed",
]


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """All changes of one sequence number as the ledger has them: one line each, in the ledger's notation."""

    epoch: int
    sequence: int
    kind: EntryKind
    at_us: int
    """Microseconds by the server's clock."""
    lines: str
    chain: str
    """Digest over this step and all before it."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One change of one order, or of the pool. `granted` moves a live reservation to a new holder and takes no units.

    Orders that changed in one step share a sequence number and a digest.
    """

    epoch: int
    sequence: int
    kind: EntryKind
    at_us: int
    """Microseconds by the server's clock."""
    order_id: str | None
    """For a restock or a withdrawal, its change id; for a transfer, the other shard's number, a colon, and its own."""
    quantity: int
    parts: tuple[Part, ...]
    """Units by segment: the order's; added or removed; or, for a pool opened or resized, all free units."""
    segment: int | None
    fencing_token: int | None
    customer_id: str | None = None
    note: str = ""
    """For a pool opened or resized, its segment count."""
    chain: str = ""
    """Digest over this change and all before it."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """An order's record and the end of its hold, read in one step."""

    order_id: str
    raw: str | None
    """The record's text; it may be anything if another program wrote it."""
    hold_until_ms: int | None


@dataclass(frozen=True, slots=True)
class InspectedCart:
    """A cart as kept by its home, read in one step."""

    cart_id: str
    is_kept: bool
    """Whether there is a record, readable or not."""
    is_unfinished: bool
    """Whether it is in the list of carts that may need finishing."""
    cart: Cart | None = None
    """None if there is no record, or an unreadable one."""
    state: CartState | None = None
    """None if there is no record, or an unreadable one."""


@dataclass(frozen=True, slots=True)
class Mended:
    """Repaired now; the ledger has an entry under `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Sound:
    """Nothing to repair: the value is correct."""


@dataclass(frozen=True, slots=True)
class Differing:
    """The value is neither correct nor what the audit saw; nothing changed."""


@dataclass(frozen=True, slots=True)
class Outrun:
    """The ledger has changed too much, or in a relevant way, since the audit folded it; nothing changed."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The ledger now begins with the checkpoint `first_sequence`; 1 if it has all its entries."""

    first_sequence: int
    sequence: int
    """Sequence number of the newest entry."""
    is_more_left: bool
    """Entries before the first one still use memory: call again."""
