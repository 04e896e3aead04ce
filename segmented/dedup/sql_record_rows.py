"""One operation on a deduplication record that is a row of PostgreSQL or SQLite.

The row is read and locked, the script that ships runs on it in this process, by Lua, with the database's time, and what
it has changed is written back: one transaction. So a record in SQL and one in Redis follow the same rules.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
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
from sqlalchemy.schema import CreateIndex, CreateTable

from segmented.dedup.terms import NAMESPACE_LENGTH_MAX
from segmented.errors import InvalidInput, StoreRefused, StoreUnavailable
from segmented.keys import once_claims, once_partition
from segmented.locks.sql_edge import code_of, said, translated
from segmented.protocol import FinishRunWithEffect, ListClaims
from segmented.protocol.wire import text
from segmented.stores.memory.model import MemoryModel
from segmented.stores.redis.exchange import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")
Document = dict[str, list[Any]]
"""The keys of a record: type, values, and when it ends in milliseconds, or None."""
KEY_LENGTH_MAX: Final = 600
"""A key of 255 characters and what the library puts before it."""
WAIT_MS: Final = 5_000
"""How long an operation waits for another process that has the row, which takes milliseconds."""
STALLED_MS: Final = 10_000
"""After this time PostgreSQL ends the transaction of a process that was stopped in the middle of one."""
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


class At:
    """A clock that shows one moment."""

    def __init__(self, seconds: float) -> None:
        """Create it."""
        self._seconds = seconds

    def now(self) -> float:
        """Return the moment."""
        return self._seconds


def checked_operation(operation: Operation[Any]) -> None:
    """Raise InvalidInput for an operation that only a Redis server can do."""
    what = type(operation).__name__
    if isinstance(operation, FinishRunWithEffect):
        message = "a StoreEffect runs in Redis: with records in SQL use OnceTable, whose row is in your transaction"
        raise InvalidInput(message)
    if not (isinstance(operation, ListClaims) or hasattr(operation, "record")):
        message = f"SqlRecords keeps the records of Dedup and Once alone: {what} needs a RedisStore"
        raise InvalidInput(message)


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
                message = f"a record was not free in time: {said(error)}"
                raise StoreUnavailable(message) from error
            if said(error).startswith("no such table"):  # SQLite has no code for it
                name, _, maker = TABLE.partition(" by ")
                message = f"a record: the table {name} is missing; make it with {maker}"
                raise StoreRefused(message) from error
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
    model = MemoryModel(At(now_us / 1_000_000))
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
