"""Pools in shards on a cluster of three masters: where shards lie, sales to the last unit, and slots that move."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from segmented.keys import directory_copy, shard_keys
from segmented.models import Order, Reserved, Settled, Shard, SoldOut
from segmented.stock import AsyncShardedPool, ShardedPool
from segmented.stock.sharded.opening import COPIES, directory_plan
from tests.fixtures.stores import Side
from tests.support.long_run import in_the_long_run
from tests.support.servers.deployments import Cluster
from tests.support.servers.moving import WAYS, SlotMover
from tests.support.servers.nodes import Node

pytestmark = pytest.mark.usefixtures("patient_attempts")

LONG: Final = 150.0
SHARDS: Final = 6
SELLERS: Final = 4
"""Threads a process."""


def sharded(side: Side, sku: str, **options: Any) -> ShardedPool:  # noqa: ANN401  # as the pool has them
    return side.made(
        lambda store: ShardedPool(store, sku, **options), lambda store: AsyncShardedPool(store, sku, **options)
    )


def shards_of(side: Side, sku: str) -> tuple[Shard, ...]:
    return side.run(directory_plan(sku)).shards


def homes(cluster: Cluster, shards: tuple[Shard, ...]) -> list[Node]:
    return [cluster.master_of(shard_keys(shard).meta) for shard in shards]


# --- where shards lie ---


def test_six_shards_lie_two_on_each_master_next_but_two_to_each_other(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    for word in ("plain", "{a}b", "a b", "漢"):
        sku = shared_sides[0].name(word)
        sharded(shared_sides[0], sku).open(stock=60, segments=12, shards=SHARDS)
        found = homes(cluster, shards_of(shared_sides[1], sku))
        ports = [node.port for node in found]
        assert set(Counter(ports).values()) == {2}
        assert ports[:3] == ports[3:]
        assert len(set(ports)) == 3


def test_all_keys_of_a_shard_are_in_one_slot_and_copies_of_the_directory_in_several(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    side, node = shared_sides[0], cluster.nodes[0]
    sku = side.name("{odd} sku}")
    pool = sharded(side, sku)
    pool.open(stock=60, segments=12, shards=SHARDS, limit_per_customer=20)
    for number in range(30):
        with pool.grant(Order(f"o{number}", 2, customer_id=f"c{number}"), timeout=LONG):
            pass
    slots = set()
    for shard in shards_of(side, sku):
        keys = [*shard_keys(shard).listed(), f"{shard_keys(shard).lock}:7"]
        (slot,) = {node.ask("CLUSTER", "KEYSLOT", key) for key in keys}
        slots.add(slot)
    assert len(slots) == SHARDS
    copies = [directory_copy(sku, copy) for copy in range(COPIES)]
    assert len({node.ask("CLUSTER", "KEYSLOT", key) for key in copies}) == COPIES
    assert all(cluster.master_of(key).ask("GET", key).startswith("open ") for key in copies)


# --- sales ---


class Sale:
    """Sellers of two processes, who note what became of their orders."""

    def __init__(self, sides: tuple[Side, Side], stock: int, *, shards: int = SHARDS) -> None:
        self.sides, self.stock, self.sku = sides, stock, sides[0].name("sale")
        self.pools = [sharded(side, self.sku) for side in sides]
        self.pools[0].open(stock=stock, segments=4 * shards, shards=shards)
        self.sold: list[int] = []
        self.refused: list[SoldOut] = []
        self.may_end = threading.Event()
        """Until it is set, the second half of the stock stays."""
        self.may_end.set()
        self.progress = threading.Semaphore(0)

    def sell(self, process: int, number: int, quantities: Callable[[random.Random], int]) -> None:
        """Reserve and confirm, give a tenth back, until single units are refused."""
        chance, pool = random.Random(f"{process} {number}"), self.pools[process]
        for index in range(10_000):
            if sum(self.sold) > self.stock / 2:
                assert self.may_end.wait(LONG)
            order = Order(f"o{process}-{number}-{index}", quantities(chance))
            answer = pool.reserve(order)
            if isinstance(answer, SoldOut):
                assert answer.available < order.quantity
                self.refused.append(answer)
                if order.quantity == 1 and answer.reserved == 0:
                    return
                continue
            assert isinstance(answer, Reserved), answer
            assert answer.quantity == order.quantity
            if chance.random() < 0.1:
                assert pool.cancel(order.order_id).state == "cancelled"
                continue
            ended = pool.confirm(order.order_id)
            assert isinstance(ended, Settled)
            self.sold.append(order.quantity)
            self.progress.release()
        pytest.fail("never refused")

    def start(self, quantities: Callable[[random.Random], int]) -> list[Any]:
        return [
            side.start(partial(self.sell, process, number, quantities))
            for process, side in enumerate(self.sides)
            for number in range(SELLERS)
        ]

    def check(self) -> None:
        """Every unit is sold, once."""
        assert sum(self.sold) == self.stock
        assert self.pools[0].finish_transfers() == 0
        report = self.pools[1].audit()
        assert report.is_clean
        assert (report.away, report.oversold) == (0, 0)
        assert (report.state.available, report.state.reserved, report.state.confirmed) == (0, 0, self.stock)


def mixed(chance: random.Random) -> int:
    """Small orders, and now and then one that no shard can serve by itself."""
    return chance.choice([1, 1, 1, 2, 3, 4, 5, 5, 150])


@pytest.mark.parametrize("way", [WAYS[0], *in_the_long_run(*WAYS[1:])])
def test_a_shard_whose_slot_moves_in_mid_sale_costs_no_error_and_no_unit(
    cluster: Cluster, shared_sides: tuple[Side, Side], way: str
) -> None:
    sale = Sale(shared_sides, 900)
    key = shard_keys(shards_of(shared_sides[0], sale.sku)[1]).meta
    sale.may_end.clear()
    sellers = sale.start(mixed)
    for _ in range(20):
        assert sale.progress.acquire(timeout=LONG)
    mover = SlotMover(cluster, key)
    mover.move(way)
    assert not all(seller.done() for seller in sellers)
    sale.may_end.set()
    for seller in sellers:
        seller.result(LONG)
    sale.check()
    assert cluster.master_of(key) is mover.target


# --- archived ---
