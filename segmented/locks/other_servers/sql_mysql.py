"""Row locks in the SQL of MariaDB and MySQL (InnoDB). Only MariaDB is tested: see docs/how-to/lock-on-other-servers.md.

This module avoids four traps of their default isolation, REPEATABLE READ:

1. a locking read of a missing row locks the gap where it would be against inserts by others, so two transactions that
   read and then insert deadlock. Rows are therefore inserted outside the caller's transaction, in a separate one on
   another connection, the first time this process uses a name; after that, reads always find the row;
2. `SKIP LOCKED` locks the gap behind each row that it skips, until the transaction ends. A try uses `NOWAIT` instead;
3. a plain SELECT fixes the snapshot of the whole transaction. We send none before the row is locked, so that a caller
   that begins with the lock sees what the last holder committed;
4. with `innodb_rollback_on_timeout`, a lock's time-out silently rolls the whole transaction back, and MariaDB counts a
   refused `NOWAIT` as one. A time-out of the statement (`max_statement_time`, `MAX_EXECUTION_TIME`) does not, has
   millisecond precision, and belongs to the one statement.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import BindParameter, Connection, Engine, Float, Integer, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError

from segmented.errors import StoreRefused, TransactionConflict
from segmented.locks.sql_edge import code_of, roll_back, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.clock import Clock

LOCK_TIMEOUT: Final = 1205
NOT_AT_ONCE: Final = 3572
STATEMENT_TIMEOUTS: Final = frozenset({1969, 3024})
"""Error numbers of MariaDB and MySQL."""
SECONDS_MAX: Final = 1_000_000.0
"""Maximum wait of one statement; a longer wait takes several."""
BESIDE_SECONDS: Final = 1.0
"""Seconds that the insert of a row may take during a try; it waits only if another client has locked the gap."""
BESIDE_SECONDS_MIN: Final = 0.1
"""Minimum seconds for writing a row to disk."""
KNOWN_MAX: Final = 100_000

NAMES: Final[BindParameter[Any]] = bindparam("names", expanding=True)
SELECT: Final = "SELECT name FROM segmented_locks WHERE name = :name FOR UPDATE"
LOCK_NOWAIT: Final = text(f"{SELECT} NOWAIT")
LOCK_FREE: Final = text(f"{SELECT} SKIP LOCKED")
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
PRESENT: Final = text("SELECT name FROM segmented_locks WHERE name IN :names").bindparams(NAMES)
INSERT: Final = text("INSERT IGNORE INTO segmented_locks (name) VALUES (:name)")
RAISE_FENCE: Final = text(
    "UPDATE segmented_locks "
    "SET fence = GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) "
    "WHERE name = :name"
)
FENCE: Final = text("SELECT fence FROM segmented_locks WHERE name = :name FOR UPDATE")
ROLLS_BACK: Final = text("SELECT @@innodb_rollback_on_timeout")


@dataclass(slots=True)
class _Seen:
    """The facts that this process has learned about one engine's database."""

    rolls_back: bool | None = None
    """Whether a lock's time-out ends the whole transaction."""
    names: set[bytes] = field(default_factory=set)
    """Committed rows that this process has seen; they stay."""


class MySqlRows:
    """The rows of the lock table in MariaDB and MySQL."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Engine, _Seen] = WeakKeyDictionary()

    def begin_creating(self, connection: Connection, lock: int) -> None:
        """Do nothing: CREATE TABLE IF NOT EXISTS may run concurrently."""

    def insert_missing(self, connection: Connection, names: Sequence[str]) -> None:
        """Insert the missing rows only: inserting an existing row would wait for its holder."""
        wanted = {name.encode() for name in names}
        found = set(connection.execute(PRESENT, {"names": sorted(wanted)}).scalars()) if wanted else set()
        for name in sorted(wanted - found):
            connection.execute(INSERT, {"name": name})

    def try_lock(self, connection: Connection, names: Sequence[str]) -> str | None:
        """Lock the first free row, with one statement for each row tried."""
        seen = self._make_sure(connection, names, BESIDE_SECONDS)
        if seen is None:
            return None
        statement = LOCK_FREE if seen.rolls_back else LOCK_NOWAIT
        return next((name for name in names if self._locked_at_once(connection, name, statement, seen)), None)

    def wait_for(self, connection: Connection, name: str, *, deadline: float, clock: Clock) -> bool:
        """Wait in InnoDB's queue."""
        while (seconds := min(deadline - clock.now(), SECONDS_MAX)) > 0:
            seen = self._make_sure(connection, [name], seconds)
            if seen is None:
                continue
            try:
                found = _wait(connection, name, seconds)
            except DBAPIError as error:
                if code_of(error) == LOCK_TIMEOUT and seen.rolls_back:
                    roll_back(connection)
                    what = f"lock {name!r}"
                    raise TransactionConflict(what, said(error)) from error
                if code_of(error) not in {LOCK_TIMEOUT, *STATEMENT_TIMEOUTS}:
                    raise
            else:
                _check(found, name, seen)
                return True
        return False

    def raise_fence(self, connection: Connection, name: str) -> int:
        """Raise the fence in a separate statement, which reads the clock while the row is ours; then read it."""
        given = {"name": name.encode()}
        connection.execute(RAISE_FENCE, given)
        return int(connection.execute(FENCE, given).scalar_one())

    def _locked_at_once(self, connection: Connection, name: str, statement: TextClause, seen: _Seen) -> bool:
        try:
            found = connection.execute(statement, {"name": name.encode()}).first()
        except DBAPIError as error:
            if code_of(error) not in {LOCK_TIMEOUT, NOT_AT_ONCE}:
                raise
            return False
        if statement is LOCK_FREE:
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
            if code_of(error) not in {LOCK_TIMEOUT, *STATEMENT_TIMEOUTS}:
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
