"""An archive in a table of its own, in any database that can be an order database: one row for each line."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import (
    BigInteger,
    Column,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    delete,
    insert,
    inspect,
    select,
)

from segmented.locks.sql_edge import close_engine
from segmented.orders.edge import translated
from segmented.orders.engine import connect, parse, shown
from segmented.orders.tables import LONG_TEXT, SKU_LENGTH_MAX, identifier
from segmented.stock.archiving.target import ArchiveTarget, names_customer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from sqlalchemy import ColumnElement

ROWS_AT_ONCE: Final = 1_000
END: Final = '{"record":"end",'
"""How the last line begins; an archive without it is not complete."""

metadata = MetaData()

archives = Table(
    "segmented_archives",
    metadata,
    Column("sku", identifier(SKU_LENGTH_MAX), nullable=False),
    Column("epoch", Integer, nullable=False, autoincrement=False),
    Column("number", BigInteger, nullable=False, autoincrement=False),
    Column("line", LONG_TEXT, nullable=False),
    PrimaryKeyConstraint("sku", "epoch", "number", name="segmented_archives_key"),
)


class SqlArchive(ArchiveTarget):
    """Archives in the table segmented_archives, one for each pool and epoch. The table is created if it is missing."""

    def __init__(self, url: str) -> None:
        """Connect to the database. Raises InvalidInput if it cannot be used."""
        self.name = f"the table {archives.name} of {shown(parse(url))}"
        self._engine = connect(url, pool_size=2)

    def __repr__(self) -> str:
        """Return the class and the table, without secrets."""
        return f"<SqlArchive in {self.name}>"

    def check(self) -> None:
        """Create the table if it is missing. Raises InvalidInput if it cannot be used."""
        with translated(self.name):
            metadata.create_all(self._engine)

    def exists(self, sku: str, epoch: int) -> bool:
        """Return whether there is an archive of the pool in this epoch whose last row is its end."""
        if not self._has_table():
            return False
        last = select(archives.c.line).where(*_of(sku, epoch)).order_by(archives.c.number.desc()).limit(1)
        with translated(self.name), self._engine.connect() as connection:
            line = connection.execute(last).scalar()
        return line is not None and line.startswith(END)

    def epochs(self, sku: str) -> tuple[int, ...]:
        """Return the epochs of which the table has rows of a pool, in order."""
        if not self._has_table():
            return ()
        wanted = select(archives.c.epoch).where(archives.c.sku == sku).distinct().order_by(archives.c.epoch)
        with translated(self.name), self._engine.connect() as connection:
            return tuple(connection.execute(wanted).scalars())

    def naming(self, customer_id: str) -> tuple[tuple[str, int], ...]:
        """Return the pools and epochs whose archives name a customer."""
        if not self._has_table():
            return ()
        likely = archives.c.line.contains(json.dumps(customer_id)[1:-1], autoescape=True)
        wanted = select(archives.c.sku, archives.c.epoch, archives.c.line).where(likely)
        with translated(self.name), self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        return tuple(sorted({(sku, epoch) for sku, epoch, line in rows if names_customer(line, customer_id)}))

    def lines(self, sku: str, epoch: int) -> Iterator[str]:
        """Yield the lines of the pool in this epoch, a page of rows at a time."""
        page = select(archives.c.number, archives.c.line).order_by(archives.c.number).limit(ROWS_AT_ONCE)
        after = 0
        while True:
            with translated(self.name), self._engine.connect() as connection:
                rows = connection.execute(page.where(*_of(sku, epoch), archives.c.number > after)).all()
            if not rows:
                return
            for after, line in rows:  # noqa: B007  # the last number is where the next page begins
                yield line

    @contextmanager
    def writing(self, sku: str, epoch: int) -> Iterator[Callable[[str], None]]:
        """Insert rows, 1,000 in a transaction. What an interrupted run has left is removed first."""
        waiting: list[str] = []
        written = 0

        def flush() -> None:
            nonlocal written
            rows = [
                {"sku": sku, "epoch": epoch, "number": written + place, "line": line}
                for place, line in enumerate(waiting, start=1)
            ]
            with translated(self.name), self._engine.begin() as connection:
                connection.execute(insert(archives).values(rows))  # one statement is one transaction
            written += len(rows)
            waiting.clear()

        def write(line: str) -> None:
            waiting.append(line)
            if len(waiting) == ROWS_AT_ONCE:
                flush()

        self._clear(sku, epoch)
        try:
            yield write
            flush()
        except BaseException:
            self._clear(sku, epoch)
            raise

    def _has_table(self) -> bool:
        with translated(self.name):
            return inspect(self._engine).has_table(archives.name)

    def _clear(self, sku: str, epoch: int) -> None:
        with translated(self.name), self._engine.begin() as connection:
            connection.execute(delete(archives).where(*_of(sku, epoch)))

    def close(self) -> None:
        """Close all connections."""
        close_engine(self._engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _of(sku: str, epoch: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return archives.c.sku == sku, archives.c.epoch == epoch
