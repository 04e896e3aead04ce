"""Any calls of a gated pool in shards, in any order, with deaths in between: SQL and Redis agree at the end."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import Order, RedisStore, Reserved, SoldOut
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

BUYERS: Final = 6


@pytest.mark.parametrize("seed", range(3))
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
            lambda: pool.reserve_many([Order(f"m-{number}-{each}", chance.randint(1, 6)) for each in range(3)]),
            lambda: pool.confirm(known),
            lambda: pool.cancel(known),
            lambda: pool.confirm_many([known]),
            lambda: pool.restock(chance.randint(1, 5), restock_id=f"r-{number}"),
            lambda: pool.withdraw(chance.randint(1, 9), withdraw_id=f"w-{number}"),
            lambda: pool.resize(chance.randint(3, 9)),
            pool.finish_transfers,
            pool.expire,
        ]
        orders.extend([f"o-{number}", *(f"m-{number}-{each}" for each in range(3))])
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


def test_many_buyers_at_once_sell_exactly_the_stock_over_all_shards(
    store: RedisStore, gate: Gate, valkey: ValkeyServer, order_database: str
) -> None:
    ShardedPool(store, SKU, gate=gate).open(stock=240, segments=6, shards=3)
    refused: list[int] = []

    def buy(buyer: int) -> None:
        pool, chance = ShardedPool(store, SKU, gate=gate), random.Random(buyer)
        for number in range(240):
            order_id, quantity = f"{buyer}-{number}", chance.randint(1, 6)
            answer = pool.reserve(order_id, quantity=quantity)
            if isinstance(answer, SoldOut):
                refused.append(answer.available)
                if quantity == 1:
                    return
            elif isinstance(answer, Reserved):
                (pool.cancel if chance.random() < 0.2 else pool.confirm)(order_id)

    with ThreadPoolExecutor(BUYERS) as threads:
        list(threads.map(buy, range(BUYERS)))
    pool = ShardedPool(store, SKU, gate=gate)
    pool.finish_transfers()
    for number in range(pool.available()):  # given back after the last buyer left
        pool.reserve(f"rest-{number}")
        pool.confirm(f"rest-{number}")
    assert judged(valkey.url, order_database) == (240, 240, 0)
    assert (len(refused) >= BUYERS, pool.audit().is_clean) == (True, True)
