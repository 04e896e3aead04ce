"""The periodic tasks: republish orders, release holds, complete transfers, relay ledgers, forget orders, audit.

Each is safe to run twice, asks the index of what is due, and looks at no other pool. A process that found nothing due
does not ask again before the first pool will be, or for two seconds: what a process notes meanwhile is due later than
that, or waits so long.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from celery import Celery, Task, shared_task

from segmented import events, protocol as op
from segmented.celery.apps import TASK_OPTIONS
from segmented.celery.connections import connections
from segmented.celery.messages import TASK, assignment_of, publisher, queue_of, refuse, sweep_pool, waiting
from segmented.celery.settings import settings
from segmented.celery.tasks import on_outcome
from segmented.errors import (
    AssignedElsewhere,
    PoolFrozen,
    PoolMissing,
    PoolUnverified,
    SegmentedError,
    ShardVanished,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from segmented.events.hub import sku_label
from segmented.locks import Lock
from segmented.locks.durations import OwnName
from segmented.models.shards import ShardedState
from segmented.orders import forget as forget_orders, rebuild, relay as relay_pool
from segmented.orders.auditing import audit_slice
from segmented.orders.gate import finish_returns
from segmented.orders.outcomes import tell_outcomes
from segmented.orders.sale import expire_voided
from segmented.orders.verifying import when_verified
from segmented.stock import Carts, Pool, ShardedPool, find_pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.keys import Duty
    from segmented.locks import Lease
    from segmented.protocol.due import NextDue
    from segmented.stores.redis import RedisStore

ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)

NAMED_MAX: Final = 3
"""Orders or differences of a pool that one line of the log names."""
EXPIRED_MAX: Final = 1_000
"""Holds that one call ends."""
LEADER_TTL: Final = 10.0
PILE_MAX: Final = 20
"""Periodic messages that may wait behind a useful one; later ones will do the same work."""
ADOPTED_SECONDS: Final = 3_600.0
ELSEWHERE_SECONDS: Final = 5.0
PAGE: Final = 1_000
IDLE_SECONDS_MAX: Final = 2.0
adopted_until: Final[list[float]] = []
"""Until when this process takes no further pools from the settings and from an earlier release."""
_elsewhere: Final[dict[str, float]] = {}
"""Pools that other workers take care of, and until when that is taken for granted."""
idle_until: Final[dict[Duty, float]] = {}
"""Until when this process need not ask again what is due."""


@shared_task(bind=True, name="segmented.sweep", **TASK_OPTIONS)
def sweep(self: Task[Any, Any]) -> dict[str, dict[str, int]]:
    """Republish the unfinished orders of all pools but those that leave them to other workers.

    Only one worker does so; two would make duplicates.
    """
    if _is_needless(self, "sweep"):
        return {}
    try:
        return _sweep_due(self.app)
    except StoreError as error:
        log.warning("nothing was swept: %s", error)
        return {}


class _Leader:
    """Leads the sweep of a queue, from the first pool on that has something to sweep."""

    def __init__(self, app: Celery, held: ExitStack) -> None:
        self._lock = Lock(connections().store, OwnName(f"sweep of {queue_of(app, TASK)}"), ttl=LEADER_TTL)
        self._held = held
        self._is_asked = self._is_led = False
        self.lease: Lease | None = None
        """None: nobody has asked yet, or a full server gives none."""

    def leads(self) -> bool:
        """Return whether this worker sweeps; asks for the lease once."""
        if not self._is_asked:
            self._is_asked = True
            try:
                self.lease = self._lock.try_acquire()
            except StoreRefused:  # a full server gives no lock; two sweeps cost duplicates, none would cost the orders
                return True
            self._is_led = self.lease is None
            if self.lease is not None:
                self._held.enter_context(self.lease)
        return self.goes_on()

    def goes_on(self) -> bool:
        """Return whether no other worker is known to lead."""
        return not self._is_led and (self.lease is None or self.lease.is_trusted)


def _sweep_due(app: Celery) -> dict[str, dict[str, int]]:
    with ExitStack() as held:
        store, leader = connections().store, _Leader(app, held)

        def one(name: str) -> tuple[dict[str, int] | None, int | None]:
            try:
                due = store.execute(op.ReadNextDue(name))
                if due.publish_in_ms is None or due.publish_in_ms > 0:
                    return None, due.publish_in_ms
            except (PoolFrozen, PoolUnverified):
                pass  # the sweep rebuilds it, or verifies it
            if not leader.leads():
                return None, 0
            found = _swept(app, name, None if leader.lease is None else leader.lease.fencing_token)
            return found, store.execute(op.ReadNextDue(name)).publish_in_ms

        return work_on_due("sweep", settings().sweep_every, one, goes_on=leader.goes_on)


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
    if _is_needless(self, "expire"):
        return {}
    return _counted("expire", settings().expire_every, expired)


def expired(sku: str) -> tuple[int, int | None]:
    """End the holds and carts of a pool that are over; returns how many, and ms to the next end."""
    shared = connections()
    try:
        names, dues = [sku], [_next_due(sku)]
    except PoolMissing:
        pool = _found(sku)
        if not isinstance(pool, ShardedPool):
            raise
        names = [shard.sku for shard in pool.shards]
        dues = [_next_due(name) for name in names]
    ended = 0
    if any(due.hold_in_ms is not None and due.hold_in_ms <= 0 for due in dues):
        pool = _found(sku)
        while True:
            if isinstance(pool, ShardedPool):
                page = _decided(pool).expire()
            else:
                page = expire_voided(pool, shared.gate) if pool.is_gated(again=True) else pool.expire()
            ended += len(page)
            if len(page) < EXPIRED_MAX:
                break
    if any(due.cart_in_ms is not None and due.cart_in_ms <= 0 for due in dues):
        carts = Carts(shared.store, gate=shared.gate if shared.pool(sku).is_gated(again=True) else None)
        ended += len(carts.finish(sku).finished)
    if ended:
        dues = [shared.store.execute(op.ReadNextDue(name)) for name in names]
    times = [time for due in dues for time in (due.hold_in_ms, due.cart_in_ms) if time is not None]
    return ended, min(times, default=None)


def _next_due(name: str) -> NextDue:
    """Read what is due in a pool or shard; one whose server is not verified is verified first."""
    pool = connections().pool(name)
    try:
        return pool.store.execute(op.ReadNextDue(name))
    except PoolUnverified:
        return when_verified(pool, connections().gate, lambda: pool.store.execute(op.ReadNextDue(name)))


@shared_task(bind=True, name="segmented.finish_transfers", **TASK_OPTIONS)
def finish_transfers(self: Task[Any, Any]) -> dict[str, int]:
    """Complete transfers of units between shards whose sender died, and returns whose process died."""
    if _is_needless(self, "finish_transfers"):
        return {}

    def one(sku: str) -> tuple[int, int | None]:
        pool = _found(sku)
        moved = _decided(pool).finish_transfers() if isinstance(pool, ShardedPool) else 0
        parts = [shard.plain for shard in pool.shards] if isinstance(pool, ShardedPool) else [pool]
        moved += sum(finish_returns(part, connections().gate) for part in parts if part.is_gated(again=True))
        return moved, 0 if moved else None

    return _counted("finish_transfers", settings().transfers_every, one)


def _decided(pool: ShardedPool) -> ShardedPool:
    """Return a pool in shards with the gate, if the order database decides its orders."""
    if not pool.shards[0].is_gated(again=True):
        return pool
    said, shared = settings(), connections()
    return ShardedPool(shared.store, pool.sku, ttl=said.segment_ttl, hold=said.hold, gate=shared.gate)


@shared_task(bind=True, name="segmented.relay", **TASK_OPTIONS)
def relay(self: Task[Any, Any]) -> dict[str, int]:
    """Copy the ledgers of relayed pools to the order database, trim them behind it, and tell how orders ended.

    A pool is relayed once `segmented pool relay` has copied its ledger, or if this worker tells how orders ended.
    """
    if _is_needless(self, "relay"):
        return {}
    said, gate, hook, own = settings(), connections().gate, on_outcome(), assignment_of(self.app)
    end = time.monotonic() + said.task_time_limit / 2

    def one(sku: str) -> tuple[int, int | None]:
        pool = _found(sku)
        state = pool.state()
        shards = state.shards if isinstance(state, ShardedState) else (state,)
        tells = hook is not None and all(own.takes(shard.queue, shard.step) for shard in shards)
        if not tells and all(shard.relayed is None for shard in shards):
            return 0, None
        copied = relay_pool(pool, gate, timeout=said.task_time_limit / 2, trim_keep=said.ledger_keep).copied
        told = tell_outcomes(pool, gate, hook, goes_on=lambda: time.monotonic() < end) if tells and hook else 0
        return copied, 0 if copied or told or state.reserved else None

    return _counted("relay", said.relay_every, one)


@shared_task(bind=True, name="segmented.forget", **TASK_OPTIONS)
def forget(self: Task[Any, Any]) -> dict[str, int]:
    """Drop the records of finished orders of gated pools, after their grace time, behind the relay and its trim."""
    said = settings()
    if said.forget_after is None or _is_needless(self, "forget"):
        return {}
    gate, grace = connections().gate, said.forget_after

    def one(sku: str) -> tuple[int, int | None]:
        pool = _found(sku)
        state = pool.state()
        if isinstance(pool, ShardedPool) or isinstance(state, ShardedState) or not state.gated or state.relayed is None:
            return 0, None
        if pool.store.execute(op.ReadLedgerStart(pool.sku)) <= 1:
            return 0, None
        dropped = forget_orders(pool, gate, grace=grace, timeout=said.task_time_limit / 2).orders
        return dropped, 0 if dropped else None

    return _counted("forget", said.forget_every, one)


@shared_task(bind=True, name="segmented.audit", **TASK_OPTIONS)
def audit(self: Task[Any, Any]) -> dict[str, int]:
    """Compare every pool with its ledger and its order database, in slices; the log says what differs.

    A slice ends after half the time limit, and the next message goes on there.
    """
    if _is_needless(self, "audit"):
        return {}
    end = time.monotonic() + settings().task_time_limit / 2

    def one(sku: str) -> tuple[int, int | None]:
        pool = _found(sku)
        parts = [shard.plain for shard in pool.shards] if isinstance(pool, ShardedPool) else [pool]
        audited = [_audited(part, end) for part in parts]
        return sum(found for found, _ in audited), None if all(is_ended for _, is_ended in audited) else 1

    return _counted("audit", settings().audit_every, one)


def _audited(pool: Pool, end: float) -> tuple[int, bool]:
    state = pool.state()
    gate = connections().gate if state.gated else None
    report = audit_slice(pool, gate, is_over=lambda: time.monotonic() >= end)
    found = report.found
    if state.frozen is not None:
        found = (*found, "it is frozen: change {1} of epoch {0} is lost".format(*state.frozen))
    if found:
        events.count("segmented.pool.differences", len(found), (sku_label(pool.sku),))
        named = "; ".join(found[:NAMED_MAX])
        log.error("pool %r: %d differences, for 'segmented pool audit': %s", pool.sku, len(found), named)
    return len(found), report.is_ended


def _is_needless(task: Task[Any, Any], duty: Duty) -> bool:
    """Return whether a message has nothing to do: nothing is due, or messages piled up while no worker took them.

    They are counted, as a worker's clock may be wrong. If the periodic tasks share the orders' queue, its length says
    nothing about them. A program that calls the task itself is always served.
    """
    if not task.request.called_directly and is_idle(duty):
        return True
    name = str(task.name)
    if queue_of(task.app, name) == queue_of(task.app, TASK):
        return False
    try:
        return waiting(task.app, name) > PILE_MAX
    except StoreUnavailable:
        return False


def _counted(duty: Duty, every: float, work: Callable[[str], tuple[int, int | None]]) -> dict[str, int]:
    """Work on the pools that are due for half the time limit; the rest is due at the next message."""
    end = time.monotonic() + settings().task_time_limit / 2
    try:
        return work_on_due(duty, every, work, goes_on=lambda: time.monotonic() < end)
    except StoreError as error:
        log.warning("%s: no pool: %s", duty, error)
        return {}


def _found(sku: str) -> Pool | ShardedPool:
    return find_pool(connections().store, sku, ttl=settings().segment_ttl, hold=settings().hold)


def is_idle(duty: Duty) -> bool:
    """Return whether nothing was due a short time ago, and nothing that was known then is due now."""
    return time.monotonic() < idle_until.get(duty, 0.0)


def work_on_due(
    duty: Duty, every: float, work: Callable[[str], tuple[ResultT | None, int | None]], *, goes_on: Callable[[], bool]
) -> dict[str, ResultT]:
    """Work on each pool that is due; returns what was done, by pool. `work` returns that, and ms to the next time.

    One that is due still, or fails, is tried again `every` seconds later, and stops no other.
    """
    store, done, offset = connections().store, dict[str, ResultT](), 0
    every_ms = max(1, int(every * 1_000))
    _adopt()
    while page := _listed(store, duty, offset):
        for name, seen in page:
            if not goes_on():
                return done
            found, after_ms = _worked_on(duty, name, every_ms, work)
            if found:
                done[name] = found
            if after_ms == "elsewhere":
                offset += 1
            else:
                store.execute(op.MovePool(duty, name, seen, after_ms, every_ms))
        if len(page) < PAGE:
            break
    return done


def _listed(store: RedisStore, duty: Duty, offset: int) -> tuple[tuple[str, str], ...]:
    found = store.execute(op.ListDuePools(duty, offset, PAGE))
    if found.first_in_ms is not None:
        idle_until[duty] = time.monotonic() + min(found.first_in_ms / 1_000, IDLE_SECONDS_MAX)
    return found.pools


def _worked_on(
    duty: Duty, name: str, every_ms: int, work: Callable[[str], tuple[ResultT | None, int | None]]
) -> tuple[ResultT | None, int | Literal["gone", "elsewhere"] | None]:
    if _elsewhere.get(name, 0.0) > time.monotonic():
        return None, "elsewhere"
    try:
        found, after_ms = work(name)
    except (PoolMissing, ShardVanished):
        return None, "gone"
    except AssignedElsewhere as error:
        refuse(error)
        _elsewhere[name] = time.monotonic() + ELSEWHERE_SECONDS
        return None, "elsewhere"
    except SegmentedError as error:
        log.warning("%s of pool %r failed: %s", duty, name, error)
    except Exception:
        log.exception("%s of pool %r failed", duty, name)
    else:
        return found, after_ms if after_ms is None or after_ms > 0 else every_ms
    return None, every_ms


def _adopt() -> None:
    """Enter the pools of the settings, once an hour."""
    now = time.monotonic()
    if adopted_until and now < adopted_until[0]:
        return
    adopted_until[:] = [now + ADOPTED_SECONDS]
    store = connections().store
    for sku in settings().skus:
        store.execute(op.NotePool(sku))
