"""Verify a gated pool whose server was restarted or replaced: has it all that its order database has seen of it?

Such a server may lack changes that it had acknowledged. A process that has seen them notices it, but perhaps there is
none any more. So every pool script of a gated pool compares the server's identity with the one that the pool was last
verified on, and refuses to work on another one. Then:

1. The new server is asked for its identity.
2. The database is read: the epoch, and the highest change of the pool that an order it confirmed had. Changes that only
   the old server had are in the database by now, or they were never acknowledged.
3. One script compares the pool with these numbers. If it is behind, it is frozen, and is to be rebuilt. Otherwise the
   script notes the server, unless yet another one has replaced it: then the database is read again.

A pool that was just rebuilt is compared in the same way before it sells: another rebuild may have raised the database's
epoch meanwhile. And each process compares a pool once, at its first call with both: somebody may have restored its keys
from an older copy without a restart, which a process that has seen nothing does not notice by itself. Every step can be
repeated, and any number of processes may do it at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

from segmented import protocol as op
from segmented.errors import (
    AnotherDatabase,
    InvalidInput,
    PoolMissing,
    PoolNotGated,
    PoolUnverified,
    RowsMissing,
    SegmentedError,
)
from segmented.models import Settled, Verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from segmented.models import PoolState
    from segmented.orders.answers import SegmentTotals
    from segmented.orders.database import OrderDatabase
    from segmented.plans.drivers import Store
    from segmented.stock import Pool

TURNS_MAX: Final = 5
"""Maximum number of times that the pool's server may be replaced, or the pool thawed, during one call."""

AnswerT = TypeVar("AnswerT")

_COMPARED: Final[WeakKeyDictionary[Store, WeakKeyDictionary[OrderDatabase, set[str]]]] = WeakKeyDictionary()
"""The pools that each store of this process has compared with each order database."""


def verify(pool: Pool, gate: OrderDatabase) -> Verified:
    """Compare a gated pool with its order database, so that it sells on a restarted or promoted server.

    Safe to repeat, also concurrently. Raises PoolFrozen if the server lost changes (then use `rebuild`), PoolNotGated,
    PoolMissing, InvalidInput if the database has no rows for the pool or those of another sale, and PoolUnverified if
    the servers change too quickly. A pool that has noted no sale, because an earlier release opened it, notes this one.
    """
    turn = ""
    for _ in range(TURNS_MAX):
        rows = opened_totals(gate, pool.sku)
        try:
            answer = pool.store.execute(op.VerifyPool(pool.sku, rows.epoch, rows.sequence, turn, rows.sale_id))
        except AnotherDatabase as error:
            raise AnotherDatabase(pool.sku, gate.where) from error
        if isinstance(answer, Verified):
            return answer
        turn = answer
    raise PoolUnverified(pool.sku)


def opened_totals(gate: OrderDatabase, sku: str) -> SegmentTotals:
    """Read the database's rows of an open pool. Raises RowsMissing if there are none."""
    rows = gate.totals(sku)
    if not rows.segments:
        raise RowsMissing(sku, gate.where)
    return rows


def own_totals(gate: OrderDatabase, state: PoolState) -> SegmentTotals:
    """Read the rows of the database that decides this pool's orders. Raises InvalidInput for another database."""
    rows = opened_totals(gate, state.sku)
    check_sale(gate, state, rows)
    return rows


def check_sale(gate: OrderDatabase, state: PoolState, rows: SegmentTotals) -> None:
    """Raise AnotherDatabase if pool and rows are of different sales. Those of earlier releases may have no identity."""
    if state.sale_id and rows.sale_id and state.sale_id != rows.sale_id:
        raise AnotherDatabase(state.sku, gate.where)


def compare_once(pool: Pool, gate: OrderDatabase) -> None:
    """Compare a pool with its order database at this store's first call with both. Raises PoolFrozen if it is behind.

    Raises AnotherDatabase for one of another sale, and RowsMissing for one without rows of this one. What cannot be
    compared is left to the call itself.
    """
    if is_compared(pool, gate):
        return
    try:
        if not pool.is_gated():  # the database, of other pools, may not even have its tables
            return
        verify(pool, gate)
        gate.stocking.note_terms(pool.known_state())  # of an earlier release, or assigned without the database
    except (AnotherDatabase, RowsMissing):
        raise
    except (InvalidInput, PoolMissing, PoolNotGated):
        return
    _COMPARED.setdefault(pool.store, WeakKeyDictionary()).setdefault(gate, set()).add(pool.sku)


def is_compared(pool: Pool, gate: OrderDatabase) -> bool:
    """Return whether this store has compared the pool with the order database."""
    compared = _COMPARED.get(pool.store)
    return compared is not None and pool.sku in compared.get(gate, ())


def freeze_if_behind(pool: Pool, epoch: int, stored: int, settled: Iterable[object]) -> None:
    """Freeze a pool that confirmed orders with changes before `stored`, of which the database knew when it answered.

    The orders are decided. The pool's changes came later, so only a pool that lost changes has lower numbers for them.
    """
    if stored > max((one.sequence for one in settled if isinstance(one, Settled)), default=stored):
        with suppress(SegmentedError):
            pool.store.execute(op.VerifyPool(pool.sku, epoch, stored))


def when_verified(pool: Pool, gate: OrderDatabase | None, ask: Callable[[], AnswerT]) -> AnswerT:
    """Ask the pool; if it must be verified first, do so and ask again. Without a gate, raises PoolUnverified."""
    if gate is not None:
        compare_once(pool, gate)
    try:
        return ask()
    except PoolUnverified:
        if gate is None:
            raise
        verify(pool, gate)
    return ask()
