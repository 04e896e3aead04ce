"""The tables: a row per segment, order, change, sale, ... docs/reference/orders-tables.md explains the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    event,
    false,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from segmented.errors import InvalidInput
from segmented.models import ORDER_ID_BYTES_MAX

if TYPE_CHECKING:
    from sqlalchemy import Connection

SKU_LENGTH_MAX: Final = 256
CONFIRMED: Final = "confirmed"
VOID: Final = "void"
RESTOCKED: Final = "restocked"
WITHDRAWN: Final = "withdrawn"
OPENED: Final = "opened"
BEGUN: Final = "begun"
DONE: Final = "done"
UNDONE: Final = "undone"
OPENING_ID: Final = ""
"""The change id of a pool's opening; callers cannot pass it."""

SALE_ID_LENGTH_MAX: Final = 64
PROFILE_LENGTH_MAX: Final = 64

FILLFACTOR: Final = 10
"""Percent of a segment page filled at first; the rest is for new versions of rows, which change with every order."""


class database_now(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """The time by the database's clock."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(database_now)
def _now(*_: object, **__: object) -> str:
    return "CURRENT_TIMESTAMP"


@compiles(database_now, "sqlite")
def _now_with_milliseconds(*_: object, **__: object) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f', 'now'))"


class created_now(database_now):  # noqa: N801  # reads as the SQL function it stands for
    """The same as a column's default, in UTC whatever the time zone of the connection is."""

    inherit_cache = True


@compiles(created_now, "mysql")
@compiles(created_now, "mariadb")
def _now_in_utc(*_: object, **__: object) -> str:
    return "(utc_timestamp(6))"


class random_id(FunctionElement[Any]):  # noqa: N801  # reads as the SQL function it stands for
    """32 random hexadecimal digits."""

    type = String(SALE_ID_LENGTH_MAX)
    inherit_cache = True


@compiles(random_id, "postgresql")
def _random_uuid(*_: object, **__: object) -> str:
    return "replace(CAST(gen_random_uuid() AS text), '-', '')"


@compiles(random_id, "sqlite")
def _random_blob(*_: object, **__: object) -> str:
    return "lower(hex(randomblob(16)))"


@compiles(random_id, "mysql")
@compiles(random_id, "mariadb")
def _random_text(*_: object, **__: object) -> str:
    return "replace(uuid(), '-', '')"


class behind(FunctionElement[Any]):  # noqa: N801  # reads as the comparison it stands for
    """Whether a row's key, the first half of the arguments, is greater than the place in the second half."""

    type = Boolean()
    inherit_cache = True


@compiles(behind)
def _as_rows(element: behind, compiler: Any, **options: Any) -> str:  # noqa: ANN401  # SQLAlchemy has no public type
    each = [compiler.process(one, **options) for one in element.clauses]
    half = len(each) // 2
    return f"({', '.join(each[:half])}) > ({', '.join(each[half:])})"


@compiles(behind, "mysql")
@compiles(behind, "mariadb")
def _as_ranges(element: behind, compiler: Any, **options: Any) -> str:  # noqa: ANN401  # SQLAlchemy has no public type
    """Write it out, because a comparison of rows does not use their index there."""
    each = [compiler.process(one, **options) for one in element.clauses]
    key, place = each[: len(each) // 2], each[len(each) // 2 :]
    ranges = [
        " AND ".join([*(f"{key[at]} = {place[at]}" for at in range(last)), f"{key[last]} > {place[last]}"])
        for last in range(len(key))
    ]
    return f"({' OR '.join(f'({one})' for one in ranges)})"


class ExactText(String):
    """Text of MySQL and MariaDB that compares and sorts by bytes, trailing blanks included; without a length, long."""


@compiles(ExactText, "mysql")
@compiles(ExactText, "mariadb")
def _exact_text(text_type: ExactText, compiler: Any, **_: object) -> str:  # noqa: ANN401  # SQLAlchemy has no public type
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    kind = "MEDIUMTEXT" if text_type.length is None else f"VARCHAR({text_type.length})"
    return f"{kind} CHARACTER SET utf8mb4 COLLATE {collation}"


def identifier(length: int) -> String:
    """Return a text type that sorts by bytes everywhere, so that rows are locked and read in one order."""
    in_postgresql = String(length, collation="C")
    return String(length).with_variant(in_postgresql, "postgresql").with_variant(ExactText(length), "mysql", "mariadb")


LONG_TEXT: Final = Text().with_variant(ExactText(), "mysql", "mariadb")
MICROSECONDS: Final = DateTime(timezone=True).with_variant(DATETIME(fsp=6), "mysql", "mariadb")
"""A time whose microseconds are kept everywhere."""


metadata = MetaData()

segments = Table(
    "segmented_segments",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("segment", Integer, nullable=False, autoincrement=False),
    Column("quota", BigInteger, nullable=False),
    Column("sold", BigInteger, nullable=False, server_default=text("0")),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("epoch", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("sku", "segment", name="segmented_segments_key"),
    CheckConstraint("sold >= 0", name="segmented_segments_sold_not_negative"),
    CheckConstraint("sold <= quota", name="segmented_segments_never_oversold"),
    CheckConstraint("segment >= 0 AND fence >= 0 AND epoch >= 1", name="segmented_segments_in_range"),
)
# An option of the table, `postgresql_with`, exists from SQLAlchemy 2.1 on.
FILL: Final = f"ALTER TABLE segmented_segments SET (fillfactor = {FILLFACTOR})"
_FILLED: Final[Any] = DDL(FILL)  # type: ignore[no-untyped-call]  # it has no types
event.listen(segments, "after_create", _FILLED.execute_if(dialect="postgresql"))

orders = Table(
    "segmented_orders",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("state", String(16), nullable=False),
    Column("quantity", BigInteger, nullable=False),
    Column("segment", Integer),
    Column("fence", BigInteger),
    Column("epoch", Integer),
    Column("customer_id", LONG_TEXT),
    Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
    Column("reason", LONG_TEXT),
    PrimaryKeyConstraint("sku", "order_id", name="segmented_orders_key"),
    CheckConstraint(f"state IN ('{CONFIRMED}', '{VOID}')", name="segmented_orders_state_known"),
    CheckConstraint("quantity >= 1", name="segmented_orders_quantity_positive"),
    CheckConstraint(
        f"state = '{VOID}' OR (segment IS NOT NULL AND epoch IS NOT NULL)", name="segmented_orders_confirmed_somewhere"
    ),
)

changes = Table(
    "segmented_changes",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("change_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
    PrimaryKeyConstraint("sku", "change_id", name="segmented_changes_key"),
    CheckConstraint(f"kind IN ('{RESTOCKED}', '{WITHDRAWN}', '{OPENED}')", name="segmented_changes_kind_known"),
    CheckConstraint(f"state IN ('{BEGUN}', '{DONE}', '{UNDONE}')", name="segmented_changes_state_known"),
    CheckConstraint("units >= 0 AND epoch >= 1", name="segmented_changes_in_range"),
)

returns = Table(
    "segmented_returns",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("return_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX), nullable=False),
    Column("units", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
    PrimaryKeyConstraint("sku", "return_id", name="segmented_returns_key"),
    CheckConstraint(f"state IN ('{BEGUN}', '{DONE}')", name="segmented_returns_state_known"),
    CheckConstraint("units >= 1 AND epoch >= 1", name="segmented_returns_in_range"),
)

outcomes = Table(
    "segmented_outcomes",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("shard", Integer, nullable=False, autoincrement=False),
    Column("epoch", Integer, nullable=False, server_default=text("1")),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("line", Integer, nullable=False, server_default=text("0")),
    Column("dead_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("caught_up", identifier(ORDER_ID_BYTES_MAX), nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("sku", "shard", name="segmented_outcomes_key"),
)

ledger = Table(
    "segmented_ledger",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("shard", Integer, nullable=False, autoincrement=False),
    Column("epoch", Integer, nullable=False, autoincrement=False),
    Column("sequence", BigInteger, nullable=False, autoincrement=False),
    Column("line", Integer, nullable=False, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("order_id", identifier(ORDER_ID_BYTES_MAX)),
    Column("quantity", BigInteger, nullable=False),
    Column("customer_id", LONG_TEXT),
    Column("changed_at", MICROSECONDS, nullable=False),
    Column("segment", Integer),
    Column("parts", LONG_TEXT),
    Column("fence", BigInteger),
    Column("note", LONG_TEXT),
    Column("chain", String(16), nullable=False),
    Column("is_lost", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("sku", "shard", "epoch", "sequence", "line", name="segmented_ledger_key"),
    CheckConstraint("shard >= 0 AND epoch >= 1 AND sequence >= 1 AND line >= 0", name="segmented_ledger_in_range"),
    Index("segmented_ledger_orders", "sku", "order_id"),
)

sales = Table(
    "segmented_sales",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("sale_id", String(SALE_ID_LENGTH_MAX), nullable=False),
    Column("created_at", MICROSECONDS, nullable=False, server_default=created_now()),
    Column("limit_per_customer", BigInteger),
    Column("profile", String(PROFILE_LENGTH_MAX)),
    Column("queue", LONG_TEXT),
    Column("step", LONG_TEXT),
    PrimaryKeyConstraint("sku", name="segmented_sales_key"),
)
"""The identity of each sale, which its pool notes: a database that has another one is not the pool's. And the terms of
its pool, for one whose keys are lost; without a profile they are not known.
"""


# --- the version of the tables ---
#
# A release neither reads nor changes tables that another release has laid out. The version is the revision of a
# migration (segmented/orders/migrations), in a table of Alembic's form.

HEAD: Final = "r1"
"""The revision of the tables that this release reads and writes."""
VERSION_TABLE: Final = "segmented_alembic_version"
"""Of a name of its own, because the database may have another program's table of this form."""

versions = Table(
    VERSION_TABLE,
    MetaData(),  # of its own, because the migrations create it before all others
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def known_revision(connection: Connection, where: str) -> str | None:
    """Return the revision of the tables, None if there are none. Raises InvalidInput for that of another release."""
    found = _revision(connection)
    if found not in {None, HEAD}:
        raise InvalidInput(
            f"{where} has tables of revision {found}, and this release of segmented knows revision {HEAD} only: "
            "use the release that made them, or name another database"
        )
    return found


def create_missing(connection: Connection) -> None:
    """Create missing tables and store their revision, while no other process creates tables.

    The revision comes first: where tables are not taken back with a transaction, the next call then creates the rest.
    """
    if not missing_tables(connection):
        return  # nothing is created, so the account need not have the right to
    if _revision(connection) is None:
        versions.create(connection, checkfirst=True)
        connection.execute(insert(versions), {"version_num": HEAD})
    metadata.create_all(connection)


def missing_tables(connection: Connection) -> tuple[str, ...]:
    """Return the names of the tables that are needed and missing."""
    there = inspect(connection)
    return tuple(name for name in sorted(metadata.tables) if not there.has_table(name))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(versions.name):
        return None
    return connection.execute(select(versions.c.version_num)).scalar_one_or_none()
