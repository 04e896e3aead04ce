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
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from segmented.clock import Clock, Duration, SystemClock
from segmented.errors import AcquireTimeout, InvalidInput
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_timeout
from segmented.locks.hints import Hinted
from segmented.locks.sql_edge import is_in_autocommit, translated
from segmented.locks.sql_table import checked_row_name, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection


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
