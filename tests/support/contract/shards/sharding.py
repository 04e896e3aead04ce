"""A pool in shards under test, in every colour of both stores."""

from collections.abc import Callable
from typing import Final

from segmented.keys import shard_keys
from segmented.models import Reserved, Shard, ShardDirectory, SoldOut
from segmented.stock import AsyncShardedPool, Outbox, ShardedPool
from segmented.stock.sharded.opening import directory_plan, home_of
from tests.fixtures.stores import Side
from tests.support.sim.replicas import replica_of

SHARDS: Final = 3
STOCK: Final = 11
"""The fixture `pool` has this many shards, and this many units."""


def sharded(
    side: Side, sku: str, *, mark: float = 0.0, ttl: float = 60.0, hold: float = 600.0, outbox: Outbox | None = None
) -> ShardedPool:
    """Make one more object for a pool, as another process would."""
    return side.made(
        lambda store: ShardedPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=mark, outbox=outbox),
        lambda store: AsyncShardedPool(store, sku, ttl=ttl, hold=hold, sold_out_mark=mark, outbox=outbox),
    )


def directory_of(side: Side, sku: str) -> ShardDirectory:
    return side.run(directory_plan(sku))


def shards_of(side: Side, sku: str) -> tuple[Shard, ...]:
    return directory_of(side, sku).shards


def at_home_in(number: int, shard_count: int, word: str = "o") -> list[str]:
    """Return ten ids whose home is that shard."""
    found = (f"{word}{index}" for index in range(10_000))
    return [one for one in found if home_of(one, shard_count) == number][:10]


def delete_shard(side: Side, shard: Shard) -> None:
    """Lose every key of a shard on Redis."""
    keys = shard_keys(shard)
    side.raw().delete(*keys.listed())


def remembered(side: Side, shard: Shard) -> Callable[[], None]:
    """Keep a shard as a replica has it that hears of nothing more; the result makes that replica the master."""
    if side.flavour.store == "memory":
        return replica_of(side.store.model, shard)
    server, keys = side.raw(), shard_keys(shard).listed()
    had = [key for key in keys if server.copy(key, f"{key} of the replica")]

    def take_over_on_redis() -> None:
        server.delete(*keys)
        for key in had:
            server.rename(f"{key} of the replica", key)

    return take_over_on_redis


def taken(answer: object) -> int:
    """Return how many units an order got, where anything but a reservation would be a mistake of the test."""
    assert isinstance(answer, Reserved), answer
    return answer.quantity


def refused(answer: object) -> tuple[int, int]:
    """Return what a refusal says: units available and reserved."""
    assert isinstance(answer, SoldOut), answer
    return answer.available, answer.reserved


def check_all(pool: ShardedPool) -> None:
    """Audit all shards and what is between them."""
    report = pool.audit()
    assert report.drift == ()
    assert (report.is_clean, report.drift_count, report.refused_wrongly, report.oversold) == (True, 0, 0, 0)
    state = report.state
    assert state.stocked == state.available + state.reserved + state.confirmed + report.away
