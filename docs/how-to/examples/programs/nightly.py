"""A nightly job that is started on several machines: one does the work, the others say so and end.

JOB_REDIS is the URL of the lock's server, JOB_DATABASE that of the reports. Run it with: python nightly.py 2026-11-27
Install: pip install '.[postgres]' in the checkout.
"""

from __future__ import annotations

import os
import sys

from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table, create_engine, select

from segmented import AcquireTimeout, Lock, RedisStore, fenced_where

DAYS = Table(
    "days",
    MetaData(),
    Column("day", String, primary_key=True),
    Column("orders", Integer, nullable=False),
    Column("fence", BigInteger),
)


def count_orders(day: str) -> int:
    """Do the work of the night; here it is the day's number."""
    return int(day[-2:])


def is_done(engine: Engine, day: str) -> bool:
    """Return whether a machine has written the day's row."""
    with engine.connect() as connection:
        return connection.execute(select(DAYS.c.day).where(DAYS.c.day == day)).one_or_none() is not None


def write(engine: Engine, day: str, orders: int, token: int) -> bool:
    """Write the day's row, unless a holder after this one has written it."""
    condition, values = fenced_where(DAYS.c.fence, token=token)
    with engine.begin() as connection:
        if connection.execute(select(DAYS.c.day).where(DAYS.c.day == day)).one_or_none() is None:
            connection.execute(DAYS.insert().values(day=day, orders=0))
        wanted = DAYS.update().where(DAYS.c.day == day, condition)
        return connection.execute(wanted.values(orders=orders, **values)).rowcount == 1


def main(day: str) -> int:
    """Return the exit code."""
    engine = create_engine(os.environ["JOB_DATABASE"])
    DAYS.create(engine, checkfirst=True)
    with RedisStore(os.environ["JOB_REDIS"]) as store:
        lock = Lock(store, f"nightly report {day}", ttl=30, renew=True, on_lost=lambda: print("the lease is lost"))
        try:
            with lock.acquire(timeout=3) as lease:
                if is_done(engine, day):
                    print(f"{day}: it is done")
                    return 0
                orders = count_orders(day)
                lease.require()  # raises LeaseLost if another machine may have begun meanwhile
                is_written = write(engine, day, orders, lease.fencing_token)
                print(f"{day}: {orders} orders" if is_written else f"{day}: a later holder has written it")
        except AcquireTimeout:
            print(f"{day}: another machine is at it")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
