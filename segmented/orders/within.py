"""Confirm an order within the caller's own transaction: the caller's rows and the gate's are one commit.

It takes three steps, so that asyncio can run the middle one on its own connection: read the pool's record of the order;
take the units and insert the order in the transaction, or find how it was decided; tell the pool after the commit.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from sqlalchemy import URL, Connection, NullPool, create_engine, select
from sqlalchemy.orm import Session

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderQueued, OrderUnknown, PoolDiverged, StoreRefused
from segmented.locks.sql_edge import BROKEN, is_in_autocommit, translated
from segmented.models import Order, checked_id
from segmented.orders import answers
from segmented.orders.database import lower_within
from segmented.orders.deciding import Claim, claim_of_record
from segmented.orders.forgetting import settled_by
from segmented.orders.sale import REBUILDS_MAX, gated, record_of, tell_pool
from segmented.orders.statements import OF_ORDER
from segmented.orders.tables import known_revision, orders, sales

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from segmented.models import OrderRecord, Settled
    from segmented.models.orders import SoldState
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool


CLAIMED: Final = frozenset({"reserved", "confirmed"})
"""States of the pool's record for which the database is asked, because it decides."""
TABLES: Final = "segmented_orders by 'segmented orders migrate --database URL'"
SELECT_FATE: Final = select(orders.c.state, orders.c.quantity, orders.c.segment).where(*OF_ORDER)
"""Without times, which each caller's connection converts in its own way."""
_CHECKED: Final[WeakKeyDictionary[object, set[tuple[str, str]]]] = WeakKeyDictionary()
"""Engines and connections whose database was found to be the gate's, by the gate's database and the sku."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An order as the pool has it, before its transaction."""

    order_id: str
    epoch: int
    record: OrderRecord | None
    sale_id: str
    """Identity of the sale, which the transaction's database must have."""

    def claim(self, sku: str) -> Claim | None:
        """Return what the database is asked to confirm; None if the pool does not know the order, or has ended it."""
        record = self.record
        if record is None or record.state not in CLAIMED:
            return None
        return claim_of_record(sku, record, self.epoch)


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of the order in the transaction."""

    state: SoldState
    quantity: int
    replay: bool


def wanted(pool: Pool, gate: OrderDatabase, order_id: str) -> Wanted:
    """Read what the pool has of an order. Raises PoolNotGated, and OrderQueued."""
    pool = gated(pool, gate)
    order_id = checked_id(order_id, "order id")
    epoch = pool.epoch()
    record = record_of(pool, gate, order_id)
    if record is None and pool.store.execute(op.ReadSubmitted(pool.sku, (order_id,)))[0].order is not None:
        raise OrderQueued(order_id)
    return Wanted(order_id, epoch, record, pool.known_state().sale_id)


def decide(
    transaction: Transaction, gate: OrderDatabase, sku: str, asked: Wanted, *, is_stored: bool = False
) -> Outcome | answers.ConfirmAnswer | OrderMismatch:
    """Confirm the order in the transaction, or find how it ended; other answers concern the pool as a whole.

    An order that nobody knows becomes void: whoever reserves it later cannot sell it, since its payment is returned.

    If the transaction has stored the order (`is_stored`) with units that it gave back since, they go back here, too.

    Raises InvalidInput for a transaction that has not begun, or is of another database, StoreRefused for one that is
    aborted, TransactionConflict for one that lost a race, and StoreUnavailable.
    """
    what = f"order {asked.order_id!r} within a transaction"
    given = transaction if isinstance(transaction, Connection) else None
    with ExitStack() as stack, translated(what, given, table=TABLES):
        connection, owner = connected(transaction, stack)
        _check(connection, owner, gate, sku, asked)
        with gate.confirming.statements.whole(connection):
            return _decided(connection, gate, sku, asked, is_stored=is_stored)


def _decided(
    connection: Connection, gate: OrderDatabase, sku: str, asked: Wanted, *, is_stored: bool
) -> Outcome | answers.ConfirmAnswer | OrderMismatch:
    claim, read = asked.claim(sku), SELECT_FATE
    if claim is not None:
        answer = _confirmed(connection, gate, claim, asked)
        if isinstance(answer, answers.Confirmed):
            if is_stored:
                lower_within(connection, sku, asked.order_id, claim.order.quantity, asked.epoch)
            return Outcome("confirmed", claim.order.quantity, answer.replay and not is_stored)
        if not isinstance(answer, answers.Voided | None):
            return answer
        read = gate.confirming.statements.latest(SELECT_FATE)
    values = {"given_sku": sku, "given_order_id": asked.order_id}
    row = connection.execute(read, values).one_or_none()
    if row is None and asked.record is None:
        if gate.confirming.refuse_within(connection, sku, asked.order_id):
            return Outcome("unknown", 0, replay=False)
        row = connection.execute(gate.confirming.statements.latest(SELECT_FATE), values).one_or_none()
    if row is not None:
        state = answers.stored_as(row.state, row.segment)
        if state == "cancelled" and claim is None and asked.record is not None:
            state = asked.record.state
        return Outcome(state, row.quantity, replay=True)
    assert asked.record is not None  # else the order has a row
    return Outcome(asked.record.state, asked.record.quantity, replay=True)


def _confirmed(
    connection: Connection, gate: OrderDatabase, claim: Claim, asked: Wanted
) -> answers.ConfirmAnswer | OrderMismatch | None:
    """Confirm the order; None for a sold one that has fewer units in the database, because some are being returned."""
    try:
        return gate.confirming.confirm_within(connection, claim)
    except OrderMismatch as error:
        return None if asked.record is not None and asked.record.state == "confirmed" else error


def settle(
    pool: Pool, gate: OrderDatabase, asked: Wanted, answer: Outcome | answers.ConfirmAnswer | OrderMismatch
) -> Outcome | None:
    """Return the outcome; None if the order must be read again. Raises what the pool says.

    The transaction has locked the order's segment, and a change of the order waits for that: so a change that it has
    not waited for is in the pool by now.
    """
    if isinstance(answer, Outcome) and (answer.replay or answer.state != "confirmed"):
        return answer
    if isinstance(answer, Outcome | OrderMismatch):
        record, before = record_of(pool.plain, gate, asked.order_id), asked.record
        if record is not None and before is not None and record.quantity < before.quantity:
            return None  # it has given units back since
        if isinstance(answer, OrderMismatch):
            raise answer
        return answer
    pool = pool.plain
    if isinstance(answer, answers.EpochChanged) and pool.epoch(at_least=answer.epoch) != asked.epoch:
        return None
    tell_pool(pool, gate, Order(asked.order_id), answer, epoch=asked.epoch)  # raises
    raise PoolDiverged(pool.sku, asked.order_id, f"unexpected answer {answer}")


def told(pool: Pool, gate: OrderDatabase, asked: Wanted) -> Settled | None:
    """Confirm in the pool an order that the database has stored; None if it has not."""
    pool, record = gated(pool, gate), asked.record
    row = gate.orders(pool.sku, (asked.order_id,)).get(asked.order_id)
    if row is None:
        return None
    ended = settled_by(row)
    if ended.state == "confirmed" and record is not None:
        order = Order(asked.order_id, record.asked)
        with suppress(OrderUnknown):  # the pool has forgotten it since
            return tell_pool(pool, gate, order, answers.Confirmed(replay=True), epoch=row.epoch or pool.epoch())
    return ended


def overtaken(sku: str, order_id: str) -> PoolDiverged:
    """Return the error after too many rebuilds."""
    return PoolDiverged(sku, order_id, f"it was rebuilt {REBUILDS_MAX} times in a row")


def _check(connection: Connection, owner: object, gate: OrderDatabase, sku: str, asked: Wanted) -> None:
    """Raise InvalidInput unless the connection is in a transaction on the gate's database; reads once an owner."""
    if is_in_autocommit(connection):
        raise InvalidInput("within= needs a transaction, and this connection commits each statement by itself")
    checked = _CHECKED.setdefault(owner, set())
    if (gate.where, sku) in checked:
        return
    is_there = known_revision(connection, gate.where) is not None
    sale_id = connection.execute(select(sales.c.sale_id).where(sales.c.sku == sku)).scalar() if is_there else None
    if sale_id is None or sale_id != asked.sale_id:
        raise InvalidInput(
            f"within= is a transaction of another database than {gate.where}, which has the rows of {sku!r}: "
            "begin it on an engine of that one"
        )
    checked.add((gate.where, sku))


# --- the caller's transaction ---
#
# The gate's statements run on a connection of SQLAlchemy. For Django and psycopg this is one around the driver's
# connection that the caller has, which is neither set up nor committed, rolled back or closed here.

POSTGRESQL: Final = "postgresql+psycopg"
SQLITE: Final = "sqlite+pysqlite"
MYSQL: Final = {"MySQLdb": "mysql+mysqldb", "pymysql": "mysql+pymysql"}
"""By the module of the connection that Django has."""
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    POSTGRESQL: {"use_native_hstore": False},  # it would register a type on the caller's connection
}
NEEDS: Final = "within= needs a transaction that has begun: call it inside"


class _Lent:
    """A driver's connection as SQLAlchemy sees it."""

    autocommit = False
    isolation_level = ""

    def __init__(self, driver: Any, cursor: Callable[[], Any]) -> None:  # noqa: ANN401  # of any driver
        self._driver = driver
        self.cursor = cursor

    def _leave(self, *_: object, **__: object) -> None:
        """Leave the caller's connection and transaction unchanged."""

    commit = rollback = close = add_notice_handler = create_function = _leave

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of any driver
        return getattr(self._driver, name)


class _OnLoop:
    """A cursor of asyncio, for a thread beside the loop."""

    def __init__(self, cursor: Any, loop: asyncio.AbstractEventLoop) -> None:  # noqa: ANN401  # of any driver
        self._cursor = cursor
        self._loop = loop

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of any driver
        found = getattr(self._cursor, name)
        if not iscoroutinefunction(found):
            return found
        return lambda *args: asyncio.run_coroutine_threadsafe(found(*args), self._loop).result()


@dataclass(frozen=True, slots=True)
class Borrowed:
    """A transaction of Django or psycopg."""

    owner: object
    """The caller's connection."""
    driver: _Lent
    dialect: URL
    spoil: Callable[[], None]
    """Called after a failure: the transaction must not be committed."""

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Return SQLAlchemy's connection; its end leaves the transaction open."""
        token = _LENT.set(self.driver)
        try:
            with _engine(self.dialect).connect() as connection:
                yield connection
        except BaseException:
            self.spoil()
            raise
        finally:
            _LENT.reset(token)


Transaction: TypeAlias = Session | Connection | Borrowed

_LENT: Final[ContextVar[_Lent]] = ContextVar("segmented_lent")


@cache
def _engine(dialect: URL) -> Engine:
    """Return the engine whose next connection is the one lent; it remembers the name of its first one's database."""
    options = OPTIONS.get(dialect.drivername, {}) | {"poolclass": NullPool, "hide_parameters": True}
    return create_engine(dialect, creator=_LENT.get, **options)


def begun(transaction: Any) -> Transaction:  # noqa: ANN401  # whatever the caller passes
    """Return the caller's transaction. Raises InvalidInput for anything else, and for a connection without one."""
    found = transaction
    if hasattr(found, "registry") and callable(found):  # a scoped session returns the current session
        found = found()
    if isinstance(found, Session | Borrowed):
        return found
    if isinstance(found, Connection):
        if not found.in_transaction():
            raise InvalidInput(f"{NEEDS} `with engine.begin() as connection`")
        return found
    borrowed = _of_django(found) or _of_psycopg(found)
    if borrowed is not None:
        return borrowed
    message = (
        f"within={type(transaction).__name__} is not a Session or Connection of SQLAlchemy, "
        "or a connection of Django or psycopg"
    )
    if hasattr(found, "run_sync") or _is_of("psycopg", "AsyncConnection", found):
        message += ": with asyncio's, use AsyncPool and AsyncGate"
    raise InvalidInput(message)


def begun_beside(transaction: object, loop: asyncio.AbstractEventLoop) -> Borrowed:
    """Return the transaction of psycopg's connection for asyncio, to be used in a thread. Raises InvalidInput."""
    if not _is_of("psycopg", "AsyncConnection", transaction):
        raise InvalidInput(
            f"within={type(transaction).__name__} is not an AsyncSession or AsyncConnection of SQLAlchemy or psycopg"
        )
    from psycopg import AsyncCursor  # noqa: PLC0415  # it is optional, and imported by now
    from psycopg.rows import tuple_row  # noqa: PLC0415  # it is optional, and imported by now

    connection: Any = transaction
    return _lent_by(connection, lambda: _OnLoop(AsyncCursor(connection, row_factory=tuple_row), loop))


def connected(transaction: Transaction, stack: ExitStack) -> tuple[Connection, object]:
    """Return the transaction's connection until the stack's end, and what has one database for all its connections."""
    if isinstance(transaction, Borrowed):
        return stack.enter_context(transaction.connected()), transaction.owner
    connection = transaction.connection() if isinstance(transaction, Session) else transaction
    return connection, connection.engine


def _is_of(module: str, name: str, value: object) -> bool:
    """Return whether a value is of a class of an optional library, without importing it."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _of_psycopg(connection: Any) -> Borrowed | None:  # noqa: ANN401  # whatever the caller passes
    return _lent_by(connection, _cursor_of(connection)) if _is_of("psycopg", "Connection", connection) else None


def _lent_by(connection: Any, cursor: Callable[[], Any]) -> Borrowed:  # noqa: ANN401  # whatever the caller passes
    """Return the transaction of a connection of psycopg, which may have begun with its first statement only."""
    from psycopg.pq import TransactionStatus  # noqa: PLC0415  # it is optional, and imported by now

    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidInput(f"{NEEDS} `with connection.transaction()`")
    return Borrowed(connection, _Lent(connection, cursor), URL.create(POSTGRESQL), lambda: None)


def _cursor_of(connection: Any) -> Callable[[], Any]:  # noqa: ANN401  # whatever the caller passes
    """Return what makes a plain cursor, whatever cursors and rows the caller's connection makes."""
    from psycopg import Cursor  # noqa: PLC0415  # it is optional, and imported by now
    from psycopg.rows import tuple_row  # noqa: PLC0415  # it is optional, and imported by now

    return lambda: Cursor(connection, row_factory=tuple_row)


def _of_django(connection: Any) -> Borrowed | None:  # noqa: ANN401  # whatever the caller passes
    django: Any = sys.modules.get("django.db")
    if django is None:
        return None
    from django.db.backends.base.base import BaseDatabaseWrapper  # noqa: PLC0415  # it is optional

    if connection is django.connection:
        connection = django.connections[django.DEFAULT_DB_ALIAS]
    if not isinstance(connection, BaseDatabaseWrapper):
        return None
    if connection.get_autocommit():
        raise InvalidInput(f"{NEEDS} `with transaction.atomic()`")
    if connection.needs_rollback:
        raise StoreRefused(f"within Django's transaction on {connection.alias!r}: nothing is stored: {BROKEN}")
    driver = connection.connection
    module, name = type(driver).__module__.partition(".")[0], None
    if _is_of("psycopg", "Connection", driver):
        lent, dialect = _Lent(driver, _cursor_of(driver)), POSTGRESQL
    elif _is_of("sqlite3", "Connection", driver):
        lent, dialect = _Lent(driver, driver.cursor), SQLITE
    elif module in MYSQL:
        lent, dialect, name = _Lent(driver, driver.cursor), MYSQL[module], connection.settings_dict["NAME"]
    else:
        raise InvalidInput(
            "within= takes Django's connections to PostgreSQL (psycopg 3), MySQL, MariaDB and SQLite, "
            f"not {connection.alias!r}, which is of {connection.vendor} with {module}"
        )
    return Borrowed(connection, lent, URL.create(dialect, database=name), lambda: _spoil(connection))


def _spoil(connection: Any) -> None:  # noqa: ANN401  # whatever the caller passes
    if connection.in_atomic_block:
        connection.set_rollback(True)
