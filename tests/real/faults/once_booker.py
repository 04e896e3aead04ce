"""A worker that books in a database, once a key, and is killed at a named point.

`python -m tests.real.faults.once_booker REDIS_URL DATABASE_URL POINT`: POINT is `before commit`, `after commit` or
`never`. Prints the result.
"""

import os
import signal
import sys
from typing import Final

from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert

from segmented.dedup import AlreadyDone, Dedup, Replay
from segmented.dedup.sql import OnceTable
from segmented.stores.redis import RedisStore

KEY: Final = "order-7"
LEASE: Final = 0.5
"""The lease of a worker that is killed, in seconds. One that goes on has LONG, which no pause of the machine ends."""
LONG: Final = 600.0
WAIT: Final = 60.0
bookings = Table("bookings", MetaData(), Column("id", Integer, primary_key=True), Column("order_id", String(50)))


def main(store_url: str, database_url: str, point: str) -> object:
    """Book by hand, as a worker does; return the result."""
    engine, table, lease = create_engine(database_url), OnceTable(), LONG if point == "never" else LEASE
    with RedisStore.from_url(store_url) as store, Dedup(store, "bookings", ttl=lease).begin(KEY, timeout=WAIT) as run:
        if isinstance(run, Replay):
            return run.result
        try:
            with engine.begin() as connection:
                connection.execute(insert(bookings).values(order_id=KEY))
                table.finish_in(connection, run, os.getpid())
                if point == "before commit":
                    os.kill(os.getpid(), signal.SIGKILL)
            result: object = os.getpid()
        except AlreadyDone as done:
            result = done.result
        if point == "after commit":
            os.kill(os.getpid(), signal.SIGKILL)
        run.finish(result)
        return result


if __name__ == "__main__":
    print(main(*sys.argv[1:]))  # noqa: T201  # the parent reads it
