"""`SqlRowLock`: SELECT ... FOR UPDATE on one row of a small table, for as long as the caller's transaction lasts.

The algorithm is the database's own row lock, reached through the primary key; nothing else in the table is locked. A
failed try leaves the transaction as it was. The fencing token is `max(last + 1, the database's microseconds)`, as that
of `Lock`, after Kleppmann ("How to do distributed locking", 2016).

Guarantees: at most one open transaction holds a name, by the database's word. There is no lease to outlive and no clock
to trust: the lock ends with the transaction, by commit, by rollback, or because the connection was lost. A new holder
sees everything that the holders before it committed, if the acquire is the first statement of its transaction. Safe
behind a proxy that pools by transaction (PgBouncer), because nothing of it belongs to the session.

Not guaranteed:

- that a holder whose connection is lost knows it: its next statement says so, and its commit fails, but the locks are
  free from the moment the database noticed. What it does outside the database in between is for the fencing token;
- that a token is durable before the commit. Tokens of committed holders only grow, whatever happens. A token that was
  rolled back, or lost with its connection, is not written down: a later one is higher than it because the database's
  clock has gone on, unless that clock was set back, or a failover went to a server whose clock is behind;
- the order in which those who wait are served;
- the lock after a ROLLBACK TO a savepoint that is older than the acquire: it may free the row, and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from segmented.clock import SystemClock
from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.durations import DEFAULT_WAIT, checked_timeout
from segmented.locks.sql_edge import translated
from segmented.locks.sql_table import checked_row_name, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from segmented.clock import Clock

CLOCK: Final[Clock] = SystemClock()
NAMES_MAX: Final = 1_000
"""That one call may choose from."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A name that the transaction holds until it ends.

    It has neither `release` nor `renew`, and is no context manager: the only ways to end it are to commit or to roll
    back, because a row that was free before the commit would show the next holder what is not yet true.
    """

    name: str
    fencing_token: int
    """Higher than that of every holder that committed; durable only once this transaction commits."""


class SqlRowLock:
    """A lock by name for the rest of a transaction, for threads: PostgreSQL, MariaDB, MySQL.

    The transaction is the holder: a repeat in it succeeds at once, with a higher token. The connection must be in a
    transaction and not in autocommit. The table comes from `create_lock_table`.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        """Lock `name` in the transaction that `connection` has begun. Raises InvalidInput for what cannot be a name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        """Name the lock and the kind of database."""
        return f"SqlRowLock({self.name!r}, on {self._connection.dialect.name})"

    def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: for ever; 0: one try) and hold the name.

        Raises AcquireTimeout, which leaves the transaction as it was; TransactionConflict for a deadlock, after which
        the transaction is rolled back; StoreUnavailable when the connection is lost; StoreRefused; and InvalidInput for
        a connection without a transaction.
        """
        return _acquire(self._connection, self.name, checked_timeout(timeout))

    def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now, else return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        return _try_acquire(self._connection, [self.name])

    @staticmethod
    def try_acquire_any(connection: Connection, names: Iterable[str]) -> HeldRow | None:
        """Hold one of these names (up to 1,000) that is free now, or return None; which one is not promised.

        PostgreSQL skips what is locked in one statement, MariaDB and MySQL ask name by name. Raises as `acquire`.
        """
        return _try_acquire(connection, _checked_names(names))


class AsyncSqlRowLock:
    """A lock by name for the rest of a transaction, for asyncio; otherwise as `SqlRowLock`.

    An acquire that is cancelled loses the connection, by SQLAlchemy's rule, and so the transaction with all its locks.
    """

    def __init__(self, connection: AsyncConnection, name: str) -> None:
        """Lock `name` in the transaction that `connection` has begun. Raises InvalidInput for what cannot be a name."""
        self.name = checked_row_name(name)
        self._connection = connection

    def __repr__(self) -> str:
        """Name the lock and the kind of database."""
        return f"AsyncSqlRowLock({self.name!r}, on {self._connection.dialect.name})"

    async def acquire(self, *, timeout: float | None = DEFAULT_WAIT) -> HeldRow:
        """Wait up to `timeout` seconds (default: 60; None: for ever; 0: one try) and hold the name.

        Raises as `SqlRowLock.acquire`.
        """
        return await self._connection.run_sync(_acquire, self.name, checked_timeout(timeout))

    async def try_acquire(self) -> HeldRow | None:
        """Hold the name if it is free now, else return None and leave the transaction unchanged.

        Raises as `acquire`.
        """
        return await self._connection.run_sync(_try_acquire, [self.name])

    @staticmethod
    async def try_acquire_any(connection: AsyncConnection, names: Iterable[str]) -> HeldRow | None:
        """Hold one of these names (up to 1,000) that is free now, or return None; which one is not promised.

        Raises as `acquire`.
        """
        return await connection.run_sync(_try_acquire, _checked_names(names))


# --- one body for both colours: SQLAlchemy runs it over an asyncio connection too ---


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
        message = f"several names are a list, not the text {names!r}"
        raise InvalidInput(message)
    checked = list(dict.fromkeys(checked_row_name(name) for name in names))
    if not checked:
        message = "one of no names cannot be locked"
        raise InvalidInput(message)
    if len(checked) > NAMES_MAX:
        message = f"one of {len(checked):,} names cannot be locked: {NAMES_MAX:,} are the most"
        raise InvalidInput(message)
    return checked


def _require_transaction(connection: Connection) -> None:
    """Refuse a connection on which the lock would end with the statement that takes it."""
    if not connection.in_transaction():
        message = "a row lock lasts as long as a transaction, and this connection has not begun one"
        raise InvalidInput(message)
    driver_connection = connection.connection.dbapi_connection
    if driver_connection is None or connection.dialect.detect_autocommit_setting(driver_connection):
        message = (
            "a row lock lasts as long as a transaction, and this connection is in autocommit; "
            'use connection.execution_options(isolation_level="READ COMMITTED") or another engine'
        )
        raise InvalidInput(message)
