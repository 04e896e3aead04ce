"""Rebuild a gated pool that lost acknowledged changes: the order database says what is sold, and the pool follows.

1. The pool is frozen so that no earlier rebuild can open it any more. The database raises the epoch of all the pool's
   rows, unless another rebuild got there first. This waits for confirms in progress, and refuses those of the old epoch
   from then on. So what it has sold stands still until the pool sells again.
2. The pool's reserved orders are looked up in the database, in pages. Those that it sold or voided are ended. If the
   others need more units than are unsold, because the pool promised the same units twice, some of them are voided.
3. The database notes, once, that the pool is open in the new epoch. An epoch in which a pool may have sold orders that
   it has forgotten is never used again.
4. One script puts the pool into the new epoch: what is neither sold nor still reserved is free.
5. The pool is compared with the database before it sells. If another rebuild has raised the database's epoch meanwhile,
   the pool is frozen again, whoever of them has died.

If another program has written to the pool's numbers, so that they do not add up or cannot be read, they are counted
first from its records and its notes of restocks and withdrawals (`recount`). Other pools, and other shards, sell on.
Every step can be repeated, and a rebuild that was interrupted is continued by the next one, also in another process.
Submitted orders stay in the outbox, and workers go on with them.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolFrozen, PoolNotFrozen, PoolNotGated, StoreRefused
from segmented.ledger_lines import parse_record
from segmented.models import SEGMENT_COUNT_MAX, Shard, Thawed
from segmented.models.pools import latest_epoch
from segmented.orders.answers import AlreadyConfirmed, Stored
from segmented.orders.stocking import Change, other_shards
from segmented.orders.tables import WITHDRAWN
from segmented.orders.verifying import opened_totals, own_totals, verify
from segmented.plans import run_sync
from segmented.stock.audit import unreadable_totals
from segmented.stock.audit_orders import pages_of
from segmented.stock.plans import scanned_plan
from segmented.stock.thawing import held_again_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Literal

    from segmented.models import PoolState, Transfer
    from segmented.orders.answers import Return
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

    Decided = tuple[tuple[str, Literal["confirmed", "cancelled"]], ...]

log = logging.getLogger(__name__)

ROUNDS_MAX: Final = 10
"""Maximum number of rebuilds of others that overtake one."""
PAGE: Final = 200
"""Reserved orders looked up and ended in one step: with more, orders of other pools would wait for each script."""
PAUSE_SECONDS_MAX: Final = 0.1
"""Longest pause between two pages. It is as long as the page took, so a rebuild takes half of what it could."""
STATES: Final[dict[str, Literal["confirmed", "cancelled"]]] = {"confirmed": "confirmed", "void": "cancelled"}
"""How an order ends in the pool, by its state in the database."""


def rebuild(pool: Pool, gate: OrderDatabase, *, selling: bool = False) -> Thawed:
    """Let a frozen gated pool sell again, in a new epoch, with the units that the order database has not sold.

    Safe to repeat, and to run twice at once. Units that were only reserved stay reserved, as far as the pool still
    knows of them. If another program has written to the pool's numbers, they are counted again from its records.
    A pool that is in a later epoch than its database, because that is a restored copy or another one rebuilt the pool,
    is rebuilt although it sells, and with `selling` so is any pool, because an audit found that both differ. Raises
    PoolNotFrozen for any other pool that sells, PoolNotGated, PoolMissing if the pool's keys are gone (then use
    `reopen_gated`), and InvalidInput if the database has no rows for the pool, or those of another sale.
    """
    state = pool.state()
    if not state.gated:
        raise PoolNotGated(pool.sku)
    rows = own_totals(gate, state)
    if is_drifted(state):
        state = recount(pool, len(rows.segments))
    if state.frozen is None:
        if selling or rows.epoch < state.epoch:  # it was read after the pool, so it was never in the pool's epoch
            with suppress(InvalidInput):
                pool.store.execute(op.FreezePool(pool.sku, state.epoch))
        elif _sells(pool, gate):
            raise PoolNotFrozen(pool.sku)
        state = pool.state()
    for _ in range(ROUNDS_MAX):
        thawed = _rebuilt(pool, gate, state)
        if thawed is not None:
            return thawed
        state = pool.state()
        if state.frozen is None and _sells(pool, gate):
            return Thawed(state, replay=True)
    raise InvalidInput(f"{ROUNDS_MAX} rebuilds of {pool.sku!r} in a row were overtaken by others: read its state")


def _rebuilt(pool: Pool, gate: OrderDatabase, state: PoolState) -> Thawed | None:
    """Rebuild a frozen pool in this state once; None if another rebuild overtook this one."""
    begun = opened_totals(gate, pool.sku).epoch
    opened = gate.stocking.opened_epoch(pool.sku) or 0
    try:  # nobody may take units between here and the end, nor may a rebuild that is in its last step open the pool
        pool.store.execute(op.FreezePool(pool.sku, state.epoch, opened))
    except InvalidInput:
        return None
    epoch = _next_epoch(max(latest_epoch(state), opened), begun)
    rows = gate.stocking.raise_epoch(pool.sku, state.segment_count, epoch=epoch, opened=opened, done_since=state.epoch)
    if rows is None:
        return None
    transfers: tuple[Transfer, ...] = ()
    returning = rows.returning
    if isinstance(pool.sku, Shard):  # its stock and its transfers as of one moment, because others may send to it now
        rows, transfers = gate.transfers.read(pool.sku, other_shards(pool, pool.sku))
        if rows.epoch != epoch or not set(gate.returns.begun(pool.sku)) <= set(returning):
            return None
    again = _made_again(pool, gate, returning, epoch)
    sold = rows.sold + sum(one.units for one in again)
    stocked = rows.quota - _withdrawn_already(pool, gate, rows.quota - sold, epoch)
    last = op.ThawPool(pool.sku, epoch, sold, stocked, is_stored=True, transfers=transfers)
    with suppress(PoolNotFrozen):  # another rebuild opened it
        run_sync(held_again_plan(last, state), pool.store)
        for decided in _decided(pool, gate, {one.order_id for one in again}):
            pool.store.execute(replace(last, decided=decided, is_last=False))
        for voided in _voided(pool, gate, stocked - sold):
            pool.store.execute(replace(last, decided=voided, is_last=False))
        noted = gate.stocking.note_opened(pool.sku, epoch=epoch)
        if noted == Stored(replay=False, state="done", epoch=epoch):  # else another one may have opened it, and sold
            with suppress(InvalidInput):  # the pool is another one again: a replica took its place, or a later rebuild
                thawed = pool.store.execute(last)
                return thawed if _sells(pool, gate) else None
    return None


def _sells(pool: Pool, gate: OrderDatabase) -> bool:
    """Let a thawed pool sell, or freeze it again if the database refuses the orders of its epoch."""
    with suppress(PoolFrozen):
        verify(pool, gate)
        return True
    return False


def _next_epoch(known: int, begun: int) -> int:
    """Return an epoch in which the pool never sold, so that the database refuses every order that was lost.

    That is the database's own, if a rebuild was interrupted before it noted that it would open the pool.
    """
    return begun if begun > known else known + 1


def _made_again(pool: Pool, gate: OrderDatabase, returning: Iterable[Return], epoch: int) -> list[Return]:
    """Return the returns that the database has made and the pool has not, and leave them to this epoch of the pool.

    The pool's records have their units as sold, so its sum has them, too, until it has made these returns.
    """
    asked = list(returning)
    notes = _notes(pool) if asked else {}
    lacking = [one for one in asked if one.return_id not in notes]
    if lacking:
        gate.returns.go_on(pool.sku, tuple(one.return_id for one in lacking), epoch)
    return lacking


def _withdrawn_already(pool: Pool, gate: OrderDatabase, unsold: int, epoch: int) -> int:
    """Return the units of withdrawals that the pool has made and the database has still to make.

    One of more units than are unsold is undone: the pool gave up units that it had forgotten to have sold.
    """
    begun = {one.change_id: one.units for one in gate.unfinished_changes(pool.sku) if one.kind == WITHDRAWN}
    units = 0
    for change_id in sorted(begun.keys() & _notes(pool).keys()) if begun else ():
        if units + begun[change_id] <= unsold:
            units += begun[change_id]
        else:
            gate.stocking.undo(Change(pool.sku, change_id, WITHDRAWN, begun[change_id], epoch))
    return units


def _decided(pool: Pool, gate: OrderDatabase, returning: Collection[str]) -> Iterator[Decided]:
    """Find the reserved orders of the pool that the database has decided, in pages.

    One that is being returned was sold, also if it has no unit left.
    """
    for ids in _reserved(pool):
        rows = gate.orders(pool.sku, ids)
        if rows:
            yield tuple(
                (order_id, "confirmed" if order_id in returning else STATES[row.state])
                for order_id, row in rows.items()
            )


def _voided(pool: Pool, gate: OrderDatabase, unsold: int) -> Iterator[Decided]:
    """Void reserved orders until the others need no more units than are unsold."""
    excess = pool.state().reserved - unsold
    if excess <= 0:
        return
    count = 0
    for ids in _reserved(pool):
        for record in pool.store.execute(op.ReadOrders(pool.sku, ids)):
            if record is None or record.state != "reserved" or excess <= 0:
                continue
            asked = record.asked if record.asked != record.quantity else None
            answer = gate.void(order_id=record.order_id, sku=pool.sku, quantity=record.quantity, asked=asked)
            yield ((record.order_id, "confirmed" if isinstance(answer, AlreadyConfirmed) else "cancelled"),)
            excess -= record.quantity
            count += 1
    log.warning("%d reserved orders of pool %r are voided: their units are sold", count, pool.sku)


def _reserved(pool: Pool) -> Iterator[tuple[str, ...]]:
    """Read the ids of reserved orders, in pages, and let others use both servers between two pages."""
    cursor, now = 0, pool.store.clock.now
    while True:
        cursor, holds = pool.store.execute(op.ScanKey(pool.sku, "holds", cursor))
        ids = tuple(dict(holds))
        for first in range(0, len(ids), PAGE):
            began = now()
            yield ids[first : first + PAGE]
            if cursor != 0 or first + PAGE < len(ids):
                time.sleep(min(now() - began, PAUSE_SECONDS_MAX))
        if cursor == 0:
            return


TRIES_MAX: Final = 10
UNITS_END: Final = 10**15
"""From here on, a script takes a number for one that cannot be read."""


def is_drifted(state: PoolState) -> bool:
    """Return whether a number of the pool cannot be read, or a frozen pool's numbers do not add up."""
    if unreadable_totals(state):
        return True
    units = state.available + state.reserved + state.confirmed
    return state.frozen is not None and (state.stocked != units or min(state.reserved, state.confirmed) < 0)


def recount(pool: Pool, segment_count: int) -> PoolState:
    """Replace the pool's numbers by counted ones, and return its state: it stays frozen, or is from now on.

    `segment_count` counts if the pool's own cannot be read. Ids are kept in memory while they are counted.
    """
    for _ in range(TRIES_MAX):
        state = pool.state()
        if not unreadable_totals(state):
            with suppress(InvalidInput):  # perhaps only this process knows of the loss so far
                pool.store.execute(op.FreezePool(pool.sku, state.epoch))
        segments = state.segment_count if 1 <= state.segment_count <= SEGMENT_COUNT_MAX else segment_count
        reserved, confirmed = (units if abs(units) < UNITS_END else 0 for units in (state.reserved, state.confirmed))
        counted = _count(pool, segments, (reserved, confirmed))
        if pool.store.execute(counted):
            return pool.state()
    raise StoreRefused(f"the numbers of {pool.sku!r} changed {TRIES_MAX} times while they were counted: try again")


def _count(pool: Pool, segment_count: int, before: tuple[int, int]) -> op.RecountPool:
    units = {"reserved": 0, "confirmed": 0, "restocked": 0, "withdrawn": 0}
    sequence = 0
    for ids in pages_of(list(run_sync(scanned_plan(pool.sku, "orders"), pool.store))):
        for inspected in pool.store.execute(op.InspectOrders(pool.sku, ids)):
            record = None if inspected.raw is None else parse_record(inspected.order_id, inspected.raw)
            if record is not None:  # an audit names one that cannot be read
                units[record.state] = units.get(record.state, 0) + record.quantity
                sequence = max(sequence, record.sequence)
    for note in _notes(pool).values():
        kind, _, rest = note.partition(" ")
        number = rest.partition(" ")[0]
        if kind in units and number.isdecimal():
            units[kind] += int(number)
    counted = (units["reserved"], units["confirmed"], units["restocked"], units["withdrawn"])
    return op.RecountPool(pool.sku, *counted, segment_count, sequence, before)


def _notes(pool: Pool) -> dict[str, str]:
    """Read the notes of all restocks, withdrawals and returns, by their ids."""
    return run_sync(scanned_plan(pool.sku, "changes"), pool.store)
