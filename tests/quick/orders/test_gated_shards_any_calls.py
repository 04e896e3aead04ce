"""Any calls of a gated pool in shards, in any order, with deaths in between: SQL and Redis agree at the end."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from segmented import Order, RedisStore
from segmented.errors import SegmentedError
from segmented.stock import ShardedPool
from tests.support.dying import Died, DyingStore, StepCounter, let_die
from tests.support.pools.both_sides import judged
from tests.support.pools.forgetting import SKU

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_shards")


@pytest.mark.parametrize("seed", range(2))
def test_any_calls_in_any_order_with_deaths_in_between_leave_both_sides_agreeing(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str, seed: int
) -> None:
    chance = random.Random(seed)
    counter = StepCounter()
    let_die(gate, counter)
    ShardedPool(store, SKU, gate=gate).open(stock=60, segments=6, shards=3)
    orders: list[str] = []

    def one(pool: ShardedPool, number: int) -> Any:  # noqa: ANN401  # any answer
        known = chance.choice(orders) if orders else "none"
        calls: list[Callable[[], Any]] = [
            lambda: pool.reserve(f"o-{number}", quantity=chance.randint(1, 12)),
            lambda: pool.reserve_many([Order(f"m-{number}-{each}", chance.randint(1, 6)) for each in range(2)]),
            lambda: pool.confirm(known),
            lambda: pool.cancel(known),
            lambda: pool.confirm_many([known]),
            lambda: pool.restock(chance.randint(1, 5), restock_id=f"r-{number}"),
            lambda: pool.withdraw(chance.randint(1, 9), withdraw_id=f"w-{number}"),
            lambda: pool.resize(chance.randint(3, 9)),
            pool.finish_transfers,
            pool.expire,
        ]
        orders.extend([f"o-{number}", *(f"m-{number}-{each}" for each in range(2))])
        return chance.choice(calls)()

    for number in range(60):
        counter.counted, counter.steps = 0, chance.choice([None, chance.randint(1, 60)])
        with suppress(Died, SegmentedError):
            one(ShardedPool(DyingStore(store, counter), SKU, gate=gate), number)
        counter.steps = None
    pool = ShardedPool(store, SKU, gate=gate)
    for shard in pool.shards:  # a change that died is finished by its id
        for change in gate.unfinished_changes(shard.sku):
            if change.kind == "restocked":
                shard.restock(change.units, restock_id=change.change_id)
            else:
                shard.withdraw(change.units, withdraw_id=change.change_id)
    for order in pool.orders(state="reserved"):
        pool.cancel(order.order_id)
    pool.finish_transfers()
    stocked, _, _ = judged(valkey.url, order_database)
    assert stocked == pool.state().stocked
    assert pool.audit().is_clean
    for shard in pool.shards:
        assert shard.state().frozen is None
