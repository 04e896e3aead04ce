"""What a pool in shards costs beyond one in a single slot: transfers while it sells, commands when all is sold."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from bench.locks.figures import Figure
from bench.stock.stage import Counter, server_of
from segmented import Reserved, ShardedPool
from segmented.keys import directory_keys, shard_keys
from segmented.stock.sharded.opening import COPIES

if TYPE_CHECKING:
    import redis

    from bench.stock.stage import Stage

SHARDS: Final = 6
SEGMENTS: Final = 24
QUANTITIES: Final = (1, 5)
SHARE_SOLD: Final = 0.9
"""Up to this share of the stock, transfers are to be rare; the rest is drawn together where it is wanted."""
TRANSFERS_MAX: Final = 0.05
COMMANDS_MAX: Final = 2
SEED: Final = 20


def measure_shards(stage: Stage) -> list[Figure]:
    """Sell a pool in shards to its last unit, then go on refusing."""
    with server_of(stage) as (store, client):
        pool = ShardedPool(store, stage.sku("in-shards"))
        stage.skus.pop()  # it has other keys than a pool in one slot
        stock = stage.sizes.sharded_stock
        pool.open(stock=stock, segments=SEGMENTS, shards=SHARDS)
        try:
            early, late = _sell_out(stage, pool, stock)
            counter = Counter(client)
            for index in range(stage.sizes.refused):
                pool.reserve(f"refused-{index}")
            refused = counter.of()[0] / stage.sizes.refused
        finally:
            _remove(client, pool)
    detail = {"shards": SHARDS, "stock": stock, "quantities": list(QUANTITIES)}
    return [
        Figure(
            "transfers a sale, until 90 % is sold", early, "", at_most=TRANSFERS_MAX, is_promise=True, detail=detail
        ),
        Figure("transfers a sale, of the last 10 %", late, "", detail=detail),
        Figure("commands a refused order, in shards", refused, "", at_most=COMMANDS_MAX, is_promise=True),
    ]


def _sell_out(stage: Stage, pool: ShardedPool, stock: int) -> tuple[float, float]:
    """Sell to the last unit; returns transfers a sale before and after the share was sold."""
    random = Random(SEED)  # the same orders in every run
    sold = sales = early_sales = early_transfers = 0
    while sold < stock:
        answer = pool.reserve(f"order-{sales}", quantity=random.randint(*QUANTITIES), partial=True)
        if not isinstance(answer, Reserved):
            message = f"{stock - sold} units are left, and an order was told: {answer}"
            raise TypeError(message)
        sold, sales = sold + answer.quantity, sales + 1
        if early_sales == 0 and sold >= SHARE_SOLD * stock:
            early_sales, early_transfers = sales, transfers_of(pool)
        if sales % 100 == 0:
            stage.told("selling in shards", sold, stock)
    return early_transfers / early_sales, (transfers_of(pool) - early_transfers) / (sales - early_sales)


def transfers_of(pool: ShardedPool) -> int:
    """Count the transfers that the shards have sent so far."""
    kept = (transfer for shard in pool.shards for transfer in shard.state().transfers)
    return sum(transfer.number for transfer in kept if transfer.kind == "sent")


def _remove(client: redis.Redis, pool: ShardedPool) -> None:
    keys = [key for shard in pool.shards for key in shard_keys(shard.sku).listed()]
    client.unlink(*keys, *(directory_keys(pool.sku, copy).directory for copy in range(COPIES)))
