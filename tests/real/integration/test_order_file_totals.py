"""A real order file through the batches: every order gets the answer that one counter would have given it.

`one_counter` says the same in plain Python, with one number for the stock and one for each customer, so
any refusal that segments, batches or limits bring about wrongly shows as a difference.

A page is reserved, then all of it confirmed but every tenth order, which is cancelled.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from segmented.celery.selling.orders_file import read_orders
from segmented.errors import SegmentedError
from segmented.models import LimitReached, Order, Reserved, Settled, SoldOut, Taken
from segmented.servers import ValkeyServer
from segmented.stock import Pool, ShardedPool
from segmented.stores.redis import RedisStore
from tests.support.long_run import in_the_long_run
from tests.support.paths import CDNOW

PAGE: Final = 1_000
STOCK: Final = 60_000
"""Less than the 167,881 units that the file asks for."""
LIMIT: Final = 5
CANCELLED_EVERY: Final = 10


def all_orders() -> list[Order]:
    """Return the orders of the file."""
    return [line.order for line in read_orders(CDNOW).orders.values()]


def pages(orders: list[Order]) -> Iterator[list[Order]]:
    for first in range(0, len(orders), PAGE):
        yield orders[first : first + PAGE]


def is_cancelled(order: Order) -> bool:
    return int(order.order_id.rpartition("-")[2]) % CANCELLED_EVERY == 0


def one_counter(orders: list[Order], limit: int | None) -> dict[str, str]:
    """Return what becomes of each order where nothing is segmented and nothing comes in batches."""
    left, bought, fates = STOCK, Counter[str | None](), dict[str, str]()
    for page in pages(orders):
        for order in page:
            if limit is not None and bought[order.customer_id] + order.quantity > limit:
                fates[order.order_id] = "limit"
            elif left < order.quantity:
                fates[order.order_id] = "sold out"
            else:
                fates[order.order_id] = "cancelled" if is_cancelled(order) else "confirmed"
                left -= order.quantity
                bought[order.customer_id] += order.quantity
        for order in page:
            if fates[order.order_id] == "cancelled":
                left += order.quantity
                bought[order.customer_id] -= order.quantity
    return fates


def fate_of(order: Order, answer: Taken | SegmentedError) -> str:
    """Name an answer; a refusal that it does not itself bear out is wrong."""
    match answer:
        case Reserved(quantity=quantity, replay=False):
            assert quantity == order.quantity
            return "cancelled" if is_cancelled(order) else "confirmed"
        case SoldOut(available=available, quantity=quantity):
            assert available < quantity == order.quantity
            return "sold out"
        case LimitReached(taken=taken, limit=limit):
            assert taken + order.quantity > limit
            return "limit"
    pytest.fail(f"{order}: {answer}")


def sell(pool: Pool | ShardedPool, orders: list[Order]) -> dict[str, str]:
    """Sell all orders, and return what became of each."""
    fates: dict[str, str] = {}
    for page in pages(orders):
        found = {order: fate_of(order, answer) for order, answer in zip(page, pool.reserve_many(page), strict=True)}
        fates |= {order.order_id: fate for order, fate in found.items()}
        for end, settle in (("confirmed", pool.confirm_many), ("cancelled", pool.cancel_many)):
            ending = [order for order, fate in found.items() if fate == end]
            ended = settle(ending if isinstance(pool, ShardedPool) else [order.order_id for order in ending])  # type: ignore[arg-type]  # a pool of one shard needs no customer
            assert all(isinstance(one, Settled) and one.state == end and not one.replay for one in ended)
    return fates


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
