"""How the rows follow a pool that is opened, restocked, emptied and resized while it sells.

Every change locks all segment rows of its sku, ascending, before it reads its own row. So changes of one sku run one
after another, there is no deadlock with a confirm, and each may be repeated. A restock or withdrawal counts once for
each id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from sqlalchemy import bindparam, case, insert, select, update

from segmented.errors import ChangeMismatch
from segmented.orders.answers import ChangeRow, EpochChanged, Missing, SaleTerms, SegmentTotals, Stored, TooFewUnsold
from segmented.orders.deciding import plan_restock, plan_withdrawal
from segmented.orders.reading import in_utc, lock_segments
from segmented.orders.return_rows import begun_returns
from segmented.orders.statements import MOVE_QUOTA, given
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection, Row

    from segmented.models import PoolState
    from segmented.orders.answers import ChangeAnswer, SegmentRow, State
    from segmented.orders.deciding import QuotaMove
    from segmented.orders.rows import Run
    from segmented.orders.statements import Statements


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


class Stocking:
    """Changes of a sku's rows. Created by a gate; `segmented.orders.changing` changes the pool accordingly."""

    def __init__(self, statements: Statements, run: Run) -> None:
        """Create with one database's statements."""
        self._statements = statements
        self._run = run

    def begin_restock(self, change: Change, segment_count: int) -> ChangeAnswer:
        """Raise the quota of the first `segment_count` segments by the units, once; then the pool may get them.

        The row stays `begun` until `finish` or `undo`. Raises ChangeMismatch if the id belongs to another change.
        """

        def work(connection: Connection, rows: Sequence[SegmentRow]) -> ChangeAnswer:
            found = _find(connection, change)
            if found is not None:
                return Stored(replay=True, state=found.state, epoch=found.epoch)
            _insert(connection, change, BEGUN)
            move_quota(connection, change.sku, plan_restock(rows, change.units, segment_count))
            return Stored(replay=False, state=BEGUN, epoch=change.epoch)

        return self._changing(change.sku, change.epoch, work)

    def begin_withdrawal(self, change: Change) -> ChangeAnswer:
        """Bind the id to these units, before the pool gives them up. Raises ChangeMismatch."""

        def work(connection: Connection, _: Sequence[SegmentRow]) -> ChangeAnswer:
            found = _find(connection, change)
            if found is not None:
                return Stored(replay=True, state=found.state, epoch=found.epoch)
            _insert(connection, change, BEGUN)
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

        def work(connection: Connection) -> None:
            connection.exec_driver_sql(self._statements.begin)
            connection.execute(change)
            connection.commit()

        self._run(work)

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
            connection.exec_driver_sql(self._statements.begin)
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
            connection.commit()
            return SegmentTotals(sum(row.quota for row in rows), sum(row.sold for row in rows), rows, "", returning)

        return self._run(work)

    def _changing(
        self, sku: str, epoch: int, work: Callable[[Connection, Sequence[SegmentRow]], AnswerT]
    ) -> AnswerT | Missing | EpochChanged:
        """Do `work` in a transaction, with all rows of the sku locked and in this epoch."""

        def locked(connection: Connection) -> AnswerT | Missing | EpochChanged:
            connection.exec_driver_sql(self._statements.begin)
            rows = lock_segments(connection, sku)
            if not rows or rows[0].epoch != epoch:
                connection.rollback()
                return EpochChanged(rows[0].epoch) if rows else Missing()
            answer = work(connection, rows)
            connection.commit()
            return answer

        return self._run(locked)


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


def move_quota(connection: Connection, sku: str, moves: Iterable[QuotaMove]) -> None:
    """Change the quota of locked rows."""
    values = [{"given_sku": sku, "given_segment": move.segment, "change": move.change} for move in moves]
    if values:
        connection.execute(MOVE_QUOTA, values)


def _add_rows(connection: Connection, sku: str, rows: Sequence[SegmentRow], segment_count: int, epoch: int) -> bool:
    there = {row.segment for row in rows}
    missing = [segment for segment in range(segment_count) if segment not in there]
    if missing:
        values = [{"sku": sku, "segment": segment, "quota": 0, "epoch": epoch} for segment in missing]
        connection.execute(insert(segments), values)
    return bool(missing)
