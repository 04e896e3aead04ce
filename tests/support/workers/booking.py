"""Bookings in a database, done exactly once: for tests of `OnceTable`."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, func, insert, select, update

from segmented.dedup import Dedup, Run
from segmented.dedup.sql import OnceTable, once
from segmented.stores.redis import RedisStore

bookings = Table("bookings", MetaData(), Column("id", Integer, primary_key=True), Column("order_id", String(50)))
TABLE: Final = OnceTable()
SECONDS: Final = 60.0


class BookingService:
    """A database with bookings, and a Dedup whose store can be emptied."""

    def __init__(self, engine: Engine, store: RedisStore) -> None:
        self.engine, self.store = engine, store
        self.dedup = Dedup(store, "bookings")
        self.calls = 0

    def begin(self, key: str = "order-7") -> Run:
        run = self.dedup.begin(key)
        assert isinstance(run, Run)
        return run

    def begin_beside(self, run: Run) -> Run:
        """Begin another run while one goes on, as after a long pause of the first."""
        self.dedup.free("order-7")
        other = self.begin()
        assert other.fencing_token > run.fencing_token
        return other

    def book(self, connection: Connection) -> str:
        self.calls += 1
        connection.execute(insert(bookings).values(order_id="order-7"))
        return f"booking-{self.calls}"

    def perform(self, run: Run, **options: Any) -> str:  # noqa: ANN401  # those of perform
        return TABLE.perform(self.engine, run, self.book, **options)

    def count(self) -> int:
        with self.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(bookings)).scalar_one()

    def grow_old(self) -> None:
        """Let all rows be years old."""
        with self.engine.begin() as connection:
            connection.execute(update(once).values(finished_at=datetime(2020, 1, 1, tzinfo=UTC)))

    def two_at_once(self) -> tuple[int, int]:
        """Have two holders perform at the same time; returns how many results they got, and how many effects."""
        first = self.begin()
        second = self.begin_beside(first)
        together = threading.Barrier(2)

        def book(connection: Connection) -> str:
            if self.calls < 2:
                together.wait(SECONDS)
            return self.book(connection)

        with ThreadPoolExecutor(2) as threads:
            started = [threads.submit(TABLE.perform, self.engine, run, book) for run in (first, second)]
            results = {one.result(SECONDS) for one in started}
        return len(results), self.count()

    def flush(self) -> None:
        self.store.client.flushall()
