"""Restock, withdraw and resize a gated pool: changes both sides, in the order that cannot oversell.

The database never allows less than the pool may sell: its quota rises before the pool gets the units and falls after
the pool has given them up, and a segment has its row before the pool uses it. A process that dies between two steps
leaves a row in state `begun`; the next call with the same id finishes it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from segmented import protocol as op
from segmented.errors import ChangeDiverged, EpochEnded, InvalidInput, PoolNotGated
from segmented.models import Closed, Restocked, TooFew
from segmented.models.ids import plural
from segmented.orders.answers import EpochChanged, Stored, TooFewUnsold
from segmented.orders.stocking import Change
from segmented.orders.tables import DONE, RESTOCKED, UNDONE, WITHDRAWN
from segmented.orders.verifying import check_sale, when_verified
from segmented.stock.settings import DEFAULT_HOLD, DEFAULT_TTL, PoolSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.models import PoolState, Resized
    from segmented.orders.answers import ChangeAnswer
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

REBUILDS_MAX: Final = 3
"""Maximum number of rebuilds that overtake one change."""

AnswerT = TypeVar("AnswerT")


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
    begun = _stored(change, gate.stocking.begin_restock(change, state.segment_count))
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
    begun = _stored(change, gate.stocking.begin_withdrawal(change))
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
