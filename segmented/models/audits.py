"""The values that an audit reads from a pool, and the answers to a repair and a trim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from segmented.models.carts import Cart, CartState
    from segmented.models.pools import EntryKind

MendedKind = Literal["order", "change"]
"""An order's record with its hold, or the note of a restock or withdrawal."""
NumberKind = Literal["total", "segment", "customer"]
ScannedKey = Literal["orders", "holds", "customers"]
ScannedCarts = Literal["carts", "unfinished"]


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
