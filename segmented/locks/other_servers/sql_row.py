"""`SqlRowLock`: SELECT ... FOR UPDATE on one row of a small table, until the caller's transaction ends.

The algorithm is the database's own row lock through the primary key; nothing else in the table is locked. A failed try
leaves the transaction unchanged. The fencing token is `max(last + 1, the database's microseconds)`, as for `Lock`,
after Kleppmann ("How to do distributed locking", 2016).

Guarantees: at most one open transaction holds a name; the database enforces it. There is no lease that expires and no
clock to trust: the lock ends with the transaction, by commit, by rollback, or because the connection was lost. A new
holder sees everything that earlier holders committed, if the acquire is the first statement of its transaction. It is
safe behind a proxy that pools by transaction (PgBouncer), because it keeps no session state.

Not guaranteed:

- that a holder learns at once that its connection is lost: its next statement and its commit fail, but the locks are
  free as soon as the database notices. Use the fencing token for work outside the database in between;
- that a token is durable before the commit. Tokens of committed holders always grow. A token that was rolled back, or
  lost with its connection, is not stored: a later one is higher because the database's clock has advanced, unless that
  clock was set back, or a failover went to a server whose clock is behind;
- the order in which waiters are served;
- the lock after a ROLLBACK TO a savepoint that is older than the acquire: it may free the row without notice.

The table has one row per name: the name and the last fencing token that was committed under it. Do not delete rows
while locks are in use.

| | PostgreSQL | MariaDB, MySQL |
| --- | --- | --- |
| a try | `SKIP LOCKED`: no error, so no savepoint | `NOWAIT`: `SKIP LOCKED` leaves a gap locked |
| a wait | in a savepoint, with `SET LOCAL` time-outs | a time-out for the one statement |
| a missing row | inserted in the caller's transaction | inserted outside it, see `MySqlRows` |

Nothing outlives the transaction, so a proxy may then give the server's connection to another client.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import (
    DDL,
    BigInteger,
    BindParameter,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    TextClause,
    bindparam,
    event,
    text,
)
from sqlalchemy.dialects.mysql import VARBINARY
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from segmented.clock import Clock, Duration, SystemClock
from segmented.errors import AcquireTimeout, InvalidInput, StoreRefused, TransactionConflict
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_name, checked_timeout
from segmented.locks.hints import Hinted
from segmented.locks.sql_edge import TABLE_NAME, code_of, is_in_autocommit, roll_back, said, translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

PG_LOCK_TIMEOUT: Final = "55P03"
PG_CANCELLED: Final = "57014"
PG_SECONDS_MAX: Final = 2_000_000.0
"""Longest wait with a time-out, since a time-out is limited to 24 days; a longer wait has none."""
NO_TIMEOUT: Final = "0"
NAMES: Final[BindParameter[Any]] = bindparam("names", expanding=True)

SELECT: Final = "SELECT name FROM segmented_locks WHERE name = :name FOR UPDATE"
LOCK: Final = text(SELECT)
PG_LOCK_FREE: Final = text(
    "SELECT name FROM segmented_locks WHERE name IN :names LIMIT 1 FOR UPDATE SKIP LOCKED"
).bindparams(NAMES)
PRESENT: Final = text("SELECT name FROM segmented_locks WHERE name IN :names").bindparams(NAMES)
PG_INSERT: Final = text("INSERT INTO segmented_locks (name) VALUES (:name) ON CONFLICT DO NOTHING")
PG_RAISE_FENCE: Final = text(
    "UPDATE segmented_locks "
    "SET fence = GREATEST(fence + 1, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint) "
    "WHERE name = :name RETURNING fence"
)
TAKE_TURNS: Final = text("SELECT pg_advisory_xact_lock(:lock)")
SET_TIMEOUTS: Final = text(
    "SELECT current_setting('lock_timeout'), current_setting('statement_timeout'), "
    "set_config('lock_timeout', :lock, true), "
    "set_config('statement_timeout', coalesce(:statement, current_setting('statement_timeout')), true)"
)


class PostgresRows:
    """The rows of the lock table in PostgreSQL.

    A failed statement would abort the caller's transaction. A try therefore skips locked rows, which is not an error,
    and a wait runs in a savepoint, which also resets its time-outs if it fails.

    `lock_timeout` alone does not keep a deadline: it begins again with each lock that a statement waits for, and a
    row's queue has two (a place in the queue, then the holder). `statement_timeout` covers all of them.
    """

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Wait for an advisory lock: CREATE TABLE IF NOT EXISTS fails if two run at once."""
        connection.execute(TAKE_TURNS, {"lock": lock})

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows in a fixed order, so that two concurrent calls cannot deadlock."""
        for name in sorted(set(names) - _present(connection, names)):
            connection.execute(PG_INSERT, {"name": name})

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock a free row; otherwise insert, and so lock, a missing one."""
        found: str | None = connection.execute(PG_LOCK_FREE, {"names": names}).scalar()
        if found is not None:
            return found
        present = _present(connection, names)
        missing = (name for name in names if name not in present)
        return next((name for name in missing if _inserted_at_once(connection, name)), None)

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """Wait in the row's queue, or for the transaction that is inserting the row."""
        while (seconds := deadline - clock.now()) > 0:
            try:
                if _locked_within(connection, name, seconds):
                    return True
            except DBAPIError as error:
                is_ours = code_of(error) == PG_CANCELLED and clock.now() >= deadline
                if not is_ours and code_of(error) != PG_LOCK_TIMEOUT:
                    raise
        return False

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Raise the fence in a separate statement, which reads the clock while the row is ours."""
        return int(connection.execute(PG_RAISE_FENCE, {"name": name}).scalar_one())


def _present(connection: Connection, names: Sequence[str]) -> set[str]:
    return set(connection.execute(PRESENT, {"names": names}).scalars())


def _locked_within(connection: Connection, name: str, seconds: float) -> bool:
    """Lock the row; return False if another transaction inserted it and has just ended, so that it is lockable now."""
    limit = NO_TIMEOUT if seconds > PG_SECONDS_MAX else str(ceil(seconds * 1000))
    with connection.begin_nested(), _timeouts(connection, lock=limit, statement=limit):
        return (
            connection.execute(LOCK, {"name": name}).first() is not None
            or connection.execute(PG_INSERT, {"name": name}).rowcount == 1
        )


def _inserted_at_once(connection: Connection, name: str) -> bool:
    """Insert a row, which no other sees or locks before our commit; give up if another transaction is inserting it."""
    try:
        with connection.begin_nested(), _timeouts(connection, lock="1", statement=None):
            return connection.execute(PG_INSERT, {"name": name}).rowcount == 1
    except DBAPIError as error:
        if code_of(error) != PG_LOCK_TIMEOUT:
            raise
        return False


@contextmanager
def _timeouts(connection: Connection, *, lock: str, statement: str | None) -> Iterator[None]:
    """Set the time-outs (milliseconds) for the body; if it fails, its savepoint resets them."""
    before = connection.execute(SET_TIMEOUTS, {"lock": lock, "statement": statement}).one()
    yield
    connection.execute(SET_TIMEOUTS, {"lock": before[0], "statement": before[1]})


MYSQL_LOCK_TIMEOUT: Final = 1205
MYSQL_NOT_AT_ONCE: Final = 3572
STATEMENT_TIMEOUTS: Final = frozenset({1969, 3024})
"""Error numbers of MariaDB and MySQL."""
MYSQL_SECONDS_MAX: Final = 1_000_000.0
"""Maximum wait of one statement; a longer wait takes several."""
BESIDE_SECONDS: Final = 1.0
"""Seconds that the insert of a row may take during a try; it waits only if another client has locked the gap."""
BESIDE_SECONDS_MIN: Final = 0.1
"""Minimum seconds for writing a row to disk."""
KNOWN_MAX: Final = 100_000

LOCK_NOWAIT: Final = text(f"{SELECT} NOWAIT")
MYSQL_LOCK_FREE: Final = text(f"{SELECT} SKIP LOCKED")
# Literals, since prepared statements take no parameter there.
LOCK_MARIADB: Final = text(  # InnoDB's own time-out, in whole seconds, must not come first: it may end the transaction
    f"SET STATEMENT max_statement_time=:seconds, innodb_lock_wait_timeout=:whole_seconds FOR {SELECT}"
).bindparams(
    bindparam("seconds", type_=Float(), literal_execute=True),
    bindparam("whole_seconds", type_=Integer(), literal_execute=True),
)
LOCK_MYSQL: Final = text(SELECT.replace("SELECT", "SELECT /*+ MAX_EXECUTION_TIME(:milliseconds) */", 1)).bindparams(
    bindparam("milliseconds", type_=Integer(), literal_execute=True)
)
MYSQL_INSERT: Final = text("INSERT IGNORE INTO segmented_locks (name) VALUES (:name)")
MYSQL_RAISE_FENCE: Final = text(
    "UPDATE segmented_locks "
    "SET fence = GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) "
    "WHERE name = :name"
)
MYSQL_FENCE: Final = text("SELECT fence FROM segmented_locks WHERE name = :name FOR UPDATE")
ROLLS_BACK: Final = text("SELECT @@innodb_rollback_on_timeout")


@dataclass(slots=True)
class _Seen:
    """The facts that this process has learned about one engine's database."""

    rolls_back: bool | None = None
    """Whether a lock's time-out ends the whole transaction."""
    names: set[bytes] = field(default_factory=set)
    """Committed rows that this process has seen; they stay."""


class MySqlRows:
    """The rows of the lock table in MariaDB and MySQL (InnoDB). Only MariaDB is tested.

    It avoids four traps of their default isolation, REPEATABLE READ:

    1. a locking read of a missing row locks the gap where it would be against inserts by others, so two transactions
       that read and then insert deadlock. Rows are therefore inserted outside the caller's transaction, in a separate
       one on another connection, the first time this process uses a name; after that, reads always find the row;
    2. `SKIP LOCKED` locks the gap behind each row that it skips, until the transaction ends. A try uses `NOWAIT`;
    3. a plain SELECT fixes the snapshot of the whole transaction. We send none before the row is locked, so that a
       caller that begins with the lock sees what the last holder committed;
    4. with `innodb_rollback_on_timeout`, a lock's time-out silently rolls the whole transaction back, and MariaDB
       counts a refused `NOWAIT` as one. A time-out of the statement (`max_statement_time`, `MAX_EXECUTION_TIME`) does
       not, has millisecond precision, and belongs to the one statement.
    """

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Engine, _Seen] = WeakKeyDictionary()

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Do nothing: CREATE TABLE IF NOT EXISTS may run concurrently."""

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows only: inserting an existing row would wait for its holder."""
        wanted = {name.encode() for name in names}
        found = set(connection.execute(PRESENT, {"names": sorted(wanted)}).scalars()) if wanted else set()
        for name in sorted(wanted - found):
            connection.execute(MYSQL_INSERT, {"name": name})

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock the first free row, with one statement for each row tried."""
        seen = self._make_sure(connection, names, BESIDE_SECONDS)
        if seen is None:
            return None
        statement = MYSQL_LOCK_FREE if seen.rolls_back else LOCK_NOWAIT
        return next((name for name in names if self._locked_at_once(connection, name, statement, seen)), None)

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """Wait in InnoDB's queue."""
        while (seconds := min(deadline - clock.now(), MYSQL_SECONDS_MAX)) > 0:
            seen = self._make_sure(connection, [name], seconds)
            if seen is None:
                continue
            try:
                found = _wait(connection, name, seconds)
            except DBAPIError as error:
                if code_of(error) == MYSQL_LOCK_TIMEOUT and seen.rolls_back:
                    roll_back(connection)
                    what = f"lock {name!r}"
                    raise TransactionConflict(what, said(error)) from error
                if code_of(error) not in {MYSQL_LOCK_TIMEOUT, *STATEMENT_TIMEOUTS}:
                    raise
            else:
                _check(found, name, seen)
                return True
        return False

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Raise the fence in a separate statement, which reads the clock while the row is ours; then read it."""
        given = {"name": name.encode()}
        connection.execute(MYSQL_RAISE_FENCE, given)
        return int(connection.execute(MYSQL_FENCE, given).scalar_one())

    def _locked_at_once(self, connection: Connection, name: str, statement: TextClause, seen: _Seen) -> bool:
        try:
            found = connection.execute(statement, {"name": name.encode()}).first()
        except DBAPIError as error:
            if code_of(error) not in {MYSQL_LOCK_TIMEOUT, MYSQL_NOT_AT_ONCE}:
                raise
            return False
        if statement is MYSQL_LOCK_FREE:
            return found is not None
        _check(found, name, seen)
        return True

    def _make_sure(self, connection: Connection, names: Sequence[str], seconds: float) -> _Seen | None:
        """Make sure that the rows exist; return None if an insert had to wait for too long."""
        engine = connection.engine
        seen = self._seen.setdefault(engine, _Seen())
        unknown = [name for name in names if name.encode() not in seen.names]
        if not unknown and seen.rolls_back is not None:
            return seen
        try:
            with _beside(engine, seconds) as other:
                seen.rolls_back = bool(other.execute(ROLLS_BACK).scalar_one())
                self.insert_missing(other, unknown)
        except DBAPIError as error:
            if code_of(error) not in {MYSQL_LOCK_TIMEOUT, *STATEMENT_TIMEOUTS}:
                raise
            return None
        if len(seen.names) > KNOWN_MAX:
            seen.names.clear()
        seen.names.update(name.encode() for name in unknown)
        return seen


def _check(found: object, name: str, seen: _Seen) -> None:
    if found is None:
        seen.names.discard(name.encode())
        message = f"the row of lock {name!r} was deleted; roll the transaction back, and the next one makes it again"
        raise StoreRefused(message)


def _wait(connection: Connection, name: str, seconds: float) -> object:
    given: dict[str, Any] = {"name": name.encode()}
    if _is_mariadb(connection):
        given |= {"seconds": max(round(seconds, 3), 0.001), "whole_seconds": ceil(seconds) + 1}
        return connection.execute(LOCK_MARIADB, given).first()
    return connection.execute(LOCK_MYSQL, given | {"milliseconds": ceil(seconds * 1000)}).first()


def _is_mariadb(connection: Connection) -> bool:
    return bool(getattr(connection.dialect, "is_mariadb", False))


@contextmanager
def _beside(engine: Engine, seconds: float) -> Iterator[Connection]:
    """Open a transaction on a connection outside the pool, which may have none left, and close both."""
    other = Engine(engine.pool.recreate(), engine.dialect, engine.url, hide_parameters=True)
    try:
        with other.begin() as connection:
            connection.execute(text(f"SET SESSION innodb_lock_wait_timeout = {ceil(seconds)}"))
            if _is_mariadb(connection):
                connection.execute(text(f"SET SESSION max_statement_time = {max(seconds, BESIDE_SECONDS_MIN):.3f}"))
            yield connection
    finally:
        other.dispose()


NAME_BYTES_MAX: Final = 1_024
"""In UTF-8: the size that fits into one index entry in every database."""
CREATE_LOCK: Final = 7_341_652_099
"""An arbitrary number for the advisory lock that no other program is likely to use."""
FILLFACTOR: Final = 50
"""Percent of a page filled at first: the rest is for new versions of rows, which change with every acquire."""
PAGE_SIZE: Final = 1_000
lock_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""
locks = Table(
    TABLE_NAME,
    lock_metadata,
    # Compared byte by byte: no collation may treat two names as equal, by case or by a trailing blank.
    Column(
        "name",
        String(NAME_BYTES_MAX, collation="C").with_variant(VARBINARY(NAME_BYTES_MAX), "mysql", "mariadb"),
        primary_key=True,
    ),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
_FILL: Final[Any] = DDL(f"ALTER TABLE {TABLE_NAME} SET (fillfactor = {FILLFACTOR})")  # type: ignore[no-untyped-call]  # it has no types
FILL: Final = _FILL.execute_if(dialect="postgresql")
event.listen(locks, "after_create", FILL)


def checked_row_name(name: str) -> str:
    """Return the name. Raises InvalidInput if it is invalid or too long for an index."""
    name = checked_name(name, "a row lock")
    length = len(name.encode())
    if length > NAME_BYTES_MAX:
        raise InvalidInput(f"the name of a row lock has {length} bytes in UTF-8; the maximum is {NAME_BYTES_MAX}")
    return name


async def async_create_lock_table(engine: AsyncEngine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist.

    It may run repeatedly and concurrently. The first acquire of a name inserts its row if it is missing; a row inserted
    here saves it that work. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"):  # asyncio only
        async with engine.connect() as connection:
            await connection.run_sync(_create, wanted)
    # threads: with translated("the table of the row locks"), engine.connect() as connection:
    # threads:     _create(connection, wanted)


def _create(connection: Connection, names: list[str]) -> None:
    rows = rows_of(connection)
    connection.execution_options(isolation_level="READ COMMITTED")
    with connection.begin():
        rows.begin_creating(connection, CREATE_LOCK)
        if not connection.dialect.has_table(connection, TABLE_NAME):
            connection.execute(CreateTable(locks, if_not_exists=True))
            FILL(locks, connection)
    for first in range(0, len(names), PAGE_SIZE):
        with connection.begin():
            rows.insert_missing(connection, names[first : first + PAGE_SIZE])


class Rows(Protocol):
    """The rows of the lock table, in the SQL of one kind of database."""

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Wait for other clients that create the table, if two at once would fail."""

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows of these names; `connection` is in a separate transaction."""

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock the row of one of these names that is not locked, without waiting, and return the name."""

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """After a failed try, wait in the database until the row is ours (True) or the deadline passes."""

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Return the next fencing token of a row that we have locked: max(last + 1, the database's microseconds)."""


ROWS: Final[dict[str, Rows]] = {"postgresql": PostgresRows(), "mysql": MySqlRows(), "mariadb": MySqlRows()}


def rows_of(connection: Connection) -> Rows:
    """Return the access object for this connection's database. Raises InvalidInput if it has no row locks."""
    found = ROWS.get(connection.dialect.name)
    if found is None:
        raise InvalidInput(f"row locks need PostgreSQL, MariaDB or MySQL; {connection.dialect.name} cannot lock a row")
    return found


CLOCK: Final[Clock] = SystemClock()
NAMES_MAX: Final = 1_000
"""Maximum number of names that one call may choose from."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A name that the transaction holds until it ends.

    It has neither `release` nor `renew` and is not a context manager: only a commit or a rollback ends it, because if
    the row were free before the commit, the next holder would not see the uncommitted changes.
    """

    name: str
    fencing_token: int
    """Higher than the token of every holder that committed; durable only once this transaction commits."""


class AsyncSqlRowLock(Hinted):
    """A lock by name for the rest of a transaction, for asyncio: PostgreSQL, MariaDB, MySQL.

    The transaction is the holder: a repeat in it succeeds at once, with a higher token. The connection must be in a
    transaction and not in autocommit. The table comes from `create_lock_table`. With asyncio, SQLAlchemy closes the
    connection of a cancelled acquire, which ends the transaction and all its locks.
    """

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        """Create a lock `name` in the transaction begun on `connection`. Raises InvalidInput for an invalid name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, on {self._connection.dialect.name})"

    async def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: forever; 0: one try) and hold the name.

        Raises AcquireTimeout, which leaves the transaction unchanged; TransactionConflict for a deadlock, after which
        the transaction is rolled back; StoreUnavailable if the connection is lost; StoreRefused; and InvalidInput for
        a connection without a transaction.
        """
        # threads: return _acquire(self._connection, self.name, checked_timeout(timeout))
        return await self._connection.run_sync(_acquire, self.name, checked_timeout(timeout))  # asyncio only

    async def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now; otherwise return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        # threads: return _try_acquire(self._connection, [self.name])
        return await self._connection.run_sync(_try_acquire, [self.name])  # asyncio only

    @staticmethod
    async def try_acquire_any(connection: AsyncConnection, names: Iterable[str]) -> HeldRow | None:
        """Hold any one of these names (up to 1,000) that is free now, or return None.

        PostgreSQL skips locked rows in one statement; MariaDB and MySQL try name by name. Raises as `acquire`.
        """
        # threads: return _try_acquire(connection, _checked_names(names))
        return await connection.run_sync(_try_acquire, _checked_names(names))  # asyncio only


# --- SQLAlchemy runs these over an asyncio connection, too ---


def _acquire(connection: Connection, name: str, timeout: float | None) -> HeldRow:
    deadline = CLOCK.now() + (inf if timeout is None else timeout)
    held = _try_acquire(connection, [name])
    if held is None and timeout != 0:
        with translated(f"lock {name!r}", connection):
            rows = rows_of(connection)
            if rows.wait_for(connection, name, deadline=deadline, clock=CLOCK):
                held = HeldRow(name, rows.raise_fence(connection, name))
    if held is None:
        raise AcquireTimeout(name, timeout or 0.0)
    return held


def _try_acquire(connection: Connection, names: Sequence[str]) -> HeldRow | None:
    with translated(f"lock {' or '.join(map(repr, names[:3]))}", connection):
        rows = rows_of(connection)
        _require_transaction(connection)
        found = rows.try_lock(connection, names)
        return None if found is None else HeldRow(found, rows.raise_fence(connection, found))


def _checked_names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise InvalidInput(f"several names are a list, not the text {names!r}")
    checked = list(dict.fromkeys(checked_row_name(name) for name in names))
    if not checked:
        raise InvalidInput("the list of names is empty")
    if len(checked) > NAMES_MAX:
        raise InvalidInput(f"one of {len(checked):,} names cannot be locked: the maximum is {NAMES_MAX:,}")
    return checked


def _require_transaction(connection: Connection) -> None:
    """Raise InvalidInput for a connection on which the lock would end with the statement that takes it."""
    if not connection.in_transaction():
        raise InvalidInput("a row lock lasts as long as a transaction, and this connection has not begun one")
    if is_in_autocommit(connection):
        raise InvalidInput(
            "a row lock lasts as long as a transaction, and this connection is in autocommit; "
            'use connection.execution_options(isolation_level="READ COMMITTED") or another engine'
        )


# --- For threads: written by `make sync` from the classes above. ---


def create_lock_table(engine: Engine, *, names: Iterable[str] = ()) -> None:
    """Create the table `segmented_locks` and the rows of `names`, if they do not exist.

    It may run repeatedly and concurrently. The first acquire of a name inserts its row if it is missing; a row inserted
    here saves it that work. Raises InvalidInput for a database that has no row locks, and StoreError.
    """
    wanted = [checked_row_name(name) for name in names]
    with translated("the table of the row locks"), engine.connect() as connection:
        _create(connection, wanted)


class SqlRowLock(Hinted):
    """A lock by name for the rest of a transaction, for threads: PostgreSQL, MariaDB, MySQL.

    The transaction is the holder: a repeat in it succeeds at once, with a higher token. The connection must be in a
    transaction and not in autocommit. The table comes from `create_lock_table`. With asyncio, SQLAlchemy closes the
    connection of a cancelled acquire, which ends the transaction and all its locks.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        """Create a lock `name` in the transaction begun on `connection`. Raises InvalidInput for an invalid name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, on {self._connection.dialect.name})"

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: forever; 0: one try) and hold the name.

        Raises AcquireTimeout, which leaves the transaction unchanged; TransactionConflict for a deadlock, after which
        the transaction is rolled back; StoreUnavailable if the connection is lost; StoreRefused; and InvalidInput for
        a connection without a transaction.
        """
        return _acquire(self._connection, self.name, checked_timeout(timeout))

    def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now; otherwise return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        return _try_acquire(self._connection, [self.name])

    @staticmethod
    def try_acquire_any(connection: Connection, names: Iterable[str]) -> HeldRow | None:
        """Hold any one of these names (up to 1,000) that is free now, or return None.

        PostgreSQL skips locked rows in one statement; MariaDB and MySQL try name by name. Raises as `acquire`.
        """
        return _try_acquire(connection, _checked_names(names))
