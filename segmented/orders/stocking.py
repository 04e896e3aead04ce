"""How the rows follow a pool that is opened, restocked, emptied and resized, and whose shards exchange units.

Every change locks all segment rows of its sku, ascending, before it reads its own row. So changes of one sku run one
after another, there is no deadlock with a confirm, and each may be repeated. A restock or withdrawal counts once for
each id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from sqlalchemy import bindparam, case, insert, select, update

from segmented.errors import ChangeMismatch
from segmented.models import Transfer
from segmented.models.shards import SHARD_MARK, note_of
from segmented.orders.answers import ChangeRow, EpochChanged, Missing, SaleTerms, SegmentTotals, Stored, TooFewUnsold
from segmented.orders.deciding import plan_restock, plan_withdrawal
from segmented.orders.return_rows import begun_returns
from segmented.orders.statements import Rows, given, in_utc, lock_segments, move_quota
from segmented.orders.tables import (
    BEGUN,
    DONE,
    OPENED,
    OPENING_ID,
    RESTOCKED,
    UNDONE,
    WITHDRAWN,
    changes,
    returns,
    sales,
    segments,
)
from segmented.plans import run_sync
from segmented.stock.sharded.opening import directory_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Row

    from segmented.models import PoolState, Shard
    from segmented.orders.answers import ChangeAnswer, SegmentRow, State
    from segmented.stock import Pool


AnswerT = TypeVar("AnswerT")
Kind = Literal["restocked", "withdrawn", "opened"]

_SELECT_CHANGE: Final = select(changes.c.kind, changes.c.units, changes.c.state, changes.c.epoch).where(
    changes.c.sku == given(changes.c.sku), changes.c.change_id == given(changes.c.change_id)
)
_SELECT_RETURN: Final = select(returns.c.units).where(
    returns.c.sku == given(returns.c.sku), returns.c.return_id == bindparam("given_change_id")
)
_UPDATE_CHANGE: Final = (
    update(changes)
    .where(changes.c.sku == given(changes.c.sku), changes.c.change_id == given(changes.c.change_id))
    .values(state=bindparam("new_state"), epoch=given(changes.c.epoch))
)
_SELECT_TERMS: Final = select(sales.c.limit_per_customer, sales.c.profile, sales.c.queue, sales.c.step).where(
    sales.c.sku == given(sales.c.sku)
)
_SELECT_BEGUN: Final = (
    select(changes.c.change_id, changes.c.kind, changes.c.units, changes.c.state, changes.c.epoch, changes.c.created_at)
    .where(changes.c.sku == given(changes.c.sku), changes.c.state == BEGUN)
    .order_by(changes.c.change_id)
)
_DONE_BY_OPENING: Final = (
    update(changes)
    .where(changes.c.sku == given(changes.c.sku), changes.c.kind == RESTOCKED, changes.c.state == BEGUN)
    .values(state=DONE)
)
_RAISE_EPOCH: Final = (
    update(segments)
    .where(segments.c.sku == given(segments.c.sku))
    .ordered_values(  # MySQL sets them one after the other
        (segments.c.sequence, case((segments.c.epoch == given(segments.c.epoch), segments.c.sequence), else_=0)),
        (segments.c.epoch, given(segments.c.epoch)),
    )
)


@dataclass(frozen=True, slots=True)
class Change:
    """A restock or a withdrawal, as its caller requests it, for a pool of this epoch."""

    sku: str
    change_id: str
    kind: Kind
    units: int
    epoch: int


class Stocking(Rows):
    """Changes of a sku's rows. Created by a gate; `segmented.orders.opening` changes the pool accordingly."""

    def begin(self, change: Change, segment_count: int) -> ChangeAnswer:
        """Bind the id to these units, once, before the pool is asked; it stays `begun` until `finish` or `undo`.

        A restock raises the quota of the first `segment_count` segments now, before the pool gets the units; a
        withdrawal lowers it in the end. Raises ChangeMismatch if the id belongs to another change.
        """

        def work(connection: Connection, rows: Sequence[SegmentRow]) -> ChangeAnswer:
            found = _find(connection, change)
            if found is not None:
                return Stored(replay=True, state=found.state, epoch=found.epoch)
            _insert(connection, change, BEGUN)
            if change.kind == RESTOCKED:
                move_quota(connection, change.sku, plan_restock(rows, change.units, segment_count))
            return Stored(replay=False, state=BEGUN, epoch=change.epoch)

        return self._changing(change.sku, change.epoch, work)

    def finish(self, change: Change) -> ChangeAnswer | TooFewUnsold:
        """Record that the pool has made the change; for a withdrawal, lower the quota by the pool's units."""
        return self._end(change, DONE, lowers=change.kind == WITHDRAWN)

    def undo(self, change: Change) -> ChangeAnswer | TooFewUnsold:
        """Undo a restock's quota after the pool has refused the units for good; never after it has taken them.

        A withdrawal that is undone leaves the quota alone: its units are sold.
        """
        return self._end(change, UNDONE, lowers=change.kind == RESTOCKED)

    def _end(self, change: Change, state: State, *, lowers: bool) -> ChangeAnswer | TooFewUnsold:
        def work(connection: Connection, rows: Sequence[SegmentRow]) -> ChangeAnswer | TooFewUnsold:
            found = _find(connection, change)
            if found is None:
                return Missing()
            if found.state != BEGUN:
                return Stored(replay=True, state=found.state, epoch=found.epoch)
            if lowers:
                total, sold = sum(row.quota for row in rows), sum(row.sold for row in rows)
                if total - sold < change.units:
                    return TooFewUnsold(total, sold)
                move_quota(connection, change.sku, plan_withdrawal(rows, change.units))
            _update(connection, change, state)
            return Stored(replay=False, state=state, epoch=change.epoch)

        return self._changing(change.sku, change.epoch, work)

    def add_segments(self, sku: str, segment_count: int, *, epoch: int) -> ChangeAnswer:
        """Insert missing rows of segments 0 to `segment_count` - 1, without quota: it moves to them as they sell."""

        def work(connection: Connection, rows: Sequence[SegmentRow]) -> ChangeAnswer:
            is_new = _add_rows(connection, sku, rows, segment_count, epoch)
            return Stored(replay=not is_new, state=DONE, epoch=epoch)

        return self._changing(sku, epoch, work)

    def begun(self, sku: str) -> tuple[ChangeRow, ...]:
        """Read the restocks and withdrawals that one side may lack; repeat them with the same id and units."""

        def work(connection: Connection) -> tuple[ChangeRow, ...]:
            found = connection.execute(_SELECT_BEGUN, {"given_sku": sku}).mappings()
            return tuple(ChangeRow(**(dict(row) | {"created_at": in_utc(row["created_at"])})) for row in found)

        return self._run(work)

    # --- openings ---

    def opened_epoch(self, sku: str) -> int | None:
        """Return the epoch in which a pool of this sku was last known to be open, or None."""

        def work(connection: Connection) -> int | None:
            found = connection.execute(_SELECT_CHANGE, _opening(sku)).one_or_none()
            return None if found is None else int(found.epoch)

        return self._run(work)

    def note_opened(self, sku: str, *, epoch: int) -> ChangeAnswer:
        """Record that the pool is open: if it is missing later, its keys were lost."""
        opening = Change(sku, OPENING_ID, OPENED, 0, epoch)

        def work(connection: Connection, _: Sequence[SegmentRow]) -> ChangeAnswer:
            found = connection.execute(_SELECT_CHANGE, _opening(sku)).one_or_none()
            if found is None:
                _insert(connection, opening, DONE)
            elif found.epoch < epoch:
                _update(connection, opening, DONE)
            is_known = found is not None and found.epoch >= epoch
            return Stored(replay=is_known, state=DONE, epoch=epoch)

        return self._changing(sku, epoch, work)

    def terms(self, sku: str) -> SaleTerms | None:
        """Return the terms of the sale's pool, or None if they were never noted."""
        found = self._run(lambda connection: connection.execute(_SELECT_TERMS, {"given_sku": sku}).one_or_none())
        return None if found is None or found.profile is None else SaleTerms(*found)

    def note_terms(self, state: PoolState) -> None:
        """Keep the terms of an open pool in the sale's row."""
        terms = SaleTerms(state.limit_per_customer, state.profile, state.queue, state.step)
        if self.terms(state.sku) == terms:
            return
        change = update(sales).where(sales.c.sku == state.sku).values(asdict(terms))
        self._run(lambda connection: connection.execute(change))

    def raise_epoch(
        self, sku: str, segment_count: int, *, epoch: int, opened: int | None, done_since: int | None = None
    ) -> SegmentTotals | None:
        """Put all rows into a later epoch, and return them, with the returns that `begun_returns` reads.

        Returns None if they are already in an even later one, or if the pool was opened in another epoch than `opened`
        meanwhile.

        Waits for confirms in progress, and refuses those of earlier epochs from then on: a new pool may sell all units
        that are unsold now.
        """

        def work(connection: Connection) -> SegmentTotals | None:
            rows = lock_segments(connection, sku)
            noted = connection.execute(_SELECT_CHANGE, _opening(sku)).one_or_none()
            if any(row.epoch > epoch for row in rows) or (opened or 0) != (0 if noted is None else noted.epoch):
                connection.rollback()
                return None
            connection.execute(_RAISE_EPOCH, {"given_sku": sku, "given_epoch": epoch})
            if any(row.epoch < epoch for row in rows):  # the new pool includes their units, as part of the quota
                connection.execute(_DONE_BY_OPENING, {"given_sku": sku})
            _add_rows(connection, sku, rows, segment_count, epoch)
            rows = lock_segments(connection, sku)
            returning = begun_returns(connection, sku, done_since)
            return SegmentTotals(sum(row.quota for row in rows), sum(row.sold for row in rows), rows, "", returning)

        return self._write(work)

    def _changing(
        self, sku: str, epoch: int, work: Callable[[Connection, Sequence[SegmentRow]], AnswerT]
    ) -> AnswerT | Missing | EpochChanged:
        """Do `work` in a transaction, with all rows of the sku locked and in this epoch."""

        def locked(connection: Connection) -> AnswerT | Missing | EpochChanged:
            rows = lock_segments(connection, sku)
            if not rows or rows[0].epoch != epoch:
                connection.rollback()
                return EpochChanged(rows[0].epoch) if rows else Missing()
            return work(connection, rows)

        return self._write(locked)


def _key(change: Change) -> dict[str, Any]:
    return {"given_sku": change.sku, "given_change_id": change.change_id}


def _opening(sku: str) -> dict[str, Any]:
    return {"given_sku": sku, "given_change_id": OPENING_ID}


def _find(connection: Connection, change: Change) -> Row[str, int, str, int] | None:
    found = connection.execute(_SELECT_CHANGE, _key(change)).one_or_none()
    is_another = found is not None and (found.kind, found.units) != (change.kind, change.units)
    if is_another or (found is None and connection.execute(_SELECT_RETURN, _key(change)).one_or_none() is not None):
        raise ChangeMismatch(change.sku, change.change_id)
    return found


def _insert(connection: Connection, change: Change, state: State) -> None:
    values = {"sku": change.sku, "change_id": change.change_id, "kind": change.kind, "units": change.units}
    connection.execute(insert(changes), values | {"state": state, "epoch": change.epoch})


def _update(connection: Connection, change: Change, state: State) -> None:
    connection.execute(_UPDATE_CHANGE, _key(change) | {"new_state": state, "given_epoch": change.epoch})


def _add_rows(connection: Connection, sku: str, rows: Sequence[SegmentRow], segment_count: int, epoch: int) -> bool:
    there = {row.segment for row in rows}
    missing = [segment for segment in range(segment_count) if segment not in there]
    if missing:
        values = [{"sku": sku, "segment": segment, "quota": 0, "epoch": epoch} for segment in missing]
        connection.execute(insert(segments), values)
    return bool(missing)


# --- transfers between shards ---
#
# Each shard is a sale of its own in the database, under the shard's name. A row of `segmented_changes` under the
# target's name has all units that the database has moved from one source to it. A source tells how many units it has
# sent to a target in all, so the database moves the difference: as often and late as a transfer is repeated, its units
# move once. The pool's source gives the units up before they move here, and its target gets them afterwards, so the
# database never allows less than the pool may sell.
#
# Both shards' rows are locked, in the order of their names, before the row of the transfer is read.

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
