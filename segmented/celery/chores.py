"""The periodic tasks: republish orders, release holds, complete transfers, relay ledgers, forget orders, audit.

Each is safe to run twice.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from celery import shared_task

from segmented import protocol as op
from segmented.celery.assignments import assignment_of, refuse
from segmented.celery.celery_settings import TASK_OPTIONS
from segmented.celery.connections import connections
from segmented.celery.current import settings
from segmented.celery.messages import TASK
from segmented.celery.publishing import publisher, queue_of, waiting
from segmented.celery.sweeping import sweep_pool
from segmented.errors import (
    AssignedElsewhere,
    PoolFrozen,
    PoolMissing,
    SegmentedError,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from segmented.locks import Lock
from segmented.locks.durations import OwnName
from segmented.models.shards import SHARD_MARK, ShardedState
from segmented.orders import expire_voided, forget as forget_orders, rebuild, relay as relay_pool
from segmented.orders.audit_slices import audit_slice
from segmented.stock import Pool, ShardedPool, find_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery, Task

    from segmented.locks import Lease

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)

NAMED_MAX: Final = 3
"""Orders or differences of a pool that one line of the log names."""
LEADER_TTL: Final = 10.0
PILE_MAX: Final = 20
"""Periodic messages that may wait behind a useful one; later ones will do the same work."""


@shared_task(bind=True, name="segmented.sweep", **TASK_OPTIONS)
def sweep(self: Task[Any, Any]) -> dict[str, dict[str, int]]:
    """Republish the unfinished orders of all pools but those that leave them to other workers.

    Only one worker does so; two would make duplicates.
    """
    if _is_piled_up(self):
        return {}
    try:
        return _sweep_all(self.app)
    except StoreError as error:
        log.warning("nothing was swept: %s", error)
        return {}


def _sweep_all(app: Celery) -> dict[str, dict[str, int]]:
    lock = Lock(connections().store, OwnName(f"sweep of {queue_of(app, TASK)}"), ttl=LEADER_TTL)
    try:
        lease = lock.try_acquire()
    except StoreRefused:  # a full server gives no lock; two sweeps cost duplicates, none would cost the orders
        return _sweep_each(app, None)
    if lease is None:
        return {}
    with lease:
        return _sweep_each(app, lease)


def _sweep_each(app: Celery, lease: Lease | None) -> dict[str, dict[str, int]]:
    reports: dict[str, dict[str, int]] = {}
    fencing_token = None if lease is None else lease.fencing_token
    for sku in connections().store.execute(op.ListOutboxes()):
        found = _alone("swept", sku, partial(_swept, app, sku, fencing_token))
        if found:
            reports[sku] = found
        if lease is not None and not lease.is_trusted:
            break
    return reports


def _swept(app: Celery, sku: str, fencing_token: int | None) -> dict[str, int]:
    shared = connections()
    try:
        report = sweep_pool(
            shared.pool(sku),
            shared.gate,
            publisher(app),
            settings(),
            assignment=assignment_of(app),
            fencing_token=fencing_token,
        )
    except AssignedElsewhere as error:
        refuse(error)
        return {}
    except PoolFrozen as error:
        return _rebuilt(error)
    if report.buried:
        named = ", ".join(map(repr, report.buried[:NAMED_MAX]))
        log.error(
            "%d orders of %r were begun too often and are in the dead-letter set: %s", len(report.buried), sku, named
        )
    if report.failure:
        log.warning("the outbox of %r was swept in part: %s", sku, report.failure)
    if not (report.published or report.buried):
        return {}
    log.info("%d orders of %r were published again in %d envelopes", report.published, sku, report.envelopes)
    return {"published": report.published, "envelopes": report.envelopes, "buried": len(report.buried)}


def _rebuilt(frozen: PoolFrozen) -> dict[str, int]:
    """Rebuild a pool that lost changes, if the settings say so and an order database decides its orders."""
    shared = connections()
    pool = Pool(shared.store, frozen.sku)
    if not settings().rebuild_frozen or not pool.is_gated():
        log.error("%s", frozen)
        return {}
    thawed = rebuild(pool, shared.gate)
    log.warning("pool %r was rebuilt in epoch %d: %d sold", frozen.sku, thawed.state.epoch, thawed.state.confirmed)
    return {"rebuilt": 1}


@shared_task(bind=True, name="segmented.expire", **TASK_OPTIONS)
def expire(self: Task[Any, Any]) -> dict[str, int]:
    """Release expired holds; in a gated pool, those that the order database has voided."""
    if _is_piled_up(self):
        return {}
    shared = connections()

    def one(pool: Pool | ShardedPool) -> int:
        if isinstance(pool, ShardedPool):
            return len(_decided(pool).expire())
        if pool.is_gated(again=True):
            return len(expire_voided(pool, shared.gate))
        return len(pool.expire())

    return _counted("expired", one)


@shared_task(bind=True, name="segmented.finish_transfers", **TASK_OPTIONS)
def finish_transfers(self: Task[Any, Any]) -> dict[str, int]:
    """Complete transfers of units between shards whose sender died."""
    if _is_piled_up(self):
        return {}
    return _counted("balanced", lambda pool: _decided(pool).finish_transfers() if isinstance(pool, ShardedPool) else 0)


def _decided(pool: ShardedPool) -> ShardedPool:
    """Return a pool in shards with the gate, if the order database decides its orders."""
    if not pool.shards[0].is_gated(again=True):
        return pool
    said, shared = settings(), connections()
    return ShardedPool(shared.store, pool.sku, ttl=said.segment_ttl, hold=said.hold, gate=shared.gate)


@shared_task(bind=True, name="segmented.relay", **TASK_OPTIONS)
def relay(self: Task[Any, Any]) -> dict[str, int]:
    """Copy the ledgers of relayed pools to the order database, and trim them behind it.

    A pool is relayed once `segmented pool relay` has copied its ledger.
    """
    if _is_piled_up(self):
        return {}
    said, gate = settings(), connections().gate

    def one(pool: Pool | ShardedPool) -> int:
        state = pool.state()
        shards = state.shards if isinstance(state, ShardedState) else (state,)
        if all(shard.relayed is None for shard in shards):
            return 0
        return relay_pool(pool, gate, timeout=said.task_time_limit / 2, trim_keep=said.ledger_keep).copied

    return _counted("relayed", one)


@shared_task(bind=True, name="segmented.forget", **TASK_OPTIONS)
def forget(self: Task[Any, Any]) -> dict[str, int]:
    """Drop the records of finished orders of gated pools, after their grace time, behind the relay and its trim."""
    said = settings()
    if said.forget_after is None or _is_piled_up(self):
        return {}
    gate, grace = connections().gate, said.forget_after

    def one(pool: Pool | ShardedPool) -> int:
        state = pool.state()
        if isinstance(pool, ShardedPool) or isinstance(state, ShardedState) or not state.gated or state.relayed is None:
            return 0
        if pool.store.execute(op.ReadLedgerStart(pool.sku)) <= 1:
            return 0
        return forget_orders(pool, gate, grace=grace, timeout=said.task_time_limit / 2).orders

    return _counted("forgotten", one)


@shared_task(bind=True, name="segmented.audit", **TASK_OPTIONS)
def audit(self: Task[Any, Any]) -> dict[str, int]:
    """Compare every pool with its ledger and its order database, in slices; the log says what differs.

    A slice ends after half the time limit, and the next message goes on there.
    """
    if _is_piled_up(self):
        return {}
    end = time.monotonic() + settings().task_time_limit / 2

    def one(pool: Pool | ShardedPool) -> int:
        parts = [shard.plain for shard in pool.shards] if isinstance(pool, ShardedPool) else [pool]
        return sum(_audited(part, end) for part in parts)

    return _counted("audited", one)


def _audited(pool: Pool, end: float) -> int:
    state = pool.state()
    found = audit_slice(
        pool, connections().gate if state.gated else None, is_over=lambda: time.monotonic() >= end
    ).found
    if state.frozen is not None:
        found = (*found, "it is frozen: change {1} of epoch {0} is lost".format(*state.frozen))
    if found:
        named = "; ".join(found[:NAMED_MAX])
        log.error("pool %r: %d differences, for 'segmented pool audit': %s", pool.sku, len(found), named)
    return len(found)


def _is_piled_up(task: Task[Any, Any]) -> bool:
    """Return whether messages piled up while no worker took them. They are counted, as a worker's clock may be wrong.

    If the periodic tasks share the orders' queue, its length says nothing about them.
    """
    name = str(task.name)
    if queue_of(task.app, name) == queue_of(task.app, TASK):
        return False
    try:
        return waiting(task.app, name) > PILE_MAX
    except StoreUnavailable:
        return False


def _counted(what: str, work: Callable[[Pool | ShardedPool], int]) -> dict[str, int]:
    """Do something with every pool; an error in one pool does not stop the others."""

    def found(sku: str) -> int:
        return work(find_pool(connections().store, sku, ttl=settings().segment_ttl, hold=settings().hold))

    try:
        skus = list(_skus())
    except StoreError as error:
        log.warning("no pool was %s: %s", what, error)
        return {}
    counts = {sku: _alone(what, sku, partial(found, sku)) for sku in skus}
    return {sku: count for sku, count in counts.items() if count}


def _alone(what: str, sku: str, work: Callable[[], ResultT]) -> ResultT | None:
    """Do something with one pool, whatever another program wrote into it; None if it fails or the pool is gone."""
    try:
        return work()
    except PoolMissing:
        return None
    except SegmentedError as error:
        log.warning("pool %r was not %s: %s", sku, what, error)
    except Exception:
        log.exception("pool %r was not %s", sku, what)
    return None


def _skus() -> Iterator[str]:
    """Return the gated pools, those that had submitted orders, and those of the settings; for a shard, its pool."""
    noted = connections().store.execute(op.ListOutboxes())
    yield from dict.fromkeys([*(sku.partition(SHARD_MARK)[0] for sku in noted), *settings().skus])
