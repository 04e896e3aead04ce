"""How the rows of two shards follow a transfer of units between them.

Each shard is a sale of its own in the database, under the shard's name. A row of `segmented_changes` under the target's
name has all units that the database has moved from one source to it. A source tells how many units it has sent to a
target in all, so the database moves the difference: as often and late as a transfer is repeated, its units move once.
The pool's source gives the units up before they move here, and its target gets them afterwards, so the database never
allows less than the pool may sell.

Both shards' rows are locked, in the order of their names, before the row of the transfer is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select, update

from segmented.models import Transfer
from segmented.models.shards import SHARD_MARK, note_of
from segmented.orders.answers import EpochChanged, Missing, SegmentTotals, Stored, TooFewUnsold
from segmented.orders.deciding import plan_restock, plan_withdrawal
from segmented.orders.reading import lock_segments
from segmented.orders.rows import Rows
from segmented.orders.stocking import move_quota
from segmented.orders.tables import DONE, RESTOCKED, changes
from segmented.plans import run_sync
from segmented.stock.sharded.opening import directory_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal

    from sqlalchemy import ColumnElement, Connection

    from segmented.models import PoolState, Shard
    from segmented.orders.answers import ChangeAnswer, SegmentRow
    from segmented.stock import Pool

FROM: Final = f"{SHARD_MARK}from "
"""With the source's number, the change id of all transfers from there; callers cannot pass it."""


class TransferRows(Rows):
    """The units that moved between shards. Created by a gate."""

    def move(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> ChangeAnswer | TooFewUnsold:
        """Move what the target lacks of the units that the source has `sent` to it in all, in the source's `epoch`.

        Returns TooFewUnsold if the source's rows have fewer unsold units: its pool sent units that are sold.
        """

        def work(connection: Connection) -> ChangeAnswer | TooFewUnsold:
            rows = {name: lock_segments(connection, name) for name in sorted((source, target))}
            return _moved(connection, _Move(source, target, sent, epoch), rows)

        return self._write(work)

    def read(self, shard: Shard, others: Sequence[Shard]) -> tuple[SegmentTotals, tuple[Transfer, ...]]:
        """Read a shard's rows, and the units that moved between it and each of the others, in one step.

        A transfer is "sent" by the other shard, or "received" by it, as its own notes in the pool would say.
        """

        def work(connection: Connection) -> tuple[SegmentTotals, tuple[Transfer, ...]]:
            rows = lock_segments(connection, shard)  # every transaction that moves its units waits for them
            found = connection.execute(
                select(changes.c.sku, changes.c.change_id, changes.c.units).where(
                    changes.c.sku.in_([shard, *others]), changes.c.change_id.in_(map(_id_of, [shard, *others]))
                )
            ).all()
            moved = {(sku, change_id): units for sku, change_id, units in found}
            notes = [
                Transfer(kind, other.number, 0, moved.get(place, 0))
                for other in others
                for kind, place in _places(shard, other)
            ]
            return SegmentTotals(sum(row.quota for row in rows), sum(row.sold for row in rows), rows), tuple(notes)

        return self._write(work)


def other_shards(pool: Pool, shard: Shard) -> list[Shard]:
    """Return the other shards of the pool that the shard `pool` belongs to."""
    directory = run_sync(directory_plan(shard.sku), pool.store)
    return [one for one in directory.shards if one != shard]


def on_the_way(state: PoolState, moved: Iterable[Transfer]) -> int:
    """Return how many units the rows of a shard have that its pool has sent away before, or has still to receive."""
    units = 0
    for one in moved:
        if one.kind == "sent":
            units += one.units - note_of(state, "received", one.other).units
        else:
            units += note_of(state, "sent", one.other).units - one.units
    return units


@dataclass(frozen=True, slots=True)
class _Move:
    source: Shard
    target: Shard
    sent: int
    epoch: int

    @property
    def row(self) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return changes.c.sku == self.target, changes.c.change_id == _id_of(self.source)


def _moved(
    connection: Connection, move: _Move, rows: Mapping[Shard, Sequence[SegmentRow]]
) -> ChangeAnswer | TooFewUnsold:
    given, taken = rows[move.source], rows[move.target]
    if not (given and taken):
        return Missing()
    if given[0].epoch != move.epoch:
        return EpochChanged(given[0].epoch)
    before = connection.execute(select(changes.c.units).where(*move.row)).scalar_one_or_none()
    units = move.sent - (before or 0)
    if units <= 0:
        return Stored(replay=True, state=DONE, epoch=move.epoch)
    total, sold = sum(row.quota for row in given), sum(row.sold for row in given)
    if total - sold < units:
        return TooFewUnsold(total, sold)
    move_quota(connection, move.source, plan_withdrawal(given, units))
    move_quota(connection, move.target, plan_restock(taken, units, len(taken)))
    if before is None:
        values = {"sku": move.target, "change_id": _id_of(move.source), "kind": RESTOCKED, "state": DONE}
        connection.execute(insert(changes), values | {"units": move.sent, "epoch": move.epoch})
    else:
        connection.execute(update(changes).where(*move.row).values(units=move.sent, epoch=move.epoch))
    return Stored(replay=False, state=DONE, epoch=move.epoch)


def _id_of(source: Shard) -> str:
    return f"{FROM}{source.number}"


def _places(shard: Shard, other: Shard) -> tuple[tuple[Literal["sent", "received"], tuple[str, str]], ...]:
    """Return what the other shard did, and the row that has the units."""
    return ("sent", (shard, _id_of(other))), ("received", (other, _id_of(shard)))
