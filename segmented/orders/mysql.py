"""MariaDB's and MySQL's statements and connections (InnoDB). Only MariaDB is tested.

They differ from PostgreSQL's in what a confirm has to care for:

1. A failed statement does not end the transaction, and its earlier statements stay. Within a caller's transaction a
   savepoint undoes them (`whole`); the insert of an order that has a row may therefore fail there.
2. Under REPEATABLE READ, the default of a caller's transaction, a plain read shows what was committed before the
   transaction's first read. What others have decided since is seen by locking reads alone (`read_within`, `latest`).
   Our own transactions are READ COMMITTED: no snapshot, and no locks on gaps and on rows that a condition left out.
3. No UPDATE returns rows, and tables are not taken back with a transaction.
4. Text compares by its collation, and without a case and without trailing blanks by default: see `ExactText`.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, event, insert, select
from sqlalchemy.dialects.mysql import pymysql
from sqlalchemy.exc import DBAPIError, IntegrityError

from segmented.errors import DatabaseUnavailable, InvalidInput
from segmented.locks.sql_edge import code_of, roll_back
from segmented.orders.deciding import Standing
from segmented.orders.statements import (
    OF_ORDER,
    OF_SEGMENT,
    SELECT_HAS_ORDER,
    SELECT_SEGMENTS,
    SeveralStatements,
    change_row,
    confirmed_values,
    give_back,
    insert_confirmed,
    lock_segments,
    select_orders,
    take_units,
    void_values,
)
from segmented.orders.tables import orders, segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine, Select
    from sqlalchemy.sql.elements import ClauseElement


DRIVER: Final = "mysql+pymysql"
DUPLICATE: Final = 1062
VERSION_MIN: Final = {"MariaDB": (10, 6), "MySQL": (8, 0, 17)}
CREATE_LOCK: Final = "CONCAT('segmented ', SHA1(DATABASE()))"
"""Name of an advisory lock, which a server has for all of its databases together."""
OPTIONS: Final = frozenset(
    {
        *("charset", "unix_socket", "connect_timeout", "read_timeout", "write_timeout", "password"),
        *("ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "ssl_cipher", "ssl_check_hostname"),
    }
)
"""Options of an address that SQLAlchemy translates for the driver."""
SAVEPOINT: Final = "segmented_whole"


class MySqlStatements(SeveralStatements):
    """SQL texts for pymysql; those within a caller's transaction are for any driver."""

    begin = "BEGIN"
    undoes_tables = False
    these_segments = SELECT_SEGMENTS.where(
        segments.c.segment.in_(bindparam("numbers", expanding=True))
    ).with_for_update()
    these_orders = select_orders(orders.c.order_id.in_(bindparam("order_ids", expanding=True)))

    def __init__(self) -> None:
        """Build the texts."""
        self._take_fenced = _text(take_units(fenced=True))
        self._take = _text(take_units(fenced=False))
        self._sequence = _text(_SEQUENCE)
        self._insert = _text(insert_confirmed())
        self._change = _text(change_row())
        self._has_order = _text(SELECT_HAS_ORDER)

    @contextmanager
    def creating(self, connection: Connection) -> Iterator[None]:
        """Hold an advisory lock, since each CREATE TABLE is a transaction of its own."""
        wait = f"SELECT GET_LOCK({CREATE_LOCK}, @@innodb_lock_wait_timeout)"
        if connection.exec_driver_sql(wait).scalar_one() != 1:
            raise DatabaseUnavailable("another process was creating or migrating the tables for too long")
        try:
            yield
        finally:
            if not connection.invalidated:
                connection.exec_driver_sql(f"DO RELEASE_LOCK({CREATE_LOCK})")

    def confirm(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order. An order that has a row raises IntegrityError: roll back."""
        text = self._take if values["given_fence"] is None else self._take_fenced
        if connection.exec_driver_sql(text, values).rowcount == 0:
            return None
        sequence: int = connection.exec_driver_sql(self._sequence, values).scalar_one()
        connection.exec_driver_sql(self._insert, values)
        return sequence

    def confirm_within(self, connection: Connection, values: dict[str, Any]) -> int | None:
        """Take the units and insert the order, or give them back if the order has a row."""
        if connection.execute(_TAKE_WITHIN, values).rowcount == 0:
            return None
        sequence: int = connection.execute(_SEQUENCE, values).scalar_one()
        if _is_inserted(connection, confirmed_values(), values):
            return sequence
        connection.execute(_GIVE_BACK, values)
        return None

    def read_within(self, connection: Connection, values: dict[str, Any]) -> Standing:
        """Read the order, and if the transaction's snapshot lacks it, everything under the locks of all segments."""
        order = connection.execute(_ORDER, values).one_or_none()
        rows = lock_segments(connection, values["given_sku"]) if order is None else ()
        if order is None:  # it cannot be confirmed any more, or the read waits for who does
            order = connection.execute(self.latest(_ORDER), values).one_or_none()
        row = next((row for row in rows if row.segment == values["given_segment"]), None)
        return Standing.of(order, row, total=sum(each.quota for each in rows), sold=sum(each.sold for each in rows))

    def latest(self, read: Select[Any]) -> Select[Any]:
        """Return the read as a locking one."""
        return read.with_for_update(read=True)

    @contextmanager
    def whole(self, connection: Connection) -> Iterator[None]:
        """Undo the block's statements if one of them fails; if all of the transaction is gone, end it."""
        connection.exec_driver_sql(f"SAVEPOINT {SAVEPOINT}")
        try:
            yield
        except BaseException:
            try:
                connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
            except DBAPIError:  # a deadlock, or innodb_rollback_on_timeout: the caller's own statements are gone, too
                roll_back(connection)
            raise

    def void(self, connection: Connection, values: dict[str, Any]) -> bool:
        """Insert the void unless the order has a row; waits for a concurrent confirm of the same order."""
        return _is_inserted(connection, void_values(), values)


def _is_inserted(connection: Connection, columns: dict[str, Any], values: dict[str, Any]) -> bool:
    """Insert an order; False, with nothing changed, if it has a row.

    The number of rows of INSERT ... ON DUPLICATE KEY UPDATE depends on a flag of the caller's connection, and INSERT
    IGNORE also ignores other errors.
    """
    try:
        connection.execute(insert(orders).values(columns), values)
    except IntegrityError as error:
        if code_of(error) != DUPLICATE:
            raise
        return False
    return True


_TAKE_WITHIN: Final = take_units(fenced=False)
_GIVE_BACK: Final = give_back()
_SEQUENCE: Final = select(segments.c.sequence).where(*OF_SEGMENT)
_ORDER: Final = select(orders.c.state, orders.c.quantity, orders.c.customer_id).where(*OF_ORDER)


def _text(statement: ClauseElement) -> str:
    return str(statement.compile(dialect=pymysql.dialect(paramstyle="pyformat")))


# --- connections ---


def prepare(engine: Engine, where: str, *, statement: float, lock: float, reply: float) -> None:
    """Set every connection's deadlines, in seconds, READ COMMITTED and strict values, and check each server."""
    from pymysql.constants import CLIENT  # noqa: PLC0415  # it is optional

    defaults: dict[str, Any] = {
        "connect_timeout": max(1, ceil(lock)),
        "read_timeout": reply,
        "write_timeout": reply,
    }

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, _arguments: object, named: dict[str, Any]) -> None:
        named.update(defaults | named, charset="utf8mb4")
        named["client_flag"] &= ~CLIENT.FOUND_ROWS  # SQLAlchemy sets it; a repeated ledger entry would count as new

    @event.listens_for(engine, "connect")
    def _guard(connection: Any, _record: object) -> None:  # noqa: ANN401  # pymysql is optional
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT VERSION(), @@global.innodb_flush_log_at_trx_commit, @@global.read_only, "
                "@@global.log_bin, @@session.binlog_format"
            )
            version, flushed, read_only, is_logged, log_format = cursor.fetchone()
            kind = "MariaDB" if "MariaDB" in version else "MySQL"
            _check(where, kind, version, flushed=flushed, read_only=read_only)
            if is_logged and log_format == "STATEMENT":
                message = f"the order database {where} has binlog_format=STATEMENT, which would copy other orders to "
                raise InvalidInput(message + "replicas than were sold; set it to ROW or MIXED")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            named = _settings(kind, statement=statement, lock=max(1, ceil(lock)), reply=ceil(reply))
            cursor.execute("SET SESSION " + ", ".join(f"{name} = {value}" for name, value in named.items()))


def _settings(kind: str, *, statement: float, lock: int, reply: int) -> dict[str, object]:
    common: dict[str, object] = {
        "innodb_lock_wait_timeout": lock,
        "lock_wait_timeout": lock,
        "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        "default_storage_engine": "InnoDB",
    }
    if kind == "MariaDB":
        return common | {"max_statement_time": f"{statement:.3f}", "idle_transaction_timeout": reply}
    # MySQL has no bound for statements that write, nor for idle transactions alone: those of locks and replies hold.
    return common | {"max_execution_time": f"{statement * 1_000:.0f}", "wait_timeout": reply}


def _check(where: str, kind: str, version: str, *, flushed: int, read_only: int) -> None:
    """Raise InvalidInput for a server that could lose orders, or take none."""
    words = version.removeprefix("5.5.5-").partition("-")[0].split(".")  # which MariaDB puts before, for old replicas
    found, least = tuple(int(word) for word in words if word.isdecimal()), VERSION_MIN[kind]
    if found < least:
        message = f"the order database {where} is {kind} {version}; {'.'.join(map(str, least))} or newer is needed"
        raise InvalidInput(message)
    if flushed != 1:
        raise InvalidInput(
            f"the order database {where} has innodb_flush_log_at_trx_commit={flushed} and would lose sold orders in a "
            "power cut; set it to 1"
        )
    if read_only:
        message = f"the order database {where} is read-only, as a replica is, and takes no orders; name the primary"
        raise InvalidInput(message)
