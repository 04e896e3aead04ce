"""Orders submitted to a pool in shards on a cluster of three masters, and workers who lose every tenth message."""

import queue
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from segmented import protocol as op
from segmented.keys import shard_keys
from segmented.models import Order, SoldOut
from segmented.orders import take_envelope
from segmented.stock import AsyncShardedPool, Outbox, ShardedPool, pool_of
from segmented.stock.outbox import SweepTerms, sweep
from segmented.stock.sharded.opening import directory_plan
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.support.servers.deployments import Cluster

LONG: Final = 150.0
STOCK: Final = 600
SHARDS: Final = 6
SELLERS: Final = 2
"""Threads a process."""


class LossyBroker:
    """A broker between publishers and workers; every tenth message that is put is lost."""

    def __init__(self) -> None:
        self.messages: queue.Queue[tuple[str, list[str]]] = queue.Queue()
        self._chance, self.lost = random.Random("lossy"), 0

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:  # noqa: ARG002  # of the protocol
        if self._chance.random() < 0.1:
            self.lost += 1
        else:
            self.send(sku, order_ids)

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        self.messages.put(("".join(sku), list(order_ids)))  # plain text, as on a wire

    def room(self) -> int | None:
        return None


def submitting(pool: ShardedPool, name: str) -> int:
    """Submit batches until single units are refused; returns the units that were accepted."""
    chance, accepted = random.Random(name), 0
    for index in range(10_000):
        orders = [Order(f"{name}-{index}-{place}", chance.choice([1, 1, 2, 3, 5, 120])) for place in range(10)]
        handles = pool.submit_many(orders)
        is_over = False
        for order, handle in zip(orders, handles, strict=True):
            assert not isinstance(handle, Exception), handle
            if handle.state == "reserved":
                accepted += order.quantity
            else:
                assert isinstance(handle.outcome, SoldOut)
                assert handle.outcome.available < order.quantity
                is_over = is_over or order.quantity == 1
        if is_over:
            break
    return accepted


def working(store: RedisStore, broker: LossyBroker) -> int:
    """Take envelopes until an empty one comes; returns how many orders were settled here first."""
    settled = 0
    while True:
        sku, ids = broker.messages.get(timeout=LONG)
        if not ids:
            return settled
        report = take_envelope(pool_of(store, sku), ids)
        settled += sum(not one.replay for one in report.settled)


def test_what_is_submitted_at_3_masters_is_sold_to_the_last_unit_and_confirmed_once(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    broker, sku = LossyBroker(), shared_sides[0].name("submitted")
    outbox = Outbox(broker, publish_after=0.05)
    pools: list[ShardedPool] = [
        side.made(
            lambda store: ShardedPool(store, sku, outbox=outbox),
            lambda store: AsyncShardedPool(store, sku, outbox=outbox),
        )
        for side in shared_sides
    ]
    pools[0].open(stock=STOCK, segments=4 * SHARDS, shards=SHARDS)
    shards = shared_sides[0].run(directory_plan(sku)).shards
    assert len({cluster.master_of(shard_keys(shard).meta).port for shard in shards}) == 3
    with RedisStore.from_url(cluster.url) as store:
        workers: list[Any] = [shared_sides[0].start(partial(working, store, broker)) for _ in range(2)]
        sellers = [
            side.start(partial(submitting, pool, f"o{process}-{number}"))
            for process, (side, pool) in enumerate(zip(shared_sides, pools, strict=True))
            for number in range(SELLERS)
        ]
        accepted = sum(seller.result(LONG) for seller in sellers)
        assert accepted == STOCK
        names = [name for name in store.execute(op.ListOutboxes()) if name in set(shards)]
        assert len(names) == SHARDS
        shared_sides[0].pass_time(0.1)
        swept = sum(
            sweep(store.execute, pool_of(store, name).sku, broker, terms=SweepTerms(base=60)).published
            for name in names
        )
        assert swept >= broker.lost > 0
        for _ in workers:
            broker.messages.put(("", []))
        settled = sum(worker.result(LONG) for worker in workers)
        assert [store.execute(op.ReadOutbox(shard)).waiting for shard in shards] == [0] * SHARDS
    assert pools[1].finish_transfers() == 0
    report = pools[0].audit()
    assert report.is_clean
    assert (report.state.available, report.state.reserved, report.state.confirmed) == (0, 0, STOCK)
    assert settled == report.state.order_count
