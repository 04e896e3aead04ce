"""Tell a program how orders ended, each at least once: the ledger that was relayed to the database says it.

1. The ledger is relayed first. A row in `segmented_outcomes` says which of its changes were told last.
2. The changes behind it that end orders are told, and then the row moves. So a process that dies tells them again.
3. A rebuilt pool may have lost its last changes, and the database has decided their orders: before the first change of
   the new epoch, each decided order that no ledger has is told.
4. Orders in the dead-letter set have no change in the ledger. Their time says which were told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from segmented import protocol as op
from segmented.orders.outcome_rows import PAGE
from segmented.plans import run_sync
from segmented.stock import ShardedPool
from segmented.stock.outbox import dead_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.orders.database import OrderDatabase
    from segmented.orders.outcome_rows import Outcome, Place
    from segmented.stock import Pool

OnOutcome: TypeAlias = Callable[[str, str, str], object]
"""Gets the order id, its state and the reason, which is empty if there is none."""


def tell_outcomes(
    pool: Pool | ShardedPool, gate: OrderDatabase, on_outcome: OnOutcome, *, goes_on: Callable[[], bool]
) -> int:
    """Call `on_outcome` with every order of a relayed pool that has ended since the last call; returns how many.

    At least once for each: again after a crash, a failed call, or a rebuild. In the order of the changes; an error of
    `on_outcome` passes through, and the next call begins with that order. Ends when `goes_on` says no.
    """
    shards = pool.shards if isinstance(pool, ShardedPool) else (pool,)
    return sum(_Telling(pool.sku, number, shard, gate).run(on_outcome, goes_on) for number, shard in enumerate(shards))


class _Telling:
    """The outcomes of one shard."""

    def __init__(self, base: str, number: int, shard: Pool, gate: OrderDatabase) -> None:
        self._shard = shard.plain
        self._rows = gate.outcome_rows(base, number, shard.sku)

    def run(self, on_outcome: OnOutcome, goes_on: Callable[[], bool]) -> int:
        count = 0
        while goes_on():
            place = self._rows.place()
            page = list(self._next(place))
            if not page:
                break
            reached = place
            try:
                for after, order_id, state, reason in page:
                    if order_id:
                        on_outcome(order_id, state, reason)
                        count += 1
                    reached = after
            finally:
                is_alone = self._rows.move(place, reached)
            if not is_alone:
                break  # another process tells them, too
        return count

    def _next(self, place: Place) -> Iterator[Outcome]:
        epoch = self._shard.epoch(at_least=place.epoch)
        page = self._rows.changes(place)
        if page and page[0][0].epoch == place.epoch:
            yield from (one for one in page if one[0].epoch == place.epoch)
        elif epoch > place.epoch:
            lost = self._rows.unrelayed(place)
            yield from lost
            if len(lost) < PAGE:
                yield (
                    replace(place, epoch=page[0][0].epoch if page else epoch, sequence=0, line=0, caught_up=""),
                    "",
                    "",
                    "",
                )
        else:
            yield from self._dead(place)

    def _dead(self, place: Place) -> Iterator[Outcome]:
        store, sku = self._shard.store, self._shard.sku
        (now,) = store.execute(op.ReadSubmitted(sku, ("_",)))
        found = [one for one in run_sync(dead_plan(sku), store) if place.dead_ms <= one.at_ms < now.read_at_ms]
        for one in found:
            yield replace(place, dead_ms=one.at_ms), one.order_id, "dead", one.reason
        if found:
            yield replace(place, dead_ms=now.read_at_ms), "", "", ""
