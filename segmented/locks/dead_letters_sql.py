"""Dead letters in a database: one row per work, in the table `segmented_dead_letters`.

A row stays when its work is done, so that the same id is not done again; delete done rows once no caller can repeat
them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Engine,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    create_engine,
    false,
    func,
    insert,
    inspect,
    make_url,
    select,
    true,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError

from segmented.errors import InvalidInput
from segmented.locks.dead_letters import TEXT_LENGTH_MAX, DeadLetter, Work
from segmented.locks.sql_edge import close_engine, translated
from segmented.masking import masked

TABLE: Final = "segmented_dead_letters"
PENDING_MAX: Final = 1_000

dead_letter_metadata = MetaData()
"""For tools that create tables from metadata, such as Alembic."""

rows = Table(
    TABLE,
    dead_letter_metadata,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    # A hash of the id, since a collation may treat two ids as equal.
    Column("digest", String(64), nullable=False, unique=True),
    Column("work_id", String(TEXT_LENGTH_MAX), nullable=False),
    Column("name", String(TEXT_LENGTH_MAX), nullable=False),
    Column("payload", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("recordings", Integer, nullable=False, server_default="1"),
    Column("is_done", Boolean, nullable=False, server_default=false()),
    Column("last_error", Text),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)


class SqlDeadLetters:
    """Dead letters in any database that SQLAlchemy supports. Threads and processes may share it."""

    def __init__(self, database: str | Engine) -> None:
        """Keep letters in `database`, a URL or an engine, and create the table if it is missing.

        Raises InvalidInput for an unusable URL and StoreError if the database does not answer, so that you learn it now
        and not in the outage.
        """
        self._owns_engine = isinstance(database, str)
        self._engine = _engine(database) if isinstance(database, str) else database
        with self._translated():
            self._create()

    def __repr__(self) -> str:
        """Return the class and the database, without secrets."""
        return f"SqlDeadLetters({masked(self._engine.url.render_as_string(hide_password=False))!r})"

    def _translated(self) -> Any:  # noqa: ANN401  # a context manager
        return translated("the dead letters")

    def _create(self) -> None:
        try:
            dead_letter_metadata.create_all(self._engine)
        except DBAPIError:  # another process creates it at the same time
            if not inspect(self._engine).has_table(TABLE):
                raise

    def record(self, work: Work) -> None:
        """Insert the work, or for an id that is kept and not done, count that it was recorded again."""
        digest = hashlib.sha256(work.work_id.encode()).hexdigest()
        values = {"digest": digest, "work_id": work.work_id, "name": work.name, "payload": work.body}
        with self._translated():
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(rows).values(**values))
            except IntegrityError:
                with self._engine.begin() as connection:
                    if connection.execute(select(rows.c.number).where(rows.c.digest == digest)).first() is None:
                        raise
                    is_open = (rows.c.digest == digest) & (rows.c.is_done == false())
                    connection.execute(update(rows).where(is_open).values(recordings=rows.c.recordings + 1))

    def newest(self) -> int:
        """Return the highest place, or 0 if there is none."""
        with self._translated(), self._engine.connect() as connection:
            return connection.execute(select(func.max(rows.c.number))).scalar() or 0

    def take(self, after: int, attempts_max: int) -> DeadLetter | None:
        """Count an attempt of the first letter after `after` that has one left and is not locked, and return it."""
        open_rows = (rows.c.is_done == false()) & (rows.c.attempts < attempts_max)
        while True:
            with self._translated(), self._engine.begin() as connection:
                wanted = select(rows).where(open_rows, rows.c.number > after).order_by(rows.c.number).limit(1)
                row = connection.execute(wanted).mappings().first()
                if row is None:
                    return None
                after = row["number"]
                unchanged = (rows.c.number == after) & (rows.c.attempts == row["attempts"])
                change = update(rows).where(open_rows, unchanged).values(attempts=rows.c.attempts + 1)
                if connection.execute(change).rowcount == 1:
                    return _letter(row, row["attempts"] + 1)

    def put_back(self, letter: DeadLetter) -> None:
        """Undo the attempt."""
        self._change(letter, attempts=rows.c.attempts - 1)

    def mark_done(self, letter: DeadLetter) -> bool:
        """Mark the row, unless it was recorded again."""
        is_same = (rows.c.number == letter.place) & (rows.c.recordings == letter.recordings)
        with self._translated(), self._engine.begin() as connection:
            return connection.execute(update(rows).where(is_same).values(is_done=true())).rowcount == 1

    def mark_failed(self, letter: DeadLetter, error: str) -> None:
        """Write the error into the row."""
        self._change(letter, last_error=error)

    def pending(self, *, limit: int = PENDING_MAX) -> list[DeadLetter]:
        """Return up to `limit` letters that are not done, with or without attempts left, as recorded."""
        wanted = select(rows).where(rows.c.is_done == false()).order_by(rows.c.number).limit(limit)
        with self._translated(), self._engine.connect() as connection:
            return [_letter(row, row["attempts"]) for row in connection.execute(wanted).mappings()]

    def close(self) -> None:
        """Close the connections, if the engine was created here."""
        if self._owns_engine:
            close_engine(self._engine)

    def _change(self, letter: DeadLetter, **values: Any) -> None:  # noqa: ANN401  # columns, by their names
        with self._translated(), self._engine.begin() as connection:
            connection.execute(update(rows).where(rows.c.number == letter.place).values(**values))


def _letter(row: RowMapping, attempts: int) -> DeadLetter:
    work = Work(row["name"], json.loads(row["payload"]), row["work_id"])
    return DeadLetter(work, row["number"], attempts, row["last_error"], row["recordings"])


def _engine(url: str) -> Engine:
    try:
        # A connection pooler in transaction mode has no prepared statements; psycopg would make some by itself.
        pooled = {"prepare_threshold": None} if make_url(url).drivername == "postgresql+psycopg" else {}
        return create_engine(url, hide_parameters=True, pool_pre_ping=True, connect_args=pooled)
    except NoSuchModuleError as error:
        message = f"dead letters cannot be kept there: SQLAlchemy does not know {url.partition(':')[0]!r}"
        raise InvalidInput(message) from error
    except (ArgumentError, ValueError) as error:  # the unreadable text may hold a password: not shown
        message = "dead letters need a database URL such as sqlite:///letters.sqlite or postgresql+psycopg://host/name"
        raise InvalidInput(message) from error
    except ImportError as error:
        raise InvalidInput(f"dead letters cannot be kept there: {error.name} is not installed") from error
