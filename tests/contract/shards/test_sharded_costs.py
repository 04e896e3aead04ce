"""How many commands an order costs in a pool in shards, as the page on clusters says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from segmented import Reserved, Settled, SoldOut
from segmented.stock import ShardedPool

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.fixtures.stores import Side

SENT: Final = ("cmdstat_evalsha", "cmdstat_delifeq")
"""What the library sends here; a script's own commands are counted under other names."""
EACH: Final = 1_000


def sent(server: redis.Redis) -> int:
    found: Any = server.info("commandstats")
    return sum(found.get(name, {"calls": 0})["calls"] for name in SENT)


@pytest.mark.parametrize("shards", [3, 5])
def test_an_order_costs_as_many_commands_as_the_page_says(plain_redis_side: Side, shards: int) -> None:
    server = plain_redis_side.raw()
    warm = ShardedPool(plain_redis_side.store, plain_redis_side.name())
    warm.open(stock=EACH * shards, segments=shards, shards=shards)
    warm.reserve("one", quantity=EACH + 1)
    warm.confirm("one")
    warm.reserve("all of it", quantity=EACH * shards)
    pool = ShardedPool(plain_redis_side.store, plain_redis_side.name())
    pool.open(stock=EACH * shards, segments=shards, shards=shards)
    pool.state()

    def cost(call: Callable[[], object], kind: type) -> int:
        before = sent(server)
        assert isinstance(call(), kind)
        return sent(server) - before

    assert cost(lambda: pool.reserve("has enough"), Reserved) == 1
    assert cost(lambda: pool.confirm("has enough"), Settled) == 1
    assert cost(lambda: pool.reserve("one gives", quantity=EACH + EACH // 4), Reserved) == 7 + 2 * shards
    assert cost(lambda: pool.reserve("refused", quantity=EACH * shards), SoldOut) == 1 + 2 * shards
    assert cost(lambda: pool.reserve("refused again", quantity=EACH * shards), SoldOut) == 1
