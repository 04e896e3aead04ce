"""What crosses a boundary: orders, and the named answers to every operation. All of it is frozen.

Answers are values: sold out is the usual outcome of a flash sale, not an exception. A refusal can stand in a `with`
statement, where it raises `NotGranted`, because the body must not run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from segmented.errors import InvalidInput, NotGranted

QUANTITY_MAX: Final = 1_000_000_000
SEGMENT_COUNT_MAX: Final = 4_096
STOCK_MAX: Final = 1_000_000_000_000
EPOCH_MAX: Final = 2**20
"""A fencing token is epoch * 2^32 + counter, and a script is exact to 2^53."""
ORDER_ID_LENGTH_MAX: Final = 256

OrderState = Literal["reserved", "confirmed", "cancelled", "expired", "refused"]
Part = tuple[int, int]
"""(segment, units taken from it)."""


# --- locks ---


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lock is ours for `ttl_ms`, by the server's clock, counted from the request."""

    fencing_token: int
    ttl_ms: int
    replay: bool
    """True when this holder id had the lock already: a repeat after a lost reply."""
    next_in_ms: int | None = None
    """Of a lock that several may hold: milliseconds until one more may get in, 0 at once. None: only we hold it."""

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free again, or for one more, without any release."""
        return self.ttl_ms if self.next_in_ms is None else self.next_in_ms


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the lock, for `free_in_ms` at most; None when its key never lapses."""

    free_in_ms: int | None
    is_delayed: bool = False
    """True when nobody holds it: the last lease lapsed without a release, and its lock-delay runs."""


@dataclass(frozen=True, slots=True)
class HeldBy(Held):
    """`Held`, and by which attempt: its mark is the same on all servers that voted for it."""

    holder_mark: str = ""


@dataclass(frozen=True, slots=True)
class Unreplicated:
    """The lock was taken, but fewer replicas than wanted acknowledged it in time. To be released by the caller."""

    wanted: int
    acknowledged: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease lives for `ttl_ms` from the request."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Released:
    """The lease was ours and is gone."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is not ours: it lapsed, was revoked, or a successor holds the lock. Nothing changed."""

    is_unsure: bool = False
    """True when an earlier request, whose reply was lost, may have released it."""


@dataclass(frozen=True, slots=True)
class Reestablished(Lost):
    """`Lost` on one server of a quorum, where nobody else held it: it was taken again, as was asked."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server answers: two with an id in common are not independent of each other."""

    run_id: str
    replication_id: str = ""
    """The same for a primary and its replicas."""
    node_ids: frozenset[str] = frozenset()
    """Every node of its cluster; empty without one."""


# --- cached values ---

CachedKind = Literal["text", "bytes", "none", "error"]


@dataclass(frozen=True, slots=True)
class Cached:
    """What is kept: a value as `text`, or as `bytes` in base64; that there is `none`; or the `error` of its loader."""

    kind: CachedKind
    body: str


@dataclass(frozen=True, slots=True)
class Uncached:
    """Nothing is kept under the name."""


@dataclass(frozen=True, slots=True)
class MayLoad:
    """The lock is ours, to make the value; `old` is what is kept until then, if it is still good."""

    acquired: Acquired
    old: Cached | None

    @property
    def free_in_ms(self) -> int:
        """Milliseconds until the lock may be free again without any release."""
        return self.acquired.ttl_ms


@dataclass(frozen=True, slots=True)
class Written:
    """The value is kept."""


@dataclass(frozen=True, slots=True)
class Outpaced:
    """Nothing was kept: a newer one was written, or the value was forgotten, after its loader took the lock."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Nothing is kept any more; `was_kept` tells whether anything was."""

    was_kept: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a fencing token is good, and the newest one that is known; None when there is none."""

    newest_token: int | None
    is_good: bool


# --- orders and pools ---


@dataclass(frozen=True, slots=True)
class Order:
    """What a buyer asks for: `quantity` units under an id that is unique in its pool."""

    order_id: str
    quantity: int
    customer_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no pool can hold."""
        if not self.order_id or len(self.order_id) > ORDER_ID_LENGTH_MAX:
            message = f"order id {self.order_id!r} must have 1 to {ORDER_ID_LENGTH_MAX} characters"
            raise InvalidInput(message)
        if self.customer_id is not None and not 1 <= len(self.customer_id) <= ORDER_ID_LENGTH_MAX:
            whose = f"customer id {self.customer_id!r} of order {self.order_id!r}"
            message = f"{whose} must have 1 to {ORDER_ID_LENGTH_MAX} characters"
            raise InvalidInput(message)
        if isinstance(self.quantity, bool) or not isinstance(self.quantity, int):
            message = f"quantity {self.quantity!r} of order {self.order_id!r} is not a whole number"
            raise InvalidInput(message)
        if not 1 <= self.quantity <= QUANTITY_MAX:
            message = f"quantity {self.quantity} of order {self.order_id!r} must be between 1 and {QUANTITY_MAX:,}"
            raise InvalidInput(message)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over the content; the same id with another fingerprint is an error."""
        content = json.dumps([self.quantity, self.customer_id], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


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


@dataclass(frozen=True, slots=True)
class Opened:
    """The pool is open with this stock, split over its segments."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class AlreadyOpen:
    """The pool was open before; nothing changed. Its stock and segment count may differ from those asked for."""

    state: PoolState


@dataclass(frozen=True, slots=True)
class Granted:
    """Units are taken and the lock of `segment` is held, for as long as the lease lives."""

    order_id: str
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    holder_id: str
    fencing_token: int
    epoch: int
    sequence: int
    free_in_ms: int | None
    """Milliseconds until some segment may be free (0: one is free now); None when unknown."""
    replay: bool
    """True when nothing was deducted: a repeat, or a second delivery after the first holder's lease lapsed."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Units are taken until the hold lapses; no lock is held."""

    order_id: str
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    epoch: int
    sequence: int
    replay: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """The order's fate: what this call decided, or, as a replay, what had already happened."""

    order_id: str
    state: OrderState
    quantity: int
    segment: int
    fencing_token: int | None
    sequence: int
    replay: bool

    def describe(self) -> str:
        """Say it in words."""
        return f"already {self.state}"

    def __enter__(self) -> NoReturn:
        """Refuse to run a body for an order that is decided."""
        raise NotGranted(self)

    def __exit__(self, *_: object) -> None:
        """Never reached."""


@dataclass(frozen=True, slots=True)
class SoldOut:
    """Fewer units are free than asked for, at `sequence`. `reserved` units are on hold and may come back."""

    order_id: str
    quantity: int
    available: int
    reserved: int
    sequence: int
    replay: bool = False

    def describe(self) -> str:
        """Say it in words."""
        return f"sold out ({self.available} units free, {self.reserved} on hold, {self.quantity} asked for)"

    def __enter__(self) -> NoReturn:
        """Refuse to run a body without units."""
        raise NotGranted(self)

    def __exit__(self, *_: object) -> None:
        """Never reached."""


@dataclass(frozen=True, slots=True)
class Busy:
    """No segment is free, or another holder works on this order; look again in `free_in_ms`, or when one is freed."""

    order_id: str
    sequence: int
    free_in_ms: int | None
    is_in_hand: bool = False
    """True when another holder's lease on this order lives: a second delivery. Segments may be free."""

    def describe(self) -> str:
        """Say it in words."""
        return "another holder works on it" if self.is_in_hand else "no segment was free before the deadline"

    def __enter__(self) -> NoReturn:
        """Refuse to run a body without a lease."""
        raise NotGranted(self)

    def __exit__(self, *_: object) -> None:
        """Never reached."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """Another holder has this order now; the caller's lease lapsed. Nothing changed."""

    order_id: str
    fencing_token: int


Refusal = SoldOut | Busy | Settled
"""An answer that grants nothing."""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """What the pool keeps of an order."""

    order_id: str
    state: OrderState
    quantity: int
    segment: int
    parts: tuple[Part, ...]
    holder_id: str | None
    fencing_token: int | None
    hold_until_ms: int
    customer_id: str | None
    fingerprint: str
    sequence: int
    """Of the last change; for a refusal, the one at which it was decided."""


EntryKind = Literal["opened", "reserved", "granted", "confirmed", "cancelled", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One change. `granted` moves a living reservation to a new holder and takes no units."""

    epoch: int
    sequence: int
    kind: EntryKind
    at_us: int
    """The server's clock, in microseconds."""
    order_id: str | None
    quantity: int
    parts: tuple[Part, ...]
    segment: int | None
    fencing_token: int | None
