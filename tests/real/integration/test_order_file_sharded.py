"""The real order file, sold in shards on a cluster: as many units as on one server, and no refusal without a reason.

Which orders get the last units differs from one counter's answer, for about one order in a thousand: a page's orders go
to all shards at once, and those that are short at home come after the others. At one shard every answer is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented.models import SoldOut
from segmented.stock.sharded import ShardedPool
from segmented.stores.redis import RedisStore
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_file import LIMIT, STOCK, all_orders, one_counter, sell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.errors import SegmentedError
    from segmented.models import Order, Taken
    from tests.support.servers.deployments import Cluster

SHARDS_MAX: Final = 6
OTHERS_MAX: Final = 100
"""Of 69,659 orders."""


class Watched(ShardedPool):
    """A pool that checks each refusal: nobody gives units back meanwhile, so what is left afterwards was there."""

    def reserve_many(self, orders: Iterable[Order], *, partial: bool = False) -> list[Taken | SegmentedError]:
        answers = super().reserve_many(orders, partial=partial)
        refused = [answer.quantity for answer in answers if isinstance(answer, SoldOut)]
        assert self.state().available < min(refused, default=STOCK + 1)
        return answers


@pytest.fixture(scope="module")
def orders() -> list[Order]:
    return all_orders()


@pytest.fixture(scope="module")
def expectations(orders: list[Order]) -> dict[int | None, dict[str, str]]:
    """Return what becomes of each order where there is one counter, by the limit."""
    return {limit: one_counter(orders, limit) for limit in (None, LIMIT)}


@pytest.fixture
def store(cluster: Cluster) -> Iterator[RedisStore]:
    with RedisStore.from_url(cluster.url) as store:
        yield store


@pytest.mark.parametrize(
    ("segments", "limit"),
    [
        *[(1, None), (7, LIMIT), (20, None), (64, LIMIT)],
        *in_the_long_run((1, LIMIT), (7, None), (20, LIMIT), (64, None)),
    ],
)
def test_the_real_order_file_sells_as_much_in_shards_as_on_one_server(
    cluster: Cluster,
    store: RedisStore,
    orders: list[Order],
    expectations: dict[int | None, dict[str, str]],
    limit: int | None,
    segments: int,
) -> None:
    expected = expectations[limit]
    sold = sum(order.quantity for order in orders if expected[order.order_id] == "confirmed")
    pool = Watched(store, f"cdnow {segments} {limit}")
    pool.open(stock=STOCK, segments=segments, shards=min(segments, SHARDS_MAX), limit_per_customer=limit)
    found = sell(pool, orders)
    others = [order_id for order_id, fate in expected.items() if found[order_id] != fate]
    assert len(others) <= (0 if segments == 1 else OTHERS_MAX)
    state = pool.state()
    assert (state.available, state.reserved, state.confirmed) == (STOCK - sold, 0, sold)
    report = pool.audit()
    assert report.is_clean
    assert report.away == 0
    for master in cluster.masters():
        master.ask("FLUSHALL")
