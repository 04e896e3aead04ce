"""Records of `Dedup` and `Once` in PostgreSQL or SQLite, for programs without Redis.

A row is read and locked, the script that ships runs on it in this process, by Lua, with the database's time, and what
it has changed is written back: one transaction. So a record in SQL and one in Redis follow the same rules.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    delete,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import CreateIndex, CreateTable

from segmented.clock import ManualClock, SystemClock
from segmented.dedup.terms import NAMESPACE_LENGTH_MAX
from segmented.errors import InvalidInput, SegmentedError, StoreRefused, StoreUnavailable, TransactionConflict
from segmented.imports import needs
from segmented.keys import once_claims, once_partition
from segmented.locks.sql_edge import code_of, said, translated
from segmented.orders.engine import shown
from segmented.plans.drivers import async_one_by_one, one_by_one
from segmented.plans.store_kinds import NotPickled
from segmented.process import THIS
from segmented.protocol import FinishRunWithEffect, ListClaims
from segmented.protocol.wire import text
from segmented.stores.memory import MemoryModel
from segmented.stores.redis.exchange import Seen
from segmented.stores.wakeups import AsyncioWakeups, ThreadWakeups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection

    from segmented.clock import Clock
    from segmented.plans.line import Offer, Place
    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
TRIES: Final = 5
"""Attempts for a transaction that the database rolls back because another one was faster."""
FORGET_EVERY: Final = 100
"""After this many operations of a process, rows of which nothing is left are deleted."""
POLL_SECONDS_MIN: Final = 0.02
POLL_SECONDS_MAX: Final = 1.0
DIALECTS: Final = {"postgresql": "READ COMMITTED", "sqlite": "SERIALIZABLE"}
"""The databases, and the isolation level of the transactions here, whatever that of the engine."""
KEY_LENGTH_MAX: Final = 600
"""A key of 255 characters and what the library puts before it."""
WAIT_MS: Final = 5_000
"""How long an operation waits for another process that has the row, which takes milliseconds."""
STALLED_MS: Final = 10_000
"""After this time PostgreSQL ends the transaction of a process that was stopped in the middle of one."""
CLOSE_SECONDS_MAX: Final = 2 * STALLED_MS / 1_000
"""An operation that has not ended by then has lost its database."""
STALE_MAX: Final = 200
CREATE_LOCK: Final = 7_341_652_101
"""An arbitrary number that other programs are unlikely to use for an advisory lock."""
TABLE: Final = "segmented_records by SqlRecords(engine).create()"
NOT_NOW: Final = frozenset({"55P03", "57014", "25P03"})
"""PostgreSQL's codes of a lock that was not free in time, and of a transaction that took too long."""
BUSY: Final = frozenset({"database is locked", "database table is locked"})
"""SQLite's words for the same."""
CLOCKS: Final = {
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS integer) * 1000",
}
"""The database's time in microseconds since 1970; read after the row is locked."""


Document = dict[str, list[Any]]
"""The keys of a record: type, values, and when it ends in milliseconds, or None."""

metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""


def _exact(length: int) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


records = Table(
    "segmented_records",
    metadata,
    Column("namespace", _exact(NAMESPACE_LENGTH_MAX), nullable=False),
    Column("record_key", _exact(KEY_LENGTH_MAX), nullable=False),
    Column("shard", Integer, nullable=False),
    Column("body", Text, nullable=False),
    # When nothing of the record is left, in milliseconds; null: it does not end by itself
    Column("ends_ms", BigInteger),
    PrimaryKeyConstraint("namespace", "record_key", name="segmented_records_key"),
)
Index("segmented_records_ends", records.c.ends_ms)


def checked_operation(operation: Operation[Any]) -> None:
    """Raise InvalidInput for an operation that only a Redis server can do."""
    what = type(operation).__name__
    if isinstance(operation, FinishRunWithEffect):
        message = "a StoreEffect runs in Redis: with records in SQL use OnceTable, whose row is in your transaction"
        raise InvalidInput(message)
    if not (isinstance(operation, ListClaims) or hasattr(operation, "record")):
        raise InvalidInput(f"SqlRecords keeps the records of Dedup and Once alone: {what} needs a RedisStore")


def create(connection: Connection) -> None:
    """Create the table unless it exists. Safe to run any number of times, also concurrently."""
    is_postgresql = connection.dialect.name == "postgresql"
    with translated("the table of records", connection), connection.begin():
        if is_postgresql:  # concurrent CREATE TABLE IF NOT EXISTS fails on PostgreSQL
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATE_LOCK})")
        connection.execute(CreateTable(records, if_not_exists=True))
        for index in records.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))


def perform(connection: Connection, operation: Operation[AnswerT], attempt: int) -> tuple[AnswerT, list[str]]:
    """Perform one operation in a transaction of its own; return the answer, and the channels that got a message.

    Raises TransactionConflict if the database asks for another try, StoreUnavailable if it does not answer in time.
    """
    with _in_time(connection), connection.begin():
        if isinstance(operation, ListClaims):
            return _listed(connection, operation), []
        return _performed(connection, operation, attempt)


@contextmanager
def _in_time(connection: Connection) -> Iterator[None]:
    with translated("a record", connection, table=TABLE):
        try:
            yield
        except DBAPIError as error:
            if code_of(error) in NOT_NOW or said(error) in BUSY:
                raise StoreUnavailable(f"a record was not free in time: {said(error)}") from error
            if said(error).startswith("no such table"):  # SQLite has no code for it
                name, _, maker = TABLE.partition(" by ")
                raise StoreRefused(f"a record: the table {name} is missing; make it with {maker}") from error
            raise


def _performed(connection: Connection, operation: Any, attempt: int) -> tuple[Any, list[str]]:  # noqa: ANN401  # an operation with a record
    namespace, key = operation.record.namespace, operation.record.key
    where = (records.c.namespace == namespace, records.c.record_key == key)
    script = operation.call().script
    is_read = script is not None and not script.writes
    body, now_us = _read(connection, namespace, key) if is_read else _locked(connection, namespace, key)
    model = model_of([json.loads(body)], now_us)
    answer = model.execute_for(Seen(), operation)
    answer = answer if attempt == 1 else operation.doubt(answer)
    freed = model.take_freed()
    if is_read:
        return answer, freed
    document = kept(model, once_claims(namespace, once_partition(key)), now_us // 1_000)
    if not document:
        connection.execute(delete(records).where(*where))
    else:
        written = json.dumps(document, separators=(",", ":"))
        if written != body:
            connection.execute(update(records).where(*where).values(body=written, ends_ms=_end_of(document)))
    return answer, freed


def _locked(connection: Connection, namespace: str, key: str) -> tuple[str, int]:
    """Lock the row, which is made if it is missing, and return its document and the database's time after that."""
    name = connection.dialect.name
    if name == "postgresql":
        connection.exec_driver_sql(
            f"SELECT set_config('lock_timeout', '{WAIT_MS}', true), "
            f"set_config('idle_in_transaction_session_timeout', '{STALLED_MS}', true)"
        )
    into: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}[name]
    row = {"namespace": namespace, "record_key": key, "shard": once_partition(key), "body": "{}", "ends_ms": 0}
    # An existing row stays unchanged, but it is locked, and read in its newest version at any isolation level
    statement = (
        into(records)
        .values(row)
        .on_conflict_do_update(index_elements=["namespace", "record_key"], set_={"shard": row["shard"]})
        .returning(records.c.body, literal_column(CLOCKS[name]))
    )
    body, now_us = connection.execute(statement).one()
    return body, int(now_us)


def _read(connection: Connection, namespace: str, key: str) -> tuple[str, int]:
    found = connection.execute(
        select(records.c.body).where(records.c.namespace == namespace, records.c.record_key == key)
    ).scalar()
    return found or "{}", _now_us(connection)


def _now_us(connection: Connection) -> int:
    return int(connection.execute(select(literal_column(CLOCKS[connection.dialect.name]))).scalar_one())


def _listed(connection: Connection, operation: ListClaims) -> Any:  # noqa: ANN401  # of the operation
    rows = connection.execute(
        select(records.c.body)
        .where(records.c.namespace == operation.namespace, records.c.shard == operation.partition)
        .limit(operation.limit)
    ).scalars()
    return model_of([json.loads(body) for body in rows], _now_us(connection)).execute(operation)


def model_of(documents: list[Document], now_us: int) -> MemoryModel:
    """Return a small Redis with the keys of these records, at this time."""
    model = MemoryModel(ManualClock(now_us / 1_000_000))
    for document in documents:
        for key, (kind, values, ends_ms) in document.items():
            if kind == "hash":
                model.ask("HSET", key, *values)
            else:
                model.ask("ZADD", key, *values)
            if ends_ms is not None:
                model.ask("PEXPIREAT", key, ends_ms)
    return model


def kept(model: MemoryModel, claims: str, now_ms: int) -> Document:
    """Return what the small Redis has now; nothing if only claims of what has ended are left."""
    document: Document = {}
    for key in sorted(text(each) for each in model.ask("KEYS", "*")):
        if text(model.ask("TYPE", key)) == "hash":
            kind, values = "hash", [text(each) for each in model.ask("HGETALL", key)]
        else:
            kind, values = "zset", []
            pairs = model.ask("ZRANGE", key, 0, -1, "WITHSCORES")
            for member, score in zip(pairs[::2], pairs[1::2], strict=True):
                values += [text(score), text(member)]
        left_ms = int(model.ask("PTTL", key))
        document[key] = [kind, values, None if left_ms < 0 else now_ms + left_ms]
    return {} if set(document) <= {claims} else document


def _end_of(document: Document) -> int | None:
    """Return when the last key with an end ends; the claims have none of their own, and end with the others."""
    ends = [ends_ms for key, (_, _, ends_ms) in document.items() if not key.endswith(":claims")]
    return None if None in ends else max(ends)


def forget_stale(connection: Connection) -> int:
    """Delete up to STALE_MAX rows of which nothing is left, and return how many."""
    with _in_time(connection), connection.begin():
        now_ms = _now_us(connection) // 1_000
        stale = select(records.c.namespace, records.c.record_key).where(records.c.ends_ms < now_ms).limit(STALE_MAX)
        if connection.dialect.name == "postgresql":
            stale = stale.with_for_update(skip_locked=True)
        names = connection.execute(stale).all()
        return sum(
            connection.execute(
                delete(records).where(
                    records.c.namespace == namespace, records.c.record_key == key, records.c.ends_ms < now_ms
                )
            ).rowcount
            for namespace, key in names
        )


class Polls:
    """How long to wait before the next look at a record that another process has: longer and longer."""

    def __init__(self) -> None:
        self._looks: dict[str, int] = {}

    def seconds(self, channel: str) -> float:
        """Return the time to the next look."""
        looks = self._looks[channel] = self._looks.get(channel, 0) + 1
        return min(POLL_SECONDS_MAX, POLL_SECONDS_MIN * 2.0 ** min(looks, 10))

    def forget(self, channel: str) -> None:
        """Begin with short times again."""
        self._looks.pop(channel, None)


def checked_engine(given: object, kind: type, who: str) -> str:
    """Return the isolation level to use. Raises InvalidInput for an engine on which records cannot be kept."""
    if not isinstance(given, kind):
        raise InvalidInput(f"{who} takes a SQLAlchemy {kind.__name__}, not {type(given).__name__}")
    engine = cast("Engine | AsyncEngine", given)
    name = engine.dialect.name
    if name not in DIALECTS:
        raise InvalidInput(
            f"{who} keeps records in PostgreSQL or SQLite, and this engine is for {name}: use one of them, or Redis"
        )
    if name == "sqlite" and not engine.url.database:
        raise InvalidInput(f"{who} needs a SQLite file: a database in memory is another one in each thread")
    try:
        import_module("lupa.lua51")  # the scripts run in it
    except ModuleNotFoundError as error:
        raise InvalidInput(needs(who, "lupa", "sql-records")) from error
    return DIALECTS[name]


class AsyncPollingWakeups(AsyncioWakeups):
    """The waiting lines of this event loop, whose heads look again and again."""

    def _start_anew(self) -> None:
        super()._start_anew()
        self._polls = Polls()

    async def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken, until the next look, or until the deadline; return whether it is time to try."""
        soon = self._clock.now() + self._polls.seconds(place.line.channel)
        return await super().park(place, min(due, soon), deadline, offer)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        if is_over:
            self._polls.forget(place.line.channel)
        return is_over


class AsyncSqlRecords(NotPickled):
    """A store of deduplication records in a database, for asyncio: `AsyncDedup(AsyncSqlRecords(engine), "app")`.

    Each operation is one short transaction on a connection of the engine's pool, never in a transaction of the caller.
    Locks, pools and a StoreEffect need Redis. All messages of a key are in one row.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        """Use the user's engine, which stays the user's. Close this before you dispose of the engine.

        Raises InvalidInput for any other database than PostgreSQL and SQLite, and where lupa is not installed.
        """
        self._level = checked_engine(engine, AsyncEngine, type(self).__name__)
        self._engine = engine
        self._process_id = THIS.process_id
        self._count = 0
        self._under_way: list[int] = []  # the process of each operation: a child has those of its parent, too
        self.is_closed = False
        self.clock: Clock = SystemClock()
        self.wakeups = AsyncPollingWakeups(self.clock)

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"{type(self).__name__}({shown(self._engine.url)})"

    async def create(self) -> None:
        """Create the table unless it exists. Safe to run any number of times, also concurrently."""
        await self._within(create)

    async def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # the database's own limits apply
        """Perform one operation in a transaction. Raises InvalidInput for one that only Redis can do."""
        checked_operation(operation)
        for attempt in range(1, TRIES):
            with suppress(TransactionConflict):
                return await self._executed(operation, attempt)
        return await self._executed(operation, TRIES)

    async def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return await async_one_by_one(self, operations, deadline)

    async def close(self) -> None:
        """End renewals and wait for what is under way, so that the user's engine may be disposed of."""
        self.is_closed = True
        for _ in range(int(CLOSE_SECONDS_MAX / POLL_SECONDS_MIN)):
            if THIS.process_id not in self._under_way:
                break
            await asyncio.sleep(POLL_SECONDS_MIN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _executed(self, operation: Operation[AnswerT], attempt: int) -> AnswerT:
        answer, freed = await self._within(perform, operation, attempt)
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            with suppress(SegmentedError):  # another process, or the next time
                await self._within(forget_stale)
        return cast("AnswerT", answer)

    async def _within(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        process_id = THIS.process_id
        self._under_way.append(process_id)  # first: `close` waits for what it sees, and the rest sees that it is closed
        try:
            return await self._in_a_connection(step, *arguments)
        finally:
            self._under_way.remove(process_id)

    async def _in_a_connection(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        with translated("records in SQL"):  # there may be no connection
            if self.is_closed:
                raise StoreUnavailable(f"{self!r} is closed: make another one with its engine")
            if self._process_id != THIS.process_id:  # the parent's connections are the parent's
                await self._engine.dispose(close=False)
                self._process_id = THIS.process_id
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level=self._level)
                return await connection.run_sync(step, *arguments)  # asyncio only
                # threads: return step(connection, *arguments)


# --- For threads: written by `make sync` from the classes above. ---


class PollingWakeups(ThreadWakeups):
    """The waiting lines of this process, whose heads look again and again."""

    def _start_anew(self) -> None:
        super()._start_anew()
        self._polls = Polls()

    def park(self, place: Place, due: float, deadline: float, offer: Offer | None = None) -> bool:
        """Sleep until woken, until the next look, or until the deadline; return whether it is time to try."""
        soon = self._clock.now() + self._polls.seconds(place.line.channel)
        return super().park(place, min(due, soon), deadline, offer)

    def leave(self, place: Place, due: float, *, in_time: bool = True) -> bool:
        """Leave the line. Return whether the process does not wait any more."""
        is_over = super().leave(place, due, in_time=in_time)
        if is_over:
            self._polls.forget(place.line.channel)
        return is_over


class SqlRecords(NotPickled):
    """A store of deduplication records in a database, for threads: `Dedup(SqlRecords(engine), "app")`.

    Each operation is one short transaction on a connection of the engine's pool, never in a transaction of the caller.
    Locks, pools and a StoreEffect need Redis. All messages of a key are in one row.
    """

    def __init__(self, engine: Engine) -> None:
        """Use the user's engine, which stays the user's. Close this before you dispose of the engine.

        Raises InvalidInput for any other database than PostgreSQL and SQLite, and where lupa is not installed.
        """
        self._level = checked_engine(engine, Engine, type(self).__name__)
        self._engine = engine
        self._process_id = THIS.process_id
        self._count = 0
        self._under_way: list[int] = []  # the process of each operation: a child has those of its parent, too
        self.is_closed = False
        self.clock: Clock = SystemClock()
        self.wakeups = PollingWakeups(self.clock)

    def __repr__(self) -> str:
        """Show the database, without secrets."""
        return f"{type(self).__name__}({shown(self._engine.url)})"

    def create(self) -> None:
        """Create the table unless it exists. Safe to run any number of times, also concurrently."""
        self._within(create)

    def execute(self, operation: Operation[AnswerT], *, deadline: float = inf) -> AnswerT:  # noqa: ARG002  # the database's own limits apply
        """Perform one operation in a transaction. Raises InvalidInput for one that only Redis can do."""
        checked_operation(operation)
        for attempt in range(1, TRIES):
            with suppress(TransactionConflict):
                return self._executed(operation, attempt)
        return self._executed(operation, TRIES)

    def execute_many(
        self, operations: Sequence[Operation[AnswerT]], *, deadline: float = inf
    ) -> list[AnswerT | SegmentedError]:
        """Perform operations one by one; one answer or failure each."""
        return one_by_one(self, operations, deadline)

    def close(self) -> None:
        """End renewals and wait for what is under way, so that the user's engine may be disposed of."""
        self.is_closed = True
        for _ in range(int(CLOSE_SECONDS_MAX / POLL_SECONDS_MIN)):
            if THIS.process_id not in self._under_way:
                break
            time.sleep(POLL_SECONDS_MIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _executed(self, operation: Operation[AnswerT], attempt: int) -> AnswerT:
        answer, freed = self._within(perform, operation, attempt)
        for channel in freed:
            self.wakeups.hear(channel, getattr(channel, "said", ""))
        self._count += 1
        if self._count % FORGET_EVERY == 0:
            with suppress(SegmentedError):  # another process, or the next time
                self._within(forget_stale)
        return cast("AnswerT", answer)

    def _within(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        process_id = THIS.process_id
        self._under_way.append(process_id)  # first: `close` waits for what it sees, and the rest sees that it is closed
        try:
            return self._in_a_connection(step, *arguments)
        finally:
            self._under_way.remove(process_id)

    def _in_a_connection(self, step: Any, *arguments: Any) -> Any:  # noqa: ANN401  # a step, and what it takes
        with translated("records in SQL"):  # there may be no connection
            if self.is_closed:
                raise StoreUnavailable(f"{self!r} is closed: make another one with its engine")
            if self._process_id != THIS.process_id:  # the parent's connections are the parent's
                self._engine.dispose(close=False)
                self._process_id = THIS.process_id
            with self._engine.connect() as connection:
                connection.execution_options(isolation_level=self._level)
                return step(connection, *arguments)
