"""Exactly once in a database: the user's effect and the row that records it, in one transaction.

The row decides, whatever Redis remembers, has forgotten, or got from a clock that jumped: a second row of the same key
cannot be inserted, and without its row the effect is not committed. So an effect in this database is done once, for as
long as its row is kept. Meanwhile Redis keeps other callers away, and answers repeats without asking the database.

Works on PostgreSQL, SQLite, MariaDB and MySQL, over SQLAlchemy Core, sync and async. Makes no promise about an effect
outside the transaction; see `Dedup(on_crash="unknown")`.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable

from segmented.dedup.dedup import NOTHING
from segmented.dedup.identity import payload_print
from segmented.dedup.terms import NAMESPACE_LENGTH_MAX, checked_namespace
from segmented.errors import (
    AlreadyDone,
    InvalidInput,
    OtherPayload,
    RunLost,
    StaleToken,
    StoreRefused,
    TransactionConflict,
)
from segmented.locks.durations import milliseconds
from segmented.locks.sql_edge import (
    BROKEN,
    CONFLICTS,
    code_of,
    is_in_autocommit,
    is_unbroken,
    mark_begun,
    said,
    translated,
)
from segmented.models.dedup import OutcomeKept, OutcomeKind
from segmented.orders.tables import database_now
from segmented.orders.within import begun, connected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from sqlalchemy import Engine, Select
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from segmented.dedup.run import AsyncRun, Replay, Run


KEY_LENGTH_MAX: Final = 255
DIGEST_LENGTH: Final = 32
CREATE_LOCK: Final = 7_341_652_100
"""An arbitrary number that other programs are unlikely to use for an advisory lock."""
TABLES: Final = "segmented_once by OnceTable().create(engine)"
V = TypeVar("V")
LOCKING: Final = frozenset({"mysql", "mariadb"})
"""Databases where a plain SELECT reads the transaction's snapshot, and only a locking SELECT reads the current rows."""
MARKED: Final = LOCKING | {"postgresql"}
"""Databases whose transaction begins before the effect; SQLite's driver begins one at the first write."""
INSERTS: Final[dict[str, Callable[[Table], Any]]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
"""Databases that can report an existing row on insert without an error, which would end the transaction."""
TRIES: Final = 3
"""Attempts for a transaction that the database rolls back because another one with the same key was faster."""


def _identifier(length: int) -> String:
    """Return a text type that is compared byte by byte everywhere, so that no collation equates two keys."""
    binary = String(length, collation="utf8mb4_bin")
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(binary, "mysql", "mariadb")
    )


once_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""

once = Table(
    "segmented_once",
    once_metadata,
    Column("namespace", _identifier(NAMESPACE_LENGTH_MAX), nullable=False),
    Column("record_key", _identifier(KEY_LENGTH_MAX), nullable=False),
    Column("message", _identifier(KEY_LENGTH_MAX), nullable=False),
    Column("payload_print", _identifier(DIGEST_LENGTH), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("body", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
    Column("finished_at", DateTime(timezone=True), nullable=False, server_default=database_now()),
    PrimaryKeyConstraint("namespace", "record_key", name="segmented_once_key"),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

forgotten = Table(
    "segmented_once_forgotten",
    once_metadata,
    Column("namespace", _identifier(NAMESPACE_LENGTH_MAX), primary_key=True),
    # The highest token of a forgotten row: the row of a run with no higher token may be among the deleted ones.
    Column("fence", BigInteger, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


def create_tables(connection: Connection) -> None:
    """Create both tables unless they exist."""
    is_postgresql = connection.dialect.name == "postgresql"
    if is_postgresql:
        connection.execution_options(isolation_level="READ COMMITTED")
    with connection.begin():
        if is_postgresql:  # concurrent CREATE TABLE IF NOT EXISTS fails on PostgreSQL
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        for table in once_metadata.sorted_tables:
            if not connection.dialect.has_table(connection, table.name):
                connection.execute(CreateTable(table, if_not_exists=True))


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """The row of a finished key."""

    namespace: str
    key: str
    message: str
    payload_print: str
    """Empty if no payload was given."""
    fencing_token: int
    kind: OutcomeKind
    body: str
    finished_at: datetime
    """By the database's clock; without a time zone if the database stores none."""

    def replay(self, run: Run | AsyncRun, now: datetime) -> Replay:
        """Return the replay for a repeat, read with the run's format."""
        age_ms = max(0, round((now - self.finished_at).total_seconds() * 1000))
        return run.replay_of(OutcomeKept(self.message, self.kind, self.body, age_ms))


class OnceTable:
    """Finished keys in the user's database, written in the user's own transaction.

    ```python
    table = OnceTable()
    table.create(engine)
    with dedup.begin(key) as run:
        if not run.is_replay:
            table.perform(engine, run, lambda connection: book(connection, order))
    ```

    Without `perform`: call `stored` first, do the effect, call `finish_in` on the same connection, commit, then call
    `run.finish`. On AlreadyDone roll back and use its result.
    """

    def create(self, engine: Engine | Connection) -> None:
        """Create the tables unless they exist. Safe to run any number of times, also concurrently.

        Of a connection it takes only the engine, as in `await connection.run_sync(table.create)` for asyncio.
        """
        with translated("the tables of finished keys"), engine.engine.connect() as connection:
            create_tables(connection)

    def finish_in(
        self, connection: object, run: Run | AsyncRun, result: object = None, *, payload: object = NOTHING
    ) -> None:
        """Insert the row that marks the key as done, in the transaction of `connection`, without committing it.

        `connection` is a Connection or Session of SQLAlchemy, Django's connection, or psycopg's.

        Waits while another transaction holds the same row uncommitted. Raises AlreadyDone if the row exists,
        OtherPayload if it belongs to another `payload`, and StaleToken if the run is not newer than rows that were
        forgotten; after each of them roll back. Raises TransactionConflict if the database itself rolled back.
        """
        record, seen = run.claim.record, "" if payload is NOTHING else payload_print(payload)
        kind, body = run.written(result)
        row = {
            "namespace": record.namespace,
            "record_key": record.key,
            "message": run.message_id,
            "payload_print": seen,
            "fence": run.fencing_token,
            "kind": kind,
            "body": body,
        }
        transaction = connection if isinstance(connection, Connection) else begun(connection)
        given = transaction if isinstance(transaction, Connection) else None
        with ExitStack() as stack, translated(f"key {run.name!r}", given, table=TABLES):
            found, _ = connected(transaction, stack)
            _require_transaction(found)
            if not _is_inserted(found, once, row):
                _refuse(found, run, seen)
            mark = _mark(found, record.namespace)
            if mark is not None and run.fencing_token <= mark:
                resource = f"{record.namespace}: {run.name}"
                raise StaleToken(resource, run.fencing_token, mark)

    def perform(self, engine: Engine, run: Run, function: Callable[[Connection], V], *, payload: object = NOTHING) -> V:
        """Call `function` in a new transaction together with the row, commit, and finish the run.

        A rollback must be able to undo the function: it is called again if the database asks for it. Returns the result
        of the function or the stored result; in the latter case it is not called, or its work is rolled back. Once the
        row is committed, it does not matter whether Redis lost the run. Raises the errors of `finish_in`, StoreRefused
        if the transaction ended within the function, such as by a failed statement whose error it handled (not on
        SQLite, where only ROLLBACK, OR ROLLBACK or a full disk does that, and the row is stored), and StoreError if the
        store did not answer after the commit: then the work is done, and a repeat gets the stored result.
        """
        try:
            result = self._transacted(engine, run, function, payload)
        except AlreadyDone as done:
            result = done.result
        with suppress(RunLost):  # the commit stands, and the row proves it
            run.finish(result)
        return result

    async def async_perform(
        self,
        engine: AsyncEngine,
        run: AsyncRun,
        function: Callable[[AsyncConnection], Awaitable[V]],
        *,
        payload: object = NOTHING,
    ) -> V:
        """Call `function` in a new transaction over an asyncio engine; see `perform`."""
        try:
            result = await self._async_transacted(engine, run, function, payload)
        except AlreadyDone as done:
            result = done.result
        with suppress(RunLost):  # as in `perform`
            await run.finish(result)
        return result

    def stored(self, connection: Connection, key: str, *, namespace: str) -> StoredOutcome | None:
        """Return the row of a record's key (`run.key`), or None if it was not done or is forgotten."""
        with translated(f"key {key!r}", connection, table=TABLES):
            return _row(connection, namespace, key)

    def forget(self, connection: Connection, *, older_than: float, namespace: str | None = None) -> int:
        """Delete the rows that were finished more than `older_than` seconds ago, and return how many.

        Runs in the caller's transaction. A key whose row is deleted may run again, so choose a time longer than any
        message can take to return. Holders that have been stalled since before are refused by their fencing tokens.
        """
        age = timedelta(milliseconds=milliseconds(older_than, "older_than"))
        with translated("the finished keys", connection, table=TABLES):
            _require_transaction(connection)
            limit = connection.execute(select(database_now())).scalar_one() - age
            where = [once.c.finished_at < limit]
            if namespace is not None:
                where.append(once.c.namespace == checked_namespace(namespace))
            marks = connection.execute(
                select(once.c.namespace, func.max(once.c.fence)).where(*where).group_by(once.c.namespace)
            ).all()
            for name, fence in sorted(marks):
                if not _is_inserted(connection, forgotten, {"namespace": name, "fence": fence}):
                    older = [forgotten.c.namespace == name, forgotten.c.fence < fence]
                    connection.execute(update(forgotten).where(*older).values(fence=fence))
            return sum(
                connection.execute(delete(once).where(*where, once.c.namespace == name, once.c.fence <= fence)).rowcount
                for name, fence in marks
            )

    def _transacted(self, engine: Engine, run: Run, function: Callable[[Connection], V], payload: object) -> V:
        left = TRIES
        while True:
            try:
                with _conflicts_told(run), engine.connect() as connection, connection.begin():
                    self._check_first(connection, run, payload)
                    result = function(connection)
                    self.finish_in(connection, run, result, payload=payload)
                    _check_unbroken(connection, run)
                    return result
            except TransactionConflict:
                left -= 1
                if not left:
                    raise

    async def _async_transacted(
        self, engine: AsyncEngine, run: AsyncRun, function: Callable[[AsyncConnection], Awaitable[V]], payload: object
    ) -> V:
        left = TRIES
        while True:
            try:
                with _conflicts_told(run):
                    async with engine.connect() as connection, connection.begin():
                        await connection.run_sync(self._check_first, run, payload)
                        result = await function(connection)
                        await connection.run_sync(self.finish_in, run, result, payload=payload)
                        await connection.run_sync(_check_unbroken, run)
                        return result
            except TransactionConflict:
                left -= 1
                if not left:
                    raise

    def _check_first(self, connection: Connection, run: Run | AsyncRun, payload: object) -> None:
        """Refuse a key that is done before the effect collides with its own earlier work, such as an existing row."""
        seen = "" if payload is NOTHING else payload_print(payload)
        with translated(f"key {run.name!r}", connection, table=TABLES):
            _require_transaction(connection)
            if _row(connection, run.claim.record.namespace, run.key) is not None:
                _refuse(connection, run, seen)
            if connection.dialect.name in MARKED:
                mark_begun(connection)


def _check_unbroken(connection: Connection, run: Run | AsyncRun) -> None:
    """Refuse to commit the row if the effect's part of the transaction was rolled back."""
    if connection.dialect.name in MARKED and not is_unbroken(connection):
        raise StoreRefused(f"key {run.name!r}: nothing is stored: {BROKEN}")


def _is_inserted(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row. Returns False, with the transaction unchanged, if its key exists."""
    into = INSERTS.get(connection.dialect.name)
    if into is not None:  # RETURNING tells; not every statement reports the number of inserted rows
        statement = into(table).values(row).on_conflict_do_nothing().returning(table.c.fence)
        return connection.execute(statement).first() is not None
    try:
        connection.execute(insert(table).values(row))
    except IntegrityError:  # on MariaDB and MySQL only the statement is undone
        return False
    return True


def _row(connection: Connection, namespace: str, key: str, *, is_there: bool = False) -> StoredOutcome | None:
    """Read a row; `is_there`: it is known to exist, perhaps only since after this transaction began."""
    wanted = select(once).where(once.c.namespace == namespace, once.c.record_key == key)
    row = connection.execute(_as_it_is(connection, wanted) if is_there else wanted).one_or_none()
    return None if row is None else StoredOutcome(*row)


def _refuse(connection: Connection, run: Run | AsyncRun, seen: str) -> None:
    found = _row(connection, run.claim.record.namespace, run.key, is_there=True)
    if found is None:
        raise StoreRefused(f"key {run.name!r}: its row vanished while it was looked at; roll back and run it again")
    if seen and found.payload_print and seen != found.payload_print:
        raise OtherPayload(run.name, found.message)
    now = cast("datetime", connection.execute(select(database_now())).scalar_one())
    raise AlreadyDone(run.name, found.replay(run, now))


def _mark(connection: Connection, namespace: str) -> int | None:
    """Return the highest token of a forgotten row. Fails if this transaction cannot see the latest one."""
    wanted = select(forgotten.c.fence).where(forgotten.c.namespace == namespace)
    if connection.dialect.name != "postgresql":
        return connection.execute(_as_it_is(connection, wanted)).scalar()
    level, mark = connection.execute(
        select(func.current_setting("transaction_isolation"), wanted.scalar_subquery())
    ).one()
    if level != "read committed":  # rows forgotten since it began are invisible to it, but block an insert
        _is_inserted(connection, forgotten, {"namespace": namespace, "fence": 0})
    return cast("int | None", mark)


@contextmanager
def _conflicts_told(run: Run | AsyncRun) -> Iterator[None]:
    """Convert a lost race of the user's statements or the commit into TransactionConflict, to retry it."""
    try:
        yield
    except DBAPIError as error:
        if code_of(error) not in CONFLICTS:
            raise
        what = f"key {run.name!r}"
        raise TransactionConflict(what, said(error)) from error


def _as_it_is(connection: Connection, statement: Select[Any]) -> Select[Any]:
    return statement.with_for_update(read=True) if connection.dialect.name in LOCKING else statement


def _require_transaction(connection: Connection) -> None:
    """Refuse a connection that would commit the row without the effect, or the effect without the row."""
    if is_in_autocommit(connection):
        raise InvalidInput(
            "a key is finished in the transaction of its effect, and this connection is in autocommit; "
            "use an engine without isolation_level='AUTOCOMMIT'"
        )
