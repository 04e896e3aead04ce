"""A judge of a gated sale that uses no code of `segmented`: plain SQL and plain Redis reads must agree."""

from collections import Counter
from functools import cache
from typing import Any, Final

import redis
import sqlalchemy
from sqlalchemy import text

SOLD: Final = "c"
RESERVED: Final = "r"
UNITS: Final = "SELECT sku, sum(quota), sum(sold), count(*) FROM segmented_segments GROUP BY sku"
ORDERS: Final = "SELECT sku, order_id, state, quantity FROM segmented_orders"


@cache
def _engine(database: str) -> sqlalchemy.Engine:
    url = sqlalchemy.make_url(database)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)


def sql_rows(database: str, statement: str) -> list[Any]:
    with _engine(database).connect() as connection:
        return list(connection.execute(text(statement)))


def pools(server: redis.Redis) -> dict[str, str]:
    """The first part of the keys of each pool, by the name under which the database has its rows."""
    tags = sorted(key.removesuffix("meta") for key in server.scan_iter("seg:{*}:meta"))
    return {name_of(tag): tag for tag in tags}


def name_of(tag: str) -> str:
    sku, _, place = tag.removeprefix("seg:{").partition("}")[0].rpartition(":")
    return sku if place == "0" else f"{sku}\x1f{place}"


def judged(server_url: str, database: str, *, forgets: bool = False) -> tuple[int, int, int]:
    """Return the units stocked, sold and free of all pools, after checking that both sides agree.

    With `forgets`, a pool may have lost the records of orders that the database has, but none of their units.
    """
    with redis.Redis.from_url(server_url, decode_responses=True) as server:
        rows = {sku: (int(quota), int(sold), count) for sku, quota, sold, count in sql_rows(database, UNITS)}
        found = pools(server)
        assert sorted(rows) == sorted(found), (rows, found)
        orders: dict[tuple[str, str], tuple[str, int]] = {}
        stocked = sold = free = 0
        for name, tag in found.items():
            meta = {key: value for key, value in server.hgetall(f"{tag}meta").items() if value.isdigit()}
            number = Counter({key: int(value) for key, value in meta.items()})
            units = number["opened"] + number["restocked"] - number["withdrawn"] + number["received"] - number["sent"]
            in_segments = sum(map(int, server.hvals(f"{tag}stock")))
            assert in_segments == number["available"]
            assert in_segments + number["reserved"] + number["confirmed"] == units
            assert rows[name][:2] == (units, number["confirmed"]), (name, rows, number)
            assert rows[name][2] >= number["segment_count"]
            for order_id, record in server.hgetall(f"{tag}orders").items():
                state, quantity = record.split("\t")[:2]
                orders[name, order_id] = state, int(quantity)
            stocked, sold, free = stocked + units, sold + number["confirmed"], free + in_segments
        decided = {(sku, each): (state, int(count)) for sku, each, state, count in sql_rows(database, ORDERS)}
        in_sql = {each: quantity for each, (state, quantity) in decided.items() if state == "confirmed"}
        in_redis = {each: quantity for each, (state, quantity) in orders.items() if state == SOLD}
        assert in_sql == (in_sql | in_redis if forgets else in_redis)
        assert not [each for each, (state, _) in orders.items() if state == RESERVED and each in decided]
        assert sum(in_sql.values()) == sold
        return stocked, sold, free
