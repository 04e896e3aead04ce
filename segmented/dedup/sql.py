"""Exactly once in a database: the user's effect, and the row that says that it was done, in one transaction.

The row is the judge. Whatever Redis remembers, forgot, or was told by a clock that jumped: a second row of the same key
cannot be inserted, and without its row the effect is not committed. So an effect in this database is done once, for as
long as its row is kept. Redis keeps other callers away meanwhile, and answers repeats without asking the database.

Works on PostgreSQL, SQLite, MariaDB and MySQL, over SQLAlchemy Core, in both colours. Not promised: anything about an
effect outside the transaction, see `ExternalEffect`.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError

from segmented.dedup.dedup import NOTHING
from segmented.dedup.errors import OtherPayload, RunLost
from segmented.dedup.identity import payload_print
from segmented.dedup.options import checked_namespace
from segmented.dedup.run import AlreadyDone
from segmented.dedup.sql_tables import TABLES, async_create_tables, create_tables, forgotten, once
from segmented.errors import InvalidInput, StaleToken, StoreRefused, TransactionConflict
from segmented.locks.durations import milliseconds
from segmented.locks.sql_edge import CONFLICTS, code_of, said, translated
from segmented.models.dedup import OutcomeKept, OutcomeKind
from segmented.orders.tables import database_now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from sqlalchemy import Connection, Engine, Select, Table
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from segmented.dedup.run import AsyncRun, Replay, Run

V = TypeVar("V")
LOCKING: Final = frozenset({"mysql", "mariadb"})
"""Databases where a plain SELECT shows what was when the transaction began, and only one that locks shows what is."""
INSERTS: Final[dict[str, Callable[[Table], Any]]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
"""Databases that insert a row or tell that it is there, without an error, which would end a transaction."""
TRIES: Final = 3
"""Of a transaction that the database rolls back, because another one with the same key was faster."""


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """The row of a key that was done."""

    namespace: str
    key: str
    message: str
    payload_print: str
    """Empty where no payload was given."""
    fencing_token: int
    kind: OutcomeKind
    body: str
    finished_at: datetime
    """By the database's clock; without a time zone where the database keeps none."""

    def replay(self, run: Run | AsyncRun, now: datetime) -> Replay:
        """Return what a repeat gets, read as the run writes results."""
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

    By hand: ask `stored` first, do the effect, then `finish_in` on the same connection, commit, and `run.finish`. On
    AlreadyDone roll back and take its result.
    """

    def create(self, engine: Engine) -> None:
        """Make the tables unless they are there; may run any number of times, also at once."""
        create_tables(engine)

    async def async_create(self, engine: AsyncEngine) -> None:
        """Do what `create` does, over an asyncio engine."""
        await async_create_tables(engine)

    def finish_in(
        self, connection: Connection, run: Run | AsyncRun, result: object = None, *, payload: object = NOTHING
    ) -> None:
        """Insert the row that the key is done, in the transaction that `connection` is in; it is not committed here.

        Waits while another transaction has the same row uncommitted. Raises AlreadyDone where the row exists, and
        OtherPayload where it is of another `payload`; StaleToken for a run that is no younger than rows that were
        forgotten; after each of them roll back. Raises TransactionConflict where the database rolled back by itself.
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
        with translated(f"key {run.name!r}", connection, table=TABLES):
            _require_transaction(connection)
            if not _is_inserted(connection, once, row):
                _refuse(connection, run, seen)
            mark = _mark(connection, record.namespace)
            if mark is not None and run.fencing_token <= mark:
                resource = f"{record.namespace}: {run.name}"
                raise StaleToken(resource, run.fencing_token, mark)

    async def async_finish_in(
        self, connection: AsyncConnection, run: Run | AsyncRun, result: object = None, *, payload: object = NOTHING
    ) -> None:
        """Do what `finish_in` does, over an asyncio connection."""
        await connection.run_sync(self.finish_in, run, result, payload=payload)

    def perform(self, engine: Engine, run: Run, function: Callable[[Connection], V], *, payload: object = NOTHING) -> V:
        """Call `function` in a transaction of its own together with the row, commit, and finish the run.

        What the function does has to be undone by a rollback: where the database asks for it, it is called again.
        Returns what it gave, or gave the first time; then it is not called, or what it did is rolled back. That Redis
        lost the run meanwhile does not matter any more once the row is committed. Raises as `finish_in`; and StoreError
        where the store did not answer after the commit: then it is done, and a repeat gets the stored result.
        """
        try:
            result = self._transacted(engine, run, function, payload)
        except AlreadyDone as done:
            result = done.result
        with suppress(RunLost):  # what is committed stands, and the row will say so
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
        """Do what `perform` does, over an asyncio engine."""
        try:
            result = await self._async_transacted(engine, run, function, payload)
        except AlreadyDone as done:
            result = done.result
        with suppress(RunLost):  # as in `perform`
            await run.finish(result)
        return result

    def stored(self, connection: Connection, key: str, *, namespace: str) -> StoredOutcome | None:
        """Return the row of a record's key (`run.key`); None when it was not done, or is forgotten."""
        with translated(f"key {key!r}", connection, table=TABLES):
            return _row(connection, namespace, key)

    async def async_stored(self, connection: AsyncConnection, key: str, *, namespace: str) -> StoredOutcome | None:
        """Do what `stored` does, over an asyncio connection."""
        return await connection.run_sync(self.stored, key, namespace=namespace)

    def forget(self, connection: Connection, *, older_than: float, namespace: str | None = None) -> int:
        """Delete the rows that were finished more than `older_than` seconds ago, and return how many.

        In the caller's transaction. A key whose row is gone may be done again, so take longer than a message can come
        back. Holders that have stood still since before are refused by their fencing tokens.
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

    async def async_forget(
        self, connection: AsyncConnection, *, older_than: float, namespace: str | None = None
    ) -> int:
        """Do what `forget` does, over an asyncio connection."""
        return await connection.run_sync(self.forget, older_than=older_than, namespace=namespace)

    def _transacted(self, engine: Engine, run: Run, function: Callable[[Connection], V], payload: object) -> V:
        left = TRIES
        while True:
            try:
                with _conflicts_told(run), engine.connect() as connection, connection.begin():
                    self._check_first(connection, run, payload)
                    result = function(connection)
                    self.finish_in(connection, run, result, payload=payload)
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
                        await self.async_finish_in(connection, run, result, payload=payload)
                        return result
            except TransactionConflict:
                left -= 1
                if not left:
                    raise

    def _check_first(self, connection: Connection, run: Run | AsyncRun, payload: object) -> None:
        """Refuse before the effect runs into what it did the first time, such as a row of its own that exists."""
        seen = "" if payload is NOTHING else payload_print(payload)
        with translated(f"key {run.name!r}", connection, table=TABLES):
            if _row(connection, run.claim.record.namespace, run.key) is not None:
                _refuse(connection, run, seen)


def _is_inserted(connection: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row; False, with the transaction as it was, where its key exists."""
    into = INSERTS.get(connection.dialect.name)
    if into is not None:  # asked by RETURNING: the count of inserted rows is not told for every statement
        statement = into(table).values(row).on_conflict_do_nothing().returning(table.c.fence)
        return connection.execute(statement).first() is not None
    try:
        connection.execute(insert(table).values(row))
    except IntegrityError:  # undoes the statement alone on MariaDB and MySQL
        return False
    return True


def _row(connection: Connection, namespace: str, key: str, *, is_there: bool = False) -> StoredOutcome | None:
    """Read a row; `is_there`: it is known to exist, maybe since after this transaction began."""
    wanted = select(once).where(once.c.namespace == namespace, once.c.record_key == key)
    row = connection.execute(_as_it_is(connection, wanted) if is_there else wanted).one_or_none()
    return None if row is None else StoredOutcome(*row)


def _refuse(connection: Connection, run: Run | AsyncRun, seen: str) -> None:
    found = _row(connection, run.claim.record.namespace, run.key, is_there=True)
    if found is None:
        message = f"key {run.name!r}: its row vanished while it was looked at; roll back and run it again"
        raise StoreRefused(message)
    if seen and found.payload_print and seen != found.payload_print:
        raise OtherPayload(run.name, found.message)
    now = cast("datetime", connection.execute(select(database_now())).scalar_one())
    raise AlreadyDone(run.name, found.replay(run, now))


def _mark(connection: Connection, namespace: str) -> int | None:
    """Return the highest token of a row that was forgotten. Fails where this transaction cannot see the latest one."""
    wanted = select(forgotten.c.fence).where(forgotten.c.namespace == namespace)
    if connection.dialect.name != "postgresql":
        return connection.execute(_as_it_is(connection, wanted)).scalar()
    level, mark = connection.execute(
        select(func.current_setting("transaction_isolation"), wanted.scalar_subquery())
    ).one()
    if level != "read committed":  # what was forgotten since it began is not shown to it, but is in the way of a row
        _is_inserted(connection, forgotten, {"namespace": namespace, "fence": 0})
    return cast("int | None", mark)


@contextmanager
def _conflicts_told(run: Run | AsyncRun) -> Iterator[None]:
    """Turn a race that the user's statements, or the commit, lost into ours: the transaction is done again then."""
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
    """Refuse a connection on which the row would be committed without the effect, or the effect without the row."""
    driver_connection = connection.connection.dbapi_connection
    if driver_connection is None or connection.dialect.detect_autocommit_setting(driver_connection):
        message = (
            "a key is finished in the transaction of its effect, and this connection is in autocommit; "
            "use an engine without isolation_level='AUTOCOMMIT'"
        )
        raise InvalidInput(message)
