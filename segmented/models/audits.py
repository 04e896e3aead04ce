"""What an audit reads of a pool, and what a repair and a trim answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from segmented.models.carts import Cart, CartState

MendedKind = Literal["order", "change"]
"""An order's record with its hold; or the note of a restock or withdrawal."""
NumberKind = Literal["total", "segment", "customer"]
ScannedKey = Literal["orders", "holds", "customers"]
ScannedCarts = Literal["carts", "unfinished"]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What is kept of an order, read in one step: its record as it stands, and the end of its hold."""

    order_id: str
    raw: str | None
    """The record's text; it may be anything if somebody else wrote it."""
    hold_until_ms: int | None


@dataclass(frozen=True, slots=True)
class InspectedCart:
    """What its home keeps of a cart, read in one step."""

    cart_id: str
    is_kept: bool
    """Is there a record, whatever it is?"""
    is_unfinished: bool
    """Does it stand among those that somebody may have to finish?"""
    cart: Cart | None = None
    """None when there is no record, or one that cannot be read."""
    state: CartState | None = None
    """None likewise."""


@dataclass(frozen=True, slots=True)
class Mended:
    """It was mended now; the ledger says so under `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Sound:
    """There is nothing to mend: it is as it should be."""


@dataclass(frozen=True, slots=True)
class Differing:
    """It is neither as the audit saw it nor as it should be; nothing changed."""


@dataclass(frozen=True, slots=True)
class Outrun:
    """The ledger went on since the audit folded it, by too much or in a way that matters here; nothing changed."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The ledger begins with the checkpoint `first_sequence` now; 1 when it has all its entries."""

    first_sequence: int
    sequence: int
    """Of the newest entry."""
    is_more_left: bool
    """Entries before the first one still take up memory: call again."""
