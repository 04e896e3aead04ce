"""Pools in shards whose masters die."""

import time
from functools import partial
from typing import Final
from zlib import crc32

import pytest

from segmented.errors import StoreUnavailable
from segmented.keys import lock_keys, shard_keys
from segmented.models import Order, Reserved, Shard, SoldOut
from segmented.stock import AsyncShardedPool, ShardedPool
from segmented.stock.sharded.opening import directory_plan, home_of
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import deployed_side
from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import Node, eventually

LONG: Final = 100.0
SHARDS: Final = 6
STOCK: Final = 600
PATIENCE: Final = 6.0
"""Seconds for which a store asks a master again that does not answer."""
CALM_MS: Final = 60_000
"""A node timeout after which no test waits: a master that stands still for a while is not replaced."""


def sharded(side: Side, sku: str) -> ShardedPool:
    return side.made(lambda store: ShardedPool(store, sku), lambda store: AsyncShardedPool(store, sku))


def is_settled(master: Node) -> bool:
    """Has the master's replica got all that the master has written?"""
    found = master.info("replication")
    return bool(found["slave0"]["state"] == "online" and found["slave0"]["offset"] == found["master_repl_offset"])


def settle(cluster: Cluster) -> None:
    for master in cluster.masters():
        eventually(partial(is_settled, master), "the replica has all")


class World:
    """An open pool in six shards, and one master that is going to die."""

    def __init__(self, cluster: Cluster, *, lock_dies: bool, patience: float) -> None:
        self.cluster, self.patience = cluster, patience
        self.sides: list[Side] = []
        self.side = self.another()
        self.dying = cluster.masters()[0]
        skus = (f"ticket{number}" for number in range(1_000))
        self.sku = next(
            sku
            for sku in skus
            if self.is_on_dying(lock_keys(f"pool:{sku}:gather").lock) is lock_dies and crc32(sku.encode()) % 3 == 0
        )
        self.pool = sharded(self.side, self.sku)
        self.pool.open(stock=STOCK, segments=SHARDS, shards=SHARDS)
        self.shards: tuple[Shard, ...] = self.side.run(directory_plan(self.sku)).shards
        self.lost = [shard for shard in self.shards if self.is_on_dying(shard_keys(shard).meta)]
        self.kept = [shard for shard in self.shards if shard not in self.lost]
        self.count = 0

    def another(self) -> Side:
        """Make another process's worth of stores."""
        self.sides.append(deployed_side(self.cluster.url, "sync", patience=self.patience))
        return self.sides[-1]

    def is_on_dying(self, key: str) -> bool:
        return self.cluster.master_of(key) is self.dying

    def order(self, shard: Shard, quantity: int) -> Order:
        """Make an order that is at home there."""
        while True:
            self.count += 1
            order_id = f"o{self.count}"
            if home_of(order_id, SHARDS) == shard.number:
                return Order(order_id, quantity)

    def sell_one_everywhere(self) -> None:
        for shard in self.shards:
            assert isinstance(self.pool.reserve(self.order(shard, 1)), Reserved)

    def close(self) -> None:
        for side in self.sides:
            side.close()


def taken_all(world: World) -> SoldOut:
    """Buy ever fewer units, at home anywhere, until there are none; return the refusal."""
    quantity = 50
    while True:
        answer = world.pool.reserve(world.order(world.shards[world.count % SHARDS], quantity))
        if isinstance(answer, SoldOut) and quantity == 1:
            return answer
        if isinstance(answer, SoldOut):
            quantity = 10 if quantity == 50 else 1
        else:
            assert isinstance(answer, Reserved)


@pytest.fixture
def calm_cluster(private_cluster: Cluster) -> Cluster:
    for node in private_cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-node-timeout", CALM_MS)
    return private_cluster


# --- a master is gone for good ---


def test_a_lost_master_stops_only_its_own_shards_and_is_no_reason_to_say_sold_out(calm_cluster: Cluster) -> None:
    world = World(calm_cluster, lock_dies=False, patience=PATIENCE)
    world.sell_one_everywhere()
    other = sharded(world.another(), world.sku)
    calm_cluster.replica_of(world.dying).kill()
    world.dying.kill()
    pool, home = world.pool, world.kept[0]
    # what the homes have
    for _ in range(10):
        for shard in world.kept:
            assert isinstance(pool.reserve(world.order(shard, 5)), Reserved)
    # what the others have that live
    assert isinstance(pool.reserve(world.order(home, 120)), Reserved)
    with pytest.raises(StoreUnavailable):  # what nobody knows
        pool.reserve(world.order(home, 300))
    with pytest.raises(StoreUnavailable):
        pool.reserve(world.order(world.lost[0], 3))
    # a buyer who begins now
    assert isinstance(other.reserve(world.order(world.kept[1], 3)), Reserved)
    # many at once: those of the dead fail, those that the living can serve do not
    orders = [world.order(shard, 3) for shard in world.shards for _ in range(5)]
    answers = dict(zip(orders, pool.reserve_many(orders), strict=True))
    for order, answer in answers.items():
        is_lost = world.shards[home_of(order.order_id, SHARDS)] in world.lost
        assert isinstance(answer, StoreUnavailable if is_lost else Reserved), (order, answer)
    # each would wait for the dead by itself
    orders = [world.order(home, 300) for _ in range(100)]
    assert all(isinstance(answer, StoreUnavailable) for answer in pool.reserve_many(orders))
    world.close()


def asked(world: World, order: Order) -> Reserved | SoldOut | None:
    try:
        answer = world.pool.reserve(order)
    except StoreUnavailable:
        return None
    assert isinstance(answer, Reserved | SoldOut)
    return answer


# --- a replica takes over ---


def test_after_a_replica_took_over_everything_is_sold_and_the_books_are_right(private_cluster: Cluster) -> None:
    world = World(private_cluster, lock_dies=True, patience=LONG)
    world.sell_one_everywhere()
    late = sharded(world.another(), world.sku)
    settle(private_cluster)  # a failover may lose what a replica has not got
    replica = private_cluster.replica_of(world.dying)
    world.dying.kill()
    own = world.side.start(partial(world.pool.reserve, world.order(world.lost[0], 2)))
    gathering = world.side.start(partial(world.pool.reserve, world.order(world.kept[0], 150)))
    began = time.monotonic()
    assert isinstance(late.reserve(world.order(world.kept[1], 2)), Reserved)
    assert isinstance(own.result(LONG), Reserved)
    assert isinstance(gathering.result(LONG), Reserved)
    private_cluster.wait_failover(world.dying, replica)
    while asked(world, world.order(world.kept[0], 1)) is None:
        assert time.monotonic() - began < LONG
    refused = taken_all(world)
    assert (refused.available, refused.reserved) == (0, STOCK)
    assert late.finish_transfers() == 0
    report = late.audit()
    assert report.is_clean
    assert (report.state.available, report.state.reserved, report.away) == (0, STOCK, 0)
    world.close()
