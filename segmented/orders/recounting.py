"""Count the numbers of a frozen gated pool from its records, because another program has written to them.

The order database knows what is sold and what was ever stocked. What only the pool knows is in its records and its
notes of restocks and withdrawals, so a rebuild can start from these, whatever the pool's own totals say. A frozen pool
is changed by another rebuild alone, after which the count starts again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import InvalidInput, StoreRefused
from segmented.ledger_lines import parse_record
from segmented.models import SEGMENT_COUNT_MAX
from segmented.stock.audit import unreadable_totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.models import PoolState
    from segmented.stock import Pool

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
    message = f"the numbers of {pool.sku!r} changed {TRIES_MAX} times while they were counted: try again"
    raise StoreRefused(message)


def _count(pool: Pool, segment_count: int, before: tuple[int, int]) -> op.RecountPool:
    units = {"reserved": 0, "confirmed": 0, "restocked": 0, "withdrawn": 0}
    sequence = 0
    for ids in _order_ids(pool):
        for inspected in pool.store.execute(op.InspectOrders(pool.sku, ids)):
            record = None if inspected.raw is None else parse_record(inspected.order_id, inspected.raw)
            if record is not None:  # an audit names one that cannot be read
                units[record.state] = units.get(record.state, 0) + record.quantity
                sequence = max(sequence, record.sequence)
    for note in _notes(pool):
        kind, _, rest = note.partition(" ")
        number = rest.partition(" ")[0]
        if kind in units and number.isdecimal():
            units[kind] += int(number)
    return op.RecountPool(
        pool.sku,
        units["reserved"],
        units["confirmed"],
        units["restocked"],
        units["withdrawn"],
        segment_count,
        sequence,
        before,
    )


def _order_ids(pool: Pool) -> Iterator[tuple[str, ...]]:
    """Read the ids of all records, each once, in pages."""
    seen = set[str]()
    cursor = -1
    while cursor != 0:
        cursor, found = pool.store.execute(op.ScanIds(pool.sku, "orders", max(cursor, 0)))
        ids = [order_id for order_id in dict.fromkeys(found) if order_id not in seen]
        seen.update(ids)
        for first in range(0, len(ids), op.BATCH_MAX):
            yield tuple(ids[first : first + op.BATCH_MAX])


def _notes(pool: Pool) -> Iterator[str]:
    """Read the notes of all restocks and withdrawals, each once."""
    notes: dict[str, str] = {}
    cursor = -1
    while cursor != 0:
        cursor, page = pool.store.execute(op.ScanChanges(pool.sku, max(cursor, 0)))
        notes |= page
    yield from notes.values()
