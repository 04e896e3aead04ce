"""A real order file through the batches: every order gets the answer that one counter would have given it.

`one_counter` says the same in plain Python, with one number for the stock and one for each customer, so
any refusal that segments, batches or limits bring about wrongly shows as a difference.
"""

from collections.abc import Iterator

import pytest

from segmented.models import Order
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.long_run import in_the_long_run
from tests.support.workers.order_file import LIMIT, STOCK, all_orders, one_counter, sell


@pytest.fixture(scope="module")
def orders() -> list[Order]:
    return all_orders()


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


@pytest.mark.parametrize(
    ("segments", "limit"), [(20, LIMIT), *in_the_long_run((1, None), (7, LIMIT), (20, None), (64, LIMIT))]
)
def test_the_real_order_file_sells_alike_at_every_segment_count(
    store: RedisStore, orders: list[Order], segments: int, limit: int | None
) -> None:
    expected = one_counter(orders, limit)
    assert set(expected.values()) == {"confirmed", "cancelled", "sold out"} | ({"limit"} if limit else set())
    sold = sum(order.quantity for order in orders if expected[order.order_id] == "confirmed")
    pool = Pool(store, f"cdnow {segments}")
    pool.open(stock=STOCK, segments=segments, limit_per_customer=limit)
    assert sell(pool, orders) == expected
    state = pool.state()
    assert (state.available, state.reserved, state.confirmed) == (STOCK - sold, 0, sold)
    assert pool.audit().is_clean
