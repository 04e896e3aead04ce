"""How many commands an order costs in a pool in shards, as the page on clusters says."""

from collections.abc import Callable
from typing import Final

import pytest

from segmented import Reserved, Settled, SoldOut
from segmented.stock import ShardedPool
from tests.fixtures.stores import Side
from tests.support.contract.parking import CountScripts

EACH: Final = 1_000


@pytest.mark.parametrize("shards", [3, 5])
def test_an_order_costs_as_many_commands_as_the_page_says(
    plain_redis_side: Side, shards: int, monkeypatch: pytest.MonkeyPatch, count_scripts: CountScripts
) -> None:
    monkeypatch.setattr("segmented.stock.sharded.plans.FRESH_SECONDS", 600.0)  # also on a machine that stands still
    monkeypatch.setattr("segmented.stock.sharded.gathering.SHORTAGE_SECONDS", 600.0)
    warm = ShardedPool(plain_redis_side.store, plain_redis_side.name())
    warm.open(stock=EACH * shards, segments=shards, shards=shards)
    warm.reserve("one", quantity=EACH + 1)
    warm.confirm("one")
    warm.reserve("all of it", quantity=EACH * shards)
    pool = ShardedPool(plain_redis_side.store, plain_redis_side.name())
    pool.open(stock=EACH * shards, segments=shards, shards=shards)
    pool.state()
    pool.reserve("registered")  # with workers: once before the first hold of a process
    pool.cancel("registered")

    sent = count_scripts(plain_redis_side.raw(), pool.sku)

    def cost(call: Callable[[], object], kind: type) -> int:
        before = sent()
        assert isinstance(call(), kind)
        return sent() - before

    assert cost(lambda: pool.reserve("has enough"), Reserved) == 1
    assert cost(lambda: pool.confirm("has enough"), Settled) == 1
    assert cost(lambda: pool.reserve("one gives", quantity=EACH + EACH // 4), Reserved) == 7 + 2 * shards
    assert cost(lambda: pool.reserve("refused", quantity=EACH * shards), SoldOut) == 1 + 2 * shards
    assert cost(lambda: pool.reserve("refused again", quantity=EACH * shards), SoldOut) == 1
