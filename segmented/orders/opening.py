"""Open a gated pool, restock, withdraw from and resize it.

The database rows come first, so that every open pool has its gate, and a pool is opened only once in an epoch.

The database remembers that the pool was open. If the pool is gone, its keys were lost, and what it had sold or promised
is unknown on that server: it is not opened again as if nothing had happened.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from segmented import protocol as op
from segmented.errors import (
    ChangeDiverged,
    EpochEnded,
    InvalidInput,
    PoolArchived,
    PoolMissing,
    PoolNotGated,
    PoolVanished,
    ShardVanished,
)
from segmented.models import AlreadyOpen, Closed, Restocked, Shard, TooFew
from segmented.models.ids import plural
from segmented.models.shards import SHARD_MARK, checked_pool_name
from segmented.orders import answers
from segmented.orders.answers import EpochChanged, Stored, TooFewUnsold
from segmented.orders.stocking import Change
from segmented.orders.tables import DONE, RESTOCKED, UNDONE, WITHDRAWN
from segmented.orders.verifying import check_sale, own_totals, when_verified
from segmented.plans import run_sync
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, Opening, PoolSettings, check_profile_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import Opened, PoolState, Resized
    from segmented.orders.answers import ChangeAnswer
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool, ShardedPool


AnswerT = TypeVar("AnswerT")

REBUILDS_MAX: Final = 3
"""Maximum number of rebuilds that overtake one change."""
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
            raise InvalidInput(
                f"the order database has rows for {pool.sku!r} of epoch {found.epoch}, not of epoch {epoch}: "
                f"'segmented pool reopen {pool.sku}' opens a later epoch with what they have not sold"
            )
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
    raise InvalidInput(
        f"the order database knows {base!r} {known}, so it is not opened in another way, which would sell its units "
        "twice: open it as it was, on its own server, or sell under another sku"
    )


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
        raise InvalidInput(
            f"{pool.sku!r} cannot be opened again alone, because the others know its transfers: bring its data back"
        )
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
        raise InvalidInput(
            f"{gate.where} has no rows for {pool.sku!r}, so it is not opened again: name the database that it was "
            "opened with, or open a new sale with 'segmented pool open'"
        )
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
        raise InvalidInput(f"pool {pool.sku!r} was open in epoch {known or rows.epoch}; give a later epoch")
    raised = gate.stocking.raise_epoch(pool.sku, segments, epoch=epoch, opened=known)
    if raised is None:
        raise InvalidInput(f"{pool.sku!r} was opened by another process meanwhile: read its state")
    if raised.quota == raised.sold:
        units = f"{raised.quota} {plural(raised.quota, 'unit')}"
        raise InvalidInput(f"the whole stock of {pool.sku!r} is sold, {units}: there is nothing to open again")
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
        raise InvalidInput(f"pool {state.sku!r} is open in epoch {state.epoch}, not in epoch {epoch}")
    gate.stocking.note_opened(state.sku, epoch=epoch)
    gate.stocking.note_terms(state)
    # So that workers know it, and settle what expires.
    pool.store.execute(op.NotePool(state.sku, expire_ms=0, submits=True))
    return state


def _check_gated(state: PoolState) -> None:
    if not state.gated:
        raise InvalidInput(f"pool {state.sku!r} {UNGATED}")


def stock_said(stock: int, segments: int) -> str:
    """Return a stock and its segments as text."""
    return f"stock {stock} in {segments} {plural(segments, 'segment')}"


def _check_unopened(sku: str, known: int | None, found: answers.AlreadyOpen, stock: int, segments: int) -> None:
    """Refuse to open again a pool that was open; one that never was can be finished as it was begun."""
    if known is not None or found.sold:
        raise PoolVanished(sku, found.epoch)
    if (found.stock, found.segment_count) != (stock, segments):
        raise InvalidInput(
            f"the order database has rows for {sku!r} with {stock_said(found.stock, found.segment_count)}, "
            f"not with {stock_said(stock, segments)}: open it so, or name another sku or database"
        )


def _check(pool: Pool, opening: Opening) -> op.OpenPool:
    """Check the arguments and the stock's server, before the database gets rows."""
    operation = PoolSettings(pool.sku, ttl=DEFAULT_TTL, hold=DEFAULT_HOLD).open(opening)
    run_sync(check_profile_plan(operation), pool.store)
    return operation


# --- changes of an open pool, in the order that cannot oversell ---
#
# The database never allows less than the pool may sell: its quota rises before the pool gets the units and falls after
# the pool has given them up, and a segment has its row before the pool uses it. A process that dies between two steps
# leaves a row in state `begun`; the next call with the same id finishes it.


def restock_gated(pool: Pool, gate: OrderDatabase, units: int, *, restock_id: str) -> Restocked | Closed:
    """Add units to a gated pool and its order database during the sale, once for each id. Safe to repeat.

    The database gets them first; if the pool refuses them, it gives them up again. Raises ChangeMismatch if the
    id belongs to another change, on either side, and ChangeDiverged if the database has another epoch than the pool, or
    no rows.
    """
    restock_id = _checks(pool).restock(units, restock_id).change_id
    return _in_one_epoch(
        pool, gate, f"change {restock_id!r}", lambda state: _restock(pool, gate, state, units, restock_id)
    )


def _restock(pool: Pool, gate: OrderDatabase, state: PoolState, units: int, restock_id: str) -> Restocked | Closed:
    change = Change(pool.sku, restock_id, RESTOCKED, units, state.epoch)
    begun = _stored(change, gate.stocking.begin(change, state.segment_count))
    if begun.state == UNDONE:
        return Closed(restock_id)
    if begun.state == DONE and begun.epoch != state.epoch:
        return _known(change, state)
    try:
        answer = _done(pool, gate, op.Restock(pool.sku, restock_id, units, state.epoch))
    except InvalidInput:  # more than the pool can count
        _stored(change, gate.stocking.undo(change))
        raise
    _stored(change, gate.stocking.undo(change) if isinstance(answer, Closed) else gate.stocking.finish(change))
    return answer


def withdraw_gated(pool: Pool, gate: OrderDatabase, units: int, *, withdraw_id: str) -> Restocked | TooFew:
    """Remove free units from a gated pool, then from its order database, once for each id. Safe to repeat.

    The first call binds the id to these units, even if too few are free then: a repeat tries again. Raises
    ChangeMismatch and ChangeDiverged as `restock_gated` does. If the database has sold the units, the pool lost
    changes, and is frozen; a rebuild undoes such a withdrawal.
    """
    withdraw_id = _checks(pool).withdraw(units, withdraw_id).change_id
    change = f"change {withdraw_id!r}"
    return _in_one_epoch(pool, gate, change, lambda state: _withdraw(pool, gate, state, units, withdraw_id))


def _withdraw(pool: Pool, gate: OrderDatabase, state: PoolState, units: int, withdraw_id: str) -> Restocked | TooFew:
    change = Change(pool.sku, withdraw_id, WITHDRAWN, units, state.epoch)
    begun = _stored(change, gate.stocking.begin(change, state.segment_count))
    if begun.state == UNDONE:  # at a rebuild, because the units were sold
        return TooFew(withdraw_id, units, state.available)
    if begun.state == DONE and begun.epoch != state.epoch:
        return _known(change, state)
    answer = _done(pool, gate, op.Withdraw(pool.sku, withdraw_id, units, state.epoch))
    if isinstance(answer, Restocked):
        finished = gate.stocking.finish(change)
        if isinstance(finished, TooFewUnsold):  # the pool gave up units that it has forgotten to have sold
            with suppress(InvalidInput):
                pool.store.execute(op.FreezePool(pool.sku, state.epoch))
        _stored(change, finished)
    return answer


def resize_gated(pool: Pool, gate: OrderDatabase, segments: int) -> Resized:
    """Change the number of a gated pool's segments during the sale; new ones get a database row first.

    Rows of removed segments stay, and their quota moves to where it is sold. Safe to repeat.
    """
    _checks(pool).resize(segments)
    change = f"a resize to {segments} {plural(segments, 'segment')}"

    def resize(state: PoolState) -> Resized:
        _refuse(pool.sku, change, gate.stocking.add_segments(pool.sku, segments, epoch=state.epoch))
        operation = op.Resize(pool.sku, segments)  # in no epoch: the rows outlive each
        return when_verified(pool, gate, lambda: pool.store.execute(operation))

    return _in_one_epoch(pool, gate, change, resize)


def _in_one_epoch(pool: Pool, gate: OrderDatabase, change: str, act: Callable[[PoolState], AnswerT]) -> AnswerT:
    """Make a change; if the pool is rebuilt meanwhile, the database tells whether the rebuilt pool includes it."""
    detail = ""
    for _ in range(REBUILDS_MAX):
        state = _gated_state(pool, gate)
        try:
            return act(state)
        except EpochEnded as ended:
            detail = f"the database is in epoch {ended.epoch}, the pool was in epoch {state.epoch}"
    raise ChangeDiverged(pool.sku, change, detail)


def _done(pool: Pool, gate: OrderDatabase, operation: op.Operation[AnswerT]) -> AnswerT:
    """Make a change in the pool, in the epoch in which the database has begun it."""
    try:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))
    finally:
        pool.note_return()


def _checks(pool: Pool) -> PoolSettings:
    """Return the settings that check input before the database is changed."""
    return PoolSettings(pool.sku, ttl=DEFAULT_TTL, hold=DEFAULT_HOLD)


def _gated_state(pool: Pool, gate: OrderDatabase) -> PoolState:
    state = pool.state()
    if not state.gated:
        raise PoolNotGated(pool.sku)
    check_sale(gate, state, gate.totals(pool.sku))
    return state


def _stored(change: Change, answer: ChangeAnswer | TooFewUnsold) -> Stored:
    return _refuse(change.sku, f"change {change.change_id!r}", answer)


def _refuse(sku: str, change: str, answer: ChangeAnswer | TooFewUnsold) -> Stored:
    if isinstance(answer, Stored):
        return answer
    match answer:
        case EpochChanged(epoch):
            raise EpochEnded(sku, epoch)
        case TooFewUnsold(total, sold):
            detail = f"the pool has given units up, but {sold} of {total} are sold"
        case _:
            detail = "the database has no rows for it"
    raise ChangeDiverged(sku, change, detail)


def _known(change: Change, state: PoolState) -> Restocked:
    """Answer for a change made in a pool of an earlier epoch, which this pool's stock already includes."""
    return Restocked(change.change_id, change.units, state.sequence, state.available, replay=True)
