"""Archives of closed pools, and the answer of a pool that was archived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

from segmented.errors import PoolArchived

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
RECORD_KEYS: Final[tuple[PoolKey, ...]] = (
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
)
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
