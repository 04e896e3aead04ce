"""Operations that archive a closed pool: read all its records as they are, then remove them in bounded steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented.models.archives import Archiving
from segmented.protocol.base import Operation

if TYPE_CHECKING:
    from segmented.models import ShardDirectory
    from segmented.models.archives import PoolKey


@dataclass(frozen=True, slots=True)
class BeginArchive(Operation[Archiving]):
    """Let a closed pool answer reads alone, if nothing is left to decide in it. Safe to repeat.

    Raises InvalidInput for a pool that is open or has something left to decide, and PoolArchived once it is removed.
    """

    sku: str


@dataclass(frozen=True, slots=True)
class AbandonArchive(Operation[None]):
    """Let a pool be as it was before BeginArchive. Without effect once its removal has begun."""

    sku: str


@dataclass(frozen=True, slots=True)
class CompleteExport(Operation[Archiving]):
    """Note that the archive with this `digest` is complete at `target`, so that the pool's keys may be removed.

    Returns the archive that counts: the first one. Raises StoreRefused if the pool's server changed since BeginArchive.
    """

    sku: str
    digest: str
    target: str


@dataclass(frozen=True, slots=True)
class ScanRecords(Operation[tuple[int, tuple[tuple[str, str], ...]]]):
    """Read some records of a key, name and value as they are, and the next cursor (0 at the end)."""

    sku: str
    key: PoolKey
    cursor: int


@dataclass(frozen=True, slots=True)
class ScanLedger(Operation[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]]):
    """Read up to `limit` entries of the ledger after an id, `0-0` for all, each with its fields as they are."""

    sku: str
    after_id: str
    limit: int


@dataclass(frozen=True, slots=True)
class RemoveRecords(Operation[int]):
    """Remove records of a key by name, up to 1,000; of the ledger, its oldest 200. Returns how many are left."""

    sku: str
    key: PoolKey
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovePool(Operation[None]):
    """Remove a pool whose records are removed, but for a note of its archive, which stays `note_ms`."""

    sku: str
    note_ms: int


@dataclass(frozen=True, slots=True)
class DropOutbox(Operation[None]):
    """Remove a pool from those that the sweep looks at."""

    sku: str


@dataclass(frozen=True, slots=True)
class ArchiveDirectory(Operation[None]):
    """Note in one copy of a directory that its shards are archived. The note stays `note_ms`."""

    directory: ShardDirectory
    copy: int
    note_ms: int
