"""Open a gated pool: the database rows first, so that every open pool has its gate; and only once in an epoch.

The database remembers that the pool was open. If the pool is gone, its keys were lost, and what it had sold or promised
is unknown on that server: it is not opened again as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolArchived, PoolMissing, PoolVanished, ShardVanished
from segmented.models import AlreadyOpen, Shard
from segmented.models.ids import plural
from segmented.models.shards import SHARD_MARK, checked_pool_name
from segmented.orders import answers
from segmented.orders.verifying import check_sale, own_totals
from segmented.plans import run_sync
from segmented.stock.opening import Opening, check_profile_plan
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings

if TYPE_CHECKING:
    from segmented.models import Opened, PoolState
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool, ShardedPool


UNGATED: Final = (
    "was opened without an order database, so its orders cannot be sold with one: close and archive it, then open it "
    "with one in a later epoch, with 'segmented pool reopen' if the database has rows of this sale"
)


def open_rows(pool: Pool, gate: OrderDatabase, opening: Opening) -> Opened | AlreadyOpen:
    """Open a pool and its rows in the order database. Safe to repeat; an interrupted run is finished.

    Opening again changes nothing and returns the existing pool, also after it was rebuilt in a later epoch. Raises
    PoolVanished if the pool was open in this epoch and its keys are gone, PoolArchived if it was archived, and
    InvalidInput if the database has rows of another sale. With the default profile, `database`, an order is
    acknowledged when its transaction has committed; `replicated:N` or `fsync` also let reservations and submitted
    orders wait.
    """
    stock, segments, epoch = opening.stock, opening.segments, opening.epoch
    operation = _check(pool, opening)
    base, extra = divmod(stock, segments)
    quotas = [base + (segment < extra) for segment in range(segments)]
    check_shape(gate, pool.sku)
    there = state_of(pool, epoch=epoch)
    if there is not None:  # before the database gets rows
        _check_gated(there)
        if there.sale_id:
            own_totals(gate, there)
    found = gate.open(pool.sku, quotas, epoch)
    rows = gate.totals(pool.sku)
    if isinstance(found, answers.AlreadyOpen):
        if found.epoch != epoch:
            there = state_of(pool)
            if there is not None and there.gated and there.epoch == found.epoch > epoch:  # it was rebuilt meanwhile
                check_sale(gate, there, rows)
                return AlreadyOpen(there)
            message = (
                f"the order database has rows for {pool.sku!r} of epoch {found.epoch}, not of epoch {epoch}: "
                f"'segmented pool reopen {pool.sku}' opens a later epoch with what they have not sold"
            )
            raise InvalidInput(message)
        known = gate.stocking.opened_epoch(pool.sku)  # read before the pool, because it is written after the opening
        there = state_of(pool, epoch=epoch)
        if there is not None:
            return AlreadyOpen(_noted(pool, gate, there, rows, epoch))
        _check_unopened(pool.sku, known, found, stock, segments)
    return _opened(pool, gate, operation, rows)


def check_shape(gate: OrderDatabase, sku: str) -> None:
    """Raise InvalidInput if the database has a sale of this sku in another shape: both would sell its units.

    A sku is one pool, or in shards, each of which has a name of its own; on other servers the names are others.
    """
    base = sku.partition(SHARD_MARK)[0]
    others = [name for name in gate.names_of(base) if name != sku]
    if isinstance(sku, Shard):
        others = [name for name in others if name == base or _number_of(name) == sku.number]
    if not others:
        return
    known = "as one pool" if base in others else "in other shards" if isinstance(sku, Shard) else "as a pool in shards"
    message = (
        f"the order database knows {base!r} {known}, so it is not opened in another way, which would sell its units "
        "twice: open it as it was, on its own server, or sell under another sku"
    )
    raise InvalidInput(message)


def _number_of(name: str) -> int | None:
    found = checked_pool_name(name)
    return found.number if isinstance(found, Shard) else None


def reopen_gated(
    pool: Pool,
    gate: OrderDatabase,
    *,
    segments: int,
    epoch: int,
    limit_per_customer: int | None = None,
    profile: str | None = None,
    queue: str | None = None,
    step: str | None = None,
) -> Opened | AlreadyOpen:
    """Open a pool again whose keys were lost, in a later epoch, with the units that the database has not sold.

    Waits for confirms in progress and refuses those of earlier epochs from then on. Units that were only reserved are
    free again, and customers' limits restart. The limit, profile, queue and step are those of the sale's row, unless
    others are given. Safe to repeat. Raises InvalidInput if the pool exists, the epoch is not later, or no unit is
    left.
    """
    if isinstance(pool.sku, Shard):
        message = (
            f"{pool.sku!r} cannot be opened again alone, because the others know its transfers: bring its data back"
        )
        raise InvalidInput(message)
    kept = gate.stocking.terms(pool.sku)
    if kept is not None:
        limit_per_customer = kept.limit_per_customer if limit_per_customer is None else limit_per_customer
        profile, queue, step = profile or kept.profile, queue or kept.queue, step or kept.step
    opening = Opening(
        stock=1,  # until it is known how many units are not sold
        segments=segments,
        gated=True,
        epoch=epoch,
        limit_per_customer=limit_per_customer,
        profile=profile,
        queue=queue,
        step=step,
    )
    operation = _check(pool, opening)
    rows = gate.totals(pool.sku)
    if not rows.segments:
        message = (
            f"{gate.where} has no rows for {pool.sku!r}, so it is not opened again: name the database that it was "
            "opened with, or open a new sale with 'segmented pool open'"
        )
        raise InvalidInput(message)
    known = gate.stocking.opened_epoch(pool.sku)
    there = state_of(pool)
    if there is not None:
        _check_gated(there)
        check_sale(gate, there, rows)
        if there.epoch == epoch:
            return AlreadyOpen(_noted(pool, gate, there, rows, epoch))
        message = f"pool {pool.sku!r} is open in epoch {there.epoch}; only one whose keys vanished is opened again"
        raise InvalidInput(message)
    if rows.epoch > epoch or (known or 0) >= epoch or (known is None and epoch == 1):
        message = f"pool {pool.sku!r} was open in epoch {known or rows.epoch}; give a later epoch"
        raise InvalidInput(message)
    raised = gate.stocking.raise_epoch(pool.sku, segments, epoch=epoch, opened=known)
    if raised is None:
        message = f"{pool.sku!r} was opened by another process meanwhile: read its state"
        raise InvalidInput(message)
    if raised.quota == raised.sold:
        units = f"{raised.quota} {plural(raised.quota, 'unit')}"
        message = f"the whole stock of {pool.sku!r} is sold, {units}: there is nothing to open again"
        raise InvalidInput(message)
    return _opened(pool, gate, replace(operation, stock=raised.quota - raised.sold), rows)


def next_epoch(pool: Pool, gate: OrderDatabase) -> int:
    """Return the epoch to reopen a pool in: the next one, that of an interrupted reopening, or an open pool's own."""
    there = state_of(pool)
    if there is not None:
        return there.epoch
    begun = gate.totals(pool.sku).epoch
    known = gate.stocking.opened_epoch(pool.sku)
    return begun if known is not None and begun > known else max(begun, known or 0) + 1


def state_of(pool: Pool | ShardedPool, *, epoch: int | None = None) -> PoolState | None:
    """Read the pool; None if none is open. Raises PoolArchived for one that was archived in this `epoch` or later."""
    try:
        return pool.state()
    except (PoolMissing, ShardVanished) as error:
        if isinstance(error, PoolArchived) and epoch is not None and error.epoch >= epoch:
            raise
        return None


def _opened(
    pool: Pool, gate: OrderDatabase, operation: op.OpenPool, rows: answers.SegmentTotals
) -> Opened | AlreadyOpen:
    opened = pool.store.execute(replace(operation, sale_id=rows.sale_id))
    _noted(pool, gate, opened.state, rows, operation.epoch)
    return opened


def _noted(pool: Pool, gate: OrderDatabase, state: PoolState, rows: answers.SegmentTotals, epoch: int) -> PoolState:
    """Store in the database that the pool is open, after checking its state."""
    _check_gated(state)
    check_sale(gate, state, rows)
    if state.epoch != epoch:
        message = f"pool {state.sku!r} is open in epoch {state.epoch}, not in epoch {epoch}"
        raise InvalidInput(message)
    gate.stocking.note_opened(state.sku, epoch=epoch)
    gate.stocking.note_terms(state)
    # So that workers know it, and settle what expires.
    pool.store.execute(op.NotePool(state.sku, expire_ms=0, submits=True))
    return state


def _check_gated(state: PoolState) -> None:
    if not state.gated:
        message = f"pool {state.sku!r} {UNGATED}"
        raise InvalidInput(message)


def stock_said(stock: int, segments: int) -> str:
    """Return a stock and its segments as text."""
    return f"stock {stock} in {segments} {plural(segments, 'segment')}"


def _check_unopened(sku: str, known: int | None, found: answers.AlreadyOpen, stock: int, segments: int) -> None:
    """Refuse to open again a pool that was open; one that never was can be finished as it was begun."""
    if known is not None or found.sold:
        raise PoolVanished(sku, found.epoch)
    if (found.stock, found.segment_count) != (stock, segments):
        message = (
            f"the order database has rows for {sku!r} with {stock_said(found.stock, found.segment_count)}, "
            f"not with {stock_said(stock, segments)}: open it so, or name another sku or database"
        )
        raise InvalidInput(message)


def _check(pool: Pool, opening: Opening) -> op.OpenPool:
    """Check the arguments and the stock's server, before the database gets rows."""
    operation = PoolSettings(pool.sku, ttl=DEFAULT_TTL, hold=DEFAULT_HOLD).open(opening)
    run_sync(check_profile_plan(operation), pool.store)
    return operation
