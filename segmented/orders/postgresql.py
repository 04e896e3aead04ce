"""PostgreSQL's statements: a confirm is one statement in autocommit: one round trip for order, stock and commit.

The two statements that every order needs go to the driver itself (`first_value`): SQLAlchemy's own work on a ready text
and its one value would cost as much as the driver's. Its pool, its transactions and its errors are the same.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sqlalchemy import BigInteger, Integer, String, Text, any_, bindparam, collate, column, func, insert, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert as insert_on_conflict
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError

from segmented.orders.answers import Confirmed
from segmented.orders.statements import (
    CLAIMED,
    ORDER_COLUMNS,
    SELECT_HAS_ORDER,
    SELECT_SEGMENTS,
    STATE_CONFIRMED,
    Statements,
    give_back,
    given,
    select_orders,
    take_units,
    void_values,
)
from segmented.orders.tables import orders, segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import BindParameter, Column, Connection, Insert, Select, TableValuedAlias
    from sqlalchemy.engine.interfaces import ExecutionContext
    from sqlalchemy.sql.elements import ClauseElement

    from segmented.orders.deciding import Claim, Decision


DRIVER: Final = "postgresql+psycopg"
FAILED: Final = "segmented_failed"
"""The execution option with the error of a statement that the driver has run itself."""
CREATE_LOCK: Final = 7_341_652_098
"""An arbitrary number for an advisory lock, unlikely to be used by another program."""


class PostgresStatements(Statements):
    """SQL texts for psycopg."""

    begin = "BEGIN"
    undoes_tables = True

    def __init__(self) -> None:
        """Build the texts."""
        self.these_segments, self.these_orders = _LOCK_THESE, _THESE_ORDERS
        self._confirm_fenced = text_of(_confirm(fenced=True))
        self._confirm = text_of(_confirm(fenced=False))
        self._store_many = text_of(_store_many())
        self._has_order = text_of(SELECT_HAS_ORDER)
        self._void = text_of(insert_on_conflict(orders).values(void_values()).on_conflict_do_nothing())

    @contextmanager
    def creating(self, connection: Connection) -> Iterator[None]:
        """Open a transaction under a lock, because CREATE TABLE IF NOT EXISTS fails when two run concurrently."""
        connection.exec_driver_sql(self.begin)
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        yield

    def confirm(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order. An order that has a row raises IntegrityError and changes nothing."""
        text = self._confirm if values["given_fence"] is None else self._confirm_fenced
        return first_value(connection, text, values)

    confirm_alone = confirm

    def confirm_within(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order, or give them back if the order has a row."""
        sequence, new = connection.execute(_CONFIRM_WITHIN, values).one()
        if new or sequence is None:
            return sequence  # type: ignore[no-any-return]  # a number
        connection.execute(_GIVE_BACK, values)
        return None

    def confirm_plain(self, connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
        """Confirm an envelope in one statement, or change nothing."""
        return confirm_plain(connection, claims)

    def has_order(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Return whether the order has a row."""
        return first_value(connection, self._has_order, values) is not None

    def store_many(self, connection: Connection, decision: Decision) -> bool:
        """Write the decision, in one statement. An order that has a row raises IntegrityError."""
        before = [change.before for change in decision.changes]
        after = [change.after for change in decision.changes]
        claims = decision.confirmed
        values = {
            "given_sku": claims[0].sku,
            "row_count": len(before),
            "old_sku": [claims[0].sku] * len(before),  # joined by the whole key, each row is found by its index
            "old_segment": [row.segment for row in before],
            "old_epoch": [row.epoch for row in before],
            "old_quota": [row.quota for row in before],
            "old_sold": [row.sold for row in before],
            "old_fence": [row.fence for row in before],
            "new_quota": [row.quota for row in after],
            "new_sold": [row.sold for row in after],
            "new_fence": [row.fence for row in after],
            "new_sequence": [row.sequence for row in after],
            **{f"each_{name}": [read(claim) for claim in claims] for name, read in CLAIMED.items()},
        }
        return connection.exec_driver_sql(self._store_many, values).rowcount == len(claims)

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void unless the order has a row; waits for a concurrent confirm of the same order."""
        return connection.exec_driver_sql(self._void, values).rowcount == 1


def known_options() -> set[str]:
    """Return the options of an address that the driver knows. Raises ImportError without it."""
    from psycopg.pq import Conninfo  # noqa: PLC0415  # it is optional

    return {option.keyword.decode() for option in Conninfo.get_defaults()}


def one_trip(connection: Connection, texts: Sequence[str], values: dict[str, Any]) -> Any:  # noqa: ANN401  # a row, or None
    """Run ready statements as one transaction in one round trip; return the last one's first row.

    After an error of the driver, which is raised as `first_value` raises it, the transaction is rolled back.
    """
    driver: Any = connection.connection.driver_connection
    try:
        with driver.pipeline() if connection.dialect.loaded_dbapi.Pipeline.is_supported() else nullcontext():
            driver.execute(PostgresStatements.begin)
            cursors = [driver.execute(text, values) for text in texts]
            driver.execute("COMMIT")
        return cursors[-1].fetchone()
    except connection.dialect.loaded_dbapi.Error as error:
        with suppress(connection.dialect.loaded_dbapi.Error):
            driver.rollback()
        _raise(connection, texts[-1], values, error)
    except BaseException as error:  # as in `first_value`
        connection.invalidate(error)
        raise


def first_value(connection: Connection, text: str, values: dict[str, Any]) -> int | None:
    """Run a ready statement by the driver itself; return the first value of its first row, or None if it has no row.

    An error of the driver is raised, and its connection given up, by SQLAlchemy, as if it had run the statement.
    """
    driver: Any = connection.connection.driver_connection
    try:
        row = driver.execute(text, values).fetchone()
    except connection.dialect.loaded_dbapi.Error as error:
        _raise(connection, text, values, error)
    except BaseException as error:  # of a signal handler, or the end of a greenlet: the reply may still come
        connection.invalidate(error)
        raise
    return None if row is None else row[0]


def raise_failed(_cursor: object, _statement: str, _values: object, context: ExecutionContext) -> None:
    """Raise the driver's error that `first_value` has met, for SQLAlchemy to handle; a listener of `do_execute`."""
    error: BaseException | None = context.execution_options.get(FAILED)
    if error is not None:
        raise error


def _confirm(*, fenced: bool) -> Insert:
    """Build the insert that finds a row to insert only if the update in its WITH clause moved one."""
    moved = take_units(fenced=fenced).returning(segments.c.segment, segments.c.sequence).cte("moved")
    replaced = {orders.c.state: STATE_CONFIRMED, orders.c.segment: moved.c.segment}
    columns = [replaced.get(column, given(column)) for column in ORDER_COLUMNS]
    inserted = insert(orders).from_select(ORDER_COLUMNS, select(*columns).select_from(moved), include_defaults=False)
    return inserted.returning(select(moved.c.sequence).scalar_subquery())


def _store_many() -> Insert:
    """Build the insert of many orders, which inserts none unless all rows in its WITH clause were updated.

    A row is updated only if it still equals what was read. The orders are sorted, because two envelopes may hold the
    same ones.
    """
    changing = (segments.c.quota, segments.c.sold, segments.c.fence)
    old = (segments.c.sku, segments.c.segment, segments.c.epoch, *changing)
    new_values = (*changing, segments.c.sequence)
    rows = given_rows("change", *(("old", at) for at in old), *(("new", at) for at in new_values))
    changed = (
        update(segments)
        .where(*(at == rows.c[f"old_{at.name}"] for at in old))
        .values({at.name: rows.c[f"new_{at.name}"] for at in new_values})
        .returning(segments.c.segment)
        .cte("changed")
    )
    new = given_rows("confirmed", *(("each", orders.c[name]) for name in CLAIMED))
    replaced = {orders.c.state: STATE_CONFIRMED, orders.c.sku: given(orders.c.sku)}
    columns = [replaced[at] if at in replaced else new.c[f"each_{at.name}"] for at in ORDER_COLUMNS]
    change_count = select(func.count()).select_from(changed).scalar_subquery()
    found = (
        select(*columns)
        .where(change_count == bindparam("row_count", type_=Integer))
        .order_by(collate(new.c.each_order_id, "C"))
    )
    return insert(orders).from_select(ORDER_COLUMNS, found, include_defaults=False)


def given_rows(name: str, *columns: tuple[str, Column[Any]]) -> TableValuedAlias:
    """Return rows whose columns are given as one array each."""
    arrays = [_given_array(f"{role}_{at.name}", at) for role, at in columns]
    names = [column(f"{role}_{at.name}", at.type) for role, at in columns]
    return func.unnest(*arrays).table_valued(*names).render_derived(name=name)


def _given_array(name: str, at: Column[Any]) -> BindParameter[Any]:
    """Return the parameter for a column's values. Its text has no length: a cast would truncate it."""
    return bindparam(name, type_=ARRAY(Text() if isinstance(at.type, String) else at.type))


def _confirm_within() -> Select[Any]:
    """Build the select of the moved row's sequence, and how many orders were inserted: none if the order has a row."""
    moved = take_units(fenced=False).returning(segments.c.segment, segments.c.sequence).cte("moved")
    replaced = {orders.c.state: STATE_CONFIRMED, orders.c.segment: moved.c.segment}
    columns = [replaced.get(column, given(column)) for column in ORDER_COLUMNS]
    found = select(*columns).select_from(moved)
    inserted = insert_on_conflict(orders).from_select(ORDER_COLUMNS, found, include_defaults=False)
    new = inserted.on_conflict_do_nothing().returning(orders.c.segment).cte("new")
    counted = select(func.count()).select_from(new).scalar_subquery()
    return select(select(moved.c.sequence).scalar_subquery(), counted)


_CONFIRM_WITHIN: Final = _confirm_within()
_GIVE_BACK: Final = give_back()
_LOCK_THESE: Final = SELECT_SEGMENTS.where(
    segments.c.segment == any_(_given_array("numbers", segments.c.segment))
).with_for_update()
_THESE_ORDERS: Final = select_orders(orders.c.order_id == any_(_given_array("order_ids", orders.c.order_id)))


def _raise(connection: Connection, text: str, values: dict[str, Any], error: Exception) -> NoReturn:
    try:
        connection.exec_driver_sql(text, values, execution_options={FAILED: error})
    except DBAPIError as known:
        known.orig = error  # of a closed connection SQLAlchemy learns only that it is closed
        raise
    raise error


def text_of(statement: ClauseElement) -> str:
    """Compile a statement for `first_value` and `one_trip`."""
    return str(statement.compile(dialect=PGDialect_psycopg()))  # type: ignore[no-untyped-call]  # SQLAlchemy left its types out


# --- the one statement of a plain envelope ---
#
# An envelope is plain if no order id comes twice, and the orders of each segment agree on epoch and fence. The
# statement stores it if each segment's row has that epoch, no higher fence, and room for all of its orders together,
# and no order has a row. Every order is then confirmed, whatever the others do, so no further rule is needed here:
# `decide` and its statements have the rules, and get every envelope of which this statement changes nothing.
#
# The statement runs in autocommit, so nobody can roll it back when it has answered. It therefore counts the rows that
# it wrote, and fails if some of them are missing. A failure undoes all of it.
#
# Locks are taken as everywhere: the CTE `locked` takes the segments' rows, ascending, before the first of them changes,
# and the orders follow, sorted by id.
#
# `given` and `locked` have the sku in each row, and `given` is not merged into its join, so that a segment's row is
# joined by its whole key. With the sku as a condition of its own, a server without statistics expects one row of a sku,
# and compares every row with every other.
#
# A row may have changed between the statement's snapshot and its lock. `locked` has the row as it is under the lock,
# and the UPDATE writes these values, with the quota that they fit. It must not add to the row's own columns: PostgreSQL
# first makes the new row from the snapshot's version, and checks the table's constraints on that, before it notices
# that there is a later version. With a quota that has grown since, the check would fail for an envelope that fits.

_TYPES: Final = {
    name: "bigint" if isinstance(kind, BigInteger) else "integer" if isinstance(kind, Integer) else "text"
    for name, kind in ((name, orders.c[name].type) for name in CLAIMED)
}
"""PostgreSQL's types of the columns whose values a claim has."""
_COLUMNS: Final = ", ".join(_TYPES)
_ARRAYS: Final = ", ".join(f"%(each_{name})s::{kind}[]" for name, kind in _TYPES.items())

STORE_PLAIN: Final = f"""
WITH given AS MATERIALIZED (
    SELECT %(sku)s::text AS sku, given.* FROM unnest(
        %(segments)s::integer[], %(epochs)s::integer[], %(fences)s::bigint[], %(units)s::bigint[],
        %(sequences)s::bigint[]
    ) AS given (segment, epoch, fence, units, sequence)
), locked AS (
    SELECT stock.sku, stock.segment, stock.quota, stock.sold + given.units AS sold,
        coalesce(given.fence, stock.fence) AS fence, stock.sequence AS sequence_before,
        greatest(stock.sequence, given.sequence) AS sequence,
        stock.epoch = given.epoch
            AND (given.fence IS NULL OR stock.fence <= given.fence)
            AND stock.sold + given.units <= stock.quota AS fits
    FROM segmented_segments AS stock JOIN given ON stock.sku = given.sku AND stock.segment = given.segment
    ORDER BY stock.segment
    FOR UPDATE OF stock
), moved AS (
    UPDATE segmented_segments AS stock
    SET quota = locked.quota, sold = locked.sold, fence = locked.fence, sequence = locked.sequence
    FROM locked
    WHERE stock.sku = locked.sku AND stock.segment = locked.segment
        AND (SELECT count(*) FROM locked WHERE fits) = %(segment_count)s
    RETURNING stock.segment
), stored AS (
    INSERT INTO segmented_orders (sku, state, {_COLUMNS})
    SELECT %(sku)s::text, 'confirmed', each.*
    FROM unnest({_ARRAYS}) AS each ({_COLUMNS})
    WHERE (SELECT count(*) FROM moved) = %(segment_count)s
    ORDER BY each.order_id COLLATE "C"
    RETURNING 1
), written AS MATERIALIZED (
    SELECT (SELECT count(*) FROM moved) AS segments, (SELECT count(*) FROM stored) AS orders
)
SELECT CASE
    WHEN segments = %(segment_count)s AND orders = %(order_count)s
        THEN (SELECT array_agg(sequence_before ORDER BY segment) FROM locked)
    WHEN segments > 0 OR orders > 0
        THEN CAST('only ' || segments || ' segments and ' || orders || ' orders were written' AS bigint[])
END FROM written
"""  # noqa: S608  # names of columns
"""Answers with the sequences that the segments' rows had, ascending; NULL: nothing changed."""


def confirm_plain(connection: Connection, claims: Sequence[Claim]) -> list[Confirmed] | None:
    """Confirm all orders of one sku in a transaction of their own. None: nothing changed, and the caller decides.

    Raises IntegrityError if an order has a row, and DataError for a value that the database cannot store, or if not
    everything was written; nothing changed then.
    """
    segments = _segments(claims)
    if segments is None:
        return None
    before = connection.exec_driver_sql(STORE_PLAIN, _values(claims, segments)).scalar_one()
    return None if before is None else _answers(claims, dict(zip(segments, before, strict=True)))


class _Segment:
    """The claims of one segment together."""

    __slots__ = ("epoch", "fence", "sequence", "units")

    def __init__(self, claim: Claim) -> None:
        """Begin with its first claim."""
        self.epoch = claim.epoch
        self.fence = claim.fence
        self.units = 0
        self.sequence = 0


def _segments(claims: Sequence[Claim]) -> dict[int, _Segment] | None:
    """Return what the claims ask of each segment, ascending. None: the envelope is not plain."""
    segments: dict[int, _Segment] = {}
    ids = set()
    for claim in claims:
        ids.add(claim.order.order_id)
        found = segments.get(claim.segment)
        if found is None:
            found = segments[claim.segment] = _Segment(claim)
        elif found.epoch != claim.epoch or found.fence != claim.fence:
            return None
        found.units += claim.order.quantity
        found.sequence = max(found.sequence, claim.sequence)
    return dict(sorted(segments.items())) if len(ids) == len(claims) else None


def _values(claims: Sequence[Claim], segments: dict[int, _Segment]) -> dict[str, Any]:
    return {
        "sku": claims[0].sku,
        "segment_count": len(segments),
        "order_count": len(claims),
        "segments": _numbers(segments),
        "epochs": _numbers(one.epoch for one in segments.values()),
        "fences": _numbers(one.fence for one in segments.values()),
        "units": _numbers(one.units for one in segments.values()),
        "sequences": _numbers(one.sequence for one in segments.values()),
        **{
            f"each_{name}": (_texts if _TYPES[name] == "text" else _numbers)(map(read, claims))
            for name, read in CLAIMED.items()
        },
    }


def _numbers(values: Iterable[int | None]) -> str:
    """Return an array as PostgreSQL reads it; the driver's own way takes five times as long."""
    return f"{{{','.join(['NULL' if value is None else str(value) for value in values])}}}"


def _texts(values: Iterable[str | None]) -> str:
    return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in values])}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _answers(claims: Sequence[Claim], sequences: dict[int, int]) -> list[Confirmed]:
    """Return what `decide` would: each answer has the row's sequence after its order."""
    answers = []
    for claim in claims:
        sequence = sequences[claim.segment] = max(sequences[claim.segment], claim.sequence)
        answers.append(Confirmed(replay=False, sequence=sequence))
    return answers
