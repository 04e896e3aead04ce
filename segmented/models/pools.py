"""A pool as a whole: state, changes, ledger, audit and repair; then its profile, its workers and its archive."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args
from urllib.parse import unquote

from segmented.errors import InvalidInput, PoolArchived
from segmented.models.ids import checked_id, shortened
from segmented.models.orders import Done, NotDone

if TYPE_CHECKING:
    from segmented.models.orders import Cart, CartState, Part

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


# --- The profile: where a change must be before the pool acknowledges it. ---

REPLICAS_MAX: Final = 100
WITHIN_MS_MAX: Final = 60_000
DEFAULT_WITHIN_MS: Final = 1_000
SPELLING: Final = re.compile(r"(memory|database|fsync|replicated:([1-9][0-9]{0,2}))(?:/([1-9][0-9]{0,4})ms)?")


@dataclass(frozen=True, slots=True)
class Profile:
    """When a pool acknowledges a change; its text is what the pool stores and every process reads.

    | text | acknowledged when |
    | --- | --- |
    | `memory` | the server has changed its memory |
    | `replicated:2` | two replicas have the change as well |
    | `fsync` | the change is on the server's disk |
    | `database` | the order database has committed; only in a gated pool |

    `replicated:2/500ms` and `fsync/500ms` wait for up to that time instead of the default.
    """

    kind: Literal["memory", "replicated", "fsync", "database"]
    replicas: int = 0
    within_ms: int = 0
    """Milliseconds to wait for the acknowledgements; 0 for a profile that does not wait."""

    @property
    def waits(self) -> bool:
        """Return whether the store waits for replicas or the disk after a change."""
        return self.within_ms > 0

    @property
    def seconds(self) -> float:
        """Seconds to wait for the acknowledgements."""
        return self.within_ms / 1000

    @property
    def wanted(self) -> int:
        """How many acknowledgements a change needs."""
        return self.replicas if self.kind == "replicated" else int(self.waits)

    def __str__(self) -> str:
        """Return the text that `parse_profile` reads; without the default time."""
        name = f"replicated:{self.replicas}" if self.kind == "replicated" else self.kind
        return f"{name}/{self.within_ms}ms" if self.within_ms != _default_ms(self.kind) else name


MEMORY: Final = Profile("memory")
DATABASE: Final = Profile("database")


def parse_profile(text: object) -> Profile:
    """Read the text of a profile. Raises InvalidInput."""
    found = SPELLING.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidInput(_unknown(text))
    kind = "replicated" if found[2] else found[1]
    replicas, default_ms = int(found[2] or 0), _default_ms(kind)
    within_ms = int(found[3] or default_ms)
    if replicas > REPLICAS_MAX or within_ms > WITHIN_MS_MAX or (found[3] and not default_ms):
        raise InvalidInput(_unknown(text))
    return Profile(kind, replicas, within_ms)  # type: ignore[arg-type]  # one of the four


def is_profile(text: str) -> bool:
    """Return whether a pool could have stored this text: the one form that `Profile` has for each profile."""
    try:
        return str(parse_profile(text)) == text
    except InvalidInput:
        return False


def pool_profile(sku: str, text: str | None, *, gated: bool) -> Profile:
    """Return the profile that a pool is opened with. Raises InvalidInput if it does not fit the pool."""
    if text is None:
        return DATABASE if gated else MEMORY
    profile = parse_profile(text)
    if profile == DATABASE and not gated:
        raise InvalidInput(f"profile 'database' needs an order database; open it with Pool(store, {sku!r}, gate=gate)")
    if profile == MEMORY and gated:
        message = f"profile 'memory' is for a pool without order database, and {sku!r} has one; leave the profile out"
        raise InvalidInput(message)
    return profile


def _default_ms(kind: str) -> int:
    return DEFAULT_WITHIN_MS if kind in {"replicated", "fsync"} else 0


def _unknown(text: object) -> str:
    return (
        f"profile {shortened(text)} is not known; give memory, replicated:N with 1 to {REPLICAS_MAX} replicas, fsync "
        f"or database; replicated:N and fsync may say how long to wait, up to {WITHIN_MS_MAX} ms, as in fsync/500ms"
    )


# --- The workers that take the submitted orders: those of a queue, with a step, or any. ---

NAME_BYTES_MAX: Final = 200
STEP: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A queue and the step of its workers: those that a pool names for its submitted orders, or those of a worker."""

    queue: str | None = None
    """Name of the queue; None: a pool whose orders any queue may carry, or a worker of no queue."""
    step: str | None = None
    """The step as `module:function`; None: a pool that needs none, or a worker that has none."""

    def __post_init__(self) -> None:
        if self.queue is not None:
            object.__setattr__(self, "queue", checked_id(self.queue, "queue", bytes_max=NAME_BYTES_MAX))
        if self.step is not None:
            object.__setattr__(self, "step", checked_id(self.step, "step", bytes_max=NAME_BYTES_MAX))
            if not is_step(self.step):
                raise InvalidInput(f"step {shortened(self.step)} should be module:function, as SEGMENTED_STEP names it")

    @property
    def texts(self) -> tuple[str, str]:
        """Queue and step as scripts get them, empty without one."""
        return self.queue or "", self.step or ""

    def takes(self, queue: str | None, step: str | None) -> bool:
        """Return whether a worker with this queue and step may take the orders of a pool that names these two."""
        return queue in {None, self.queue} and step in {None, self.step}


UNASSIGNED: Final = Assignment()
"""A pool that names neither, so that any worker takes its orders; or a worker that has neither."""


def is_step(name: str) -> bool:
    """Return whether a text can name a step: `module:function`, of at most 200 bytes."""
    return len(name.encode()) <= NAME_BYTES_MAX and STEP.fullmatch(name) is not None


# --- The archive of a closed pool. ---

PoolKey = Literal[
    "meta",
    "stock",
    "free",
    "orders",
    "holds",
    "customers",
    "changes",
    "transfers",
    "outbox",
    "entries",
    "dead",
    "carts",
    "unfinished",
    "ledger",
]
"""A key of a pool that has records, by its name in `segmented.keys`."""
RECORD_KEYS: Final[tuple[PoolKey, ...]] = tuple(key for key in get_args(PoolKey) if key not in {"meta", "ledger"})
"""The keys whose records are removed by name."""
REMOVED_AT_ONCE: Final = 1_000
"""Records that one step removes."""
ENTRIES_AT_ONCE: Final = 200
"""Entries of the ledger that one step removes: each may have a thousand lines of 250 bytes."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """A pool that is being archived."""

    sku: str
    epoch: int
    digest: str | None = None
    """Digest of the complete archive; None while it is not complete."""
    target: str = ""
    """The place of the complete archive, as its writer named it."""


@dataclass(frozen=True, slots=True)
class Archived:
    """A pool was archived, and its keys are removed."""

    sku: str
    target: str
    digest: str
    """SHA-256 of all lines of the archive but the last, which carries it."""
    lines: int
    orders: int
    gated: bool
    """Whether an order database decided the orders; its rows stay."""
    replay: bool
    """Whether the pool was archived before, so that nothing changed."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """A pool's keys are removed, or would be."""

    sku: str
    orders: int
    """Records of orders that were removed."""
    entries: int
    """Entries of the ledger, at most: those that were trimmed count too."""
    confirmed: int
    """Units sold."""
    reserved: int
    """Units that were on hold; above 0 only for a pool that was deleted unfinished."""
    gated: bool
    """Whether an order database decided the orders; its rows stay."""
    replay: bool
    """Whether the pool was removed before, so that nothing changed."""


def archived_of(sku: str, said: str) -> PoolArchived:
    """Return the error for what a pool's meta says of its archive."""
    phase, _, rest = said.partition(" ")
    if phase != "archived":
        return PoolArchived(sku, digest="0" if said.startswith("removing 0") else "")
    epoch, _, digest, target = (*rest.split(" "), "", "", "", "")[:4]  # the server may say more after it
    last = int(epoch) if epoch.isdecimal() else 0
    return PoolArchived(sku, last, digest=digest, target=unquote(target), is_removed=True)
