"""Delete a pool: remove its keys in bounded steps, and its entries in every index. A note stays for 30 days.

An interrupted run leaves a whole pool, or one that is being removed, which the next run finishes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from segmented import protocol as op
from segmented.errors import PoolArchived, PoolMissing, ShardVanished
from segmented.models.pools import Deleted
from segmented.plans import Plan, perform, run_async, run_sync
from segmented.stock.archiving.plan import EXPIRED_MAX, Progress, no_progress, note_directory_plan, remove_plan
from segmented.stock.plans import expire_plan
from segmented.stock.sharded.opening import first_copy_plan

if TYPE_CHECKING:
    from segmented.models import PoolState
    from segmented.stock.async_pool import AsyncPool
    from segmented.stock.pool import Pool
    from segmented.stock.sharded import AsyncShardedPool, ShardedPool


def delete(
    pool: Pool | ShardedPool, *, unfinished: bool = False, dry_run: bool = False, on_progress: Progress = no_progress
) -> Deleted:
    """Remove all keys of a closed pool in which nothing is left to decide, and its entries in the workers' index.

    Nothing is kept, unlike with `archive`; rows of an order database stay. With `unfinished` the pool may be open,
    frozen, or have reserved units, submitted orders and carts, which are lost. With `dry_run` nothing changes. Safe to
    repeat; the next call finishes an interrupted one. Raises InvalidInput, without changes, for a pool that is not
    finished, and PoolMissing for one that is not there.
    """
    plan = delete_plan(pool.sku, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    return run_sync(plan, pool.store)


async def async_delete(
    pool: AsyncPool | AsyncShardedPool,
    *,
    unfinished: bool = False,
    dry_run: bool = False,
    on_progress: Progress = no_progress,
) -> Deleted:
    """Remove all keys of a pool, as `delete` does, on an async store."""
    plan = delete_plan(pool.sku, unfinished=unfinished, dry_run=dry_run, on_progress=on_progress)
    return await run_async(plan, pool.store)


def delete_plan(sku: str, *, unfinished: bool, dry_run: bool, on_progress: Progress) -> Plan[Deleted]:
    """Delete a pool or all shards of one, or finish what another run has begun."""
    directory = yield from first_copy_plan(sku, lambda found, has_failed: found is not None or not has_failed)
    names: tuple[str, ...] = (sku,) if directory is None else directory.shards
    states, left = yield from _found_plan(names, unfinished=unfinished, may_expire=not (unfinished or dry_run))
    if not unfinished:
        for name in left:  # all of them before the first is removed: in a closed pool nothing new is to be decided
            yield from perform(op.BeginArchive(name, "check"))
    if not dry_run:
        for name in left:
            yield from perform(op.BeginArchive(name, "drop" if unfinished else "delete"))
        done, total = 0, sum(state.order_count + state.sequence for state in states.values())
        for name in left:
            done = yield from remove_plan(name, done, total, on_progress)
        for name in names:
            yield from perform(op.DropPool(name))  # a process that knew the pool may have entered it again
        yield from note_directory_plan(directory)
    return Deleted(
        sku,
        orders=sum(state.order_count for state in states.values()),
        entries=sum(state.sequence for state in states.values()),
        confirmed=sum(state.confirmed for state in states.values()),
        reserved=sum(state.reserved for state in states.values()),
        gated=any(state.gated for state in states.values()),
        replay=not left,
    )


def _found_plan(
    names: tuple[str, ...], *, unfinished: bool, may_expire: bool
) -> Plan[tuple[dict[str, PoolState], list[str]]]:
    """Return the numbers of the pool or its shards, and which of them are not removed yet."""
    states: dict[str, PoolState] = {}
    left: list[str] = []
    for name in names:
        try:
            states[name] = state = yield from perform(op.ReadPool(name))
            if state.is_closed and not state.gated and may_expire:
                yield from expire_plan(name, EXPIRED_MAX)
        except (PoolMissing, ShardVanished) as error:
            if isinstance(error, PoolArchived) and not error.is_removed:
                pass  # an interrupted run has begun
            elif isinstance(error, PoolArchived) or (unfinished and len(names) > 1):
                continue  # gone already
            else:
                raise
        left.append(name)
    return states, left
