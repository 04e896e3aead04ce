"""Archives of closed pools, and the answer of a pool that was archived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

from segmented.errors import PoolMissing, SegmentedError

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


class PoolArchived(PoolMissing):
    """The pool is being archived, or was: its records are in a file or in a table, and it takes no more orders."""

    def __init__(
        self,
        sku: str,
        epoch: int = 0,
        digest: str = "",
        target: str = "",
        *,
        is_removed: bool = False,
    ) -> None:
        """Create the error with the pool; its last epoch, and digest and place of its archive, once it is removed."""
        if is_removed:
            place = f" to {target}" if target else ""
            later = f"epoch {epoch + 1} or a later one" if epoch else "a later epoch"
            said = f"was archived{place}: open it again in {later}, or sell from another pool"
        else:
            said = "is being archived and answers reads alone: 'segmented pool archive' finishes an interrupted run"
        SegmentedError.__init__(self, f"pool {sku!r} {said}")
        self.sku = sku
        self.epoch = epoch
        self.digest = digest
        self.target = target
        self.is_removed = is_removed


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


def archived_of(sku: str, said: str) -> PoolArchived:
    """Return the error for what a pool's meta says of its archive."""
    phase, _, rest = said.partition(" ")
    if phase != "archived":
        return PoolArchived(sku)
    epoch, _, digest, target = (*rest.split(" "), "", "", "", "")[:4]  # the server may say more after it
    last = int(epoch) if epoch.isdecimal() else 0
    return PoolArchived(sku, last, digest=digest, target=unquote(target), is_removed=True)
