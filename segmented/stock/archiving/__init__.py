"""Archive a closed pool: write all its records to a file, check what was written, and remove its keys.

1. The pool answers reads alone from now on. It must be closed, with nothing left to decide.
2. It is audited, so that only a pool whose numbers follow from its ledger is archived.
3. All its records are written, then read back and checked by code that the writer does not use (`checking`).
4. The pool notes that its archive is complete. An interruption before this note leaves a whole pool; after it, the next
   run finishes the removal.
5. Its keys are removed, a bounded number of records in one step. A note stays for 30 days, so that a process that knew
   the pool learns what became of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.plans import run_async, run_sync
from segmented.stock.archiving.file import FileArchive
from segmented.stock.archiving.plan import Progress, archive_plan, no_progress

if TYPE_CHECKING:
    from pathlib import Path

    from segmented.models.pools import Archived
    from segmented.stock.async_pool import AsyncPool
    from segmented.stock.pool import Pool
    from segmented.stock.sharded import AsyncShardedPool, ShardedPool

__all__ = ["FileArchive", "Progress", "archive", "async_archive"]


def archive(
    pool: Pool | ShardedPool, file: FileArchive | Path | str, *, on_progress: Progress = no_progress
) -> Archived:
    """Write a closed pool to a file, check what was written, and remove the pool's keys.

    Safe to repeat; an interrupted run is finished by the next one with the same file. One whose name ends with
    .gz is compressed. Rows of an order database stay: they are the truth of a gated pool. `on_progress` gets the step,
    how many records it has done, and how many there are. Raises InvalidInput, without changes, for a pool that is open
    or has something left to decide, for drift, and for a file that cannot be written or holds something else.
    """
    return run_sync(archive_plan(pool.sku, _file(file), on_progress), pool.store)


async def async_archive(
    pool: AsyncPool | AsyncShardedPool, file: FileArchive | Path | str, *, on_progress: Progress = no_progress
) -> Archived:
    """Write a closed pool to a file, as `archive` does, on an async store.

    The event loop waits while a page of records is written.
    """
    return await run_async(archive_plan(pool.sku, _file(file), on_progress), pool.store)


def _file(file: FileArchive | Path | str) -> FileArchive:
    return file if isinstance(file, FileArchive) else FileArchive(file)
