"""A real order file through the batches: every order gets the answer that one counter would have given it.

The file is sold page by page, in its order: a page is reserved, then all of it confirmed but every tenth order, which
is cancelled. `one_counter` says the same in plain Python, with one number for the stock and one for each customer, so
any refusal that segments, batches or limits bring about wrongly shows as a difference.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from segmented.models import LimitReached, Reserved, Settled, SoldOut
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from workers.selling.orders_file import read_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.errors import SegmentedError
    from segmented.models import Order, Taken
    from segmented.servers import ValkeyServer

FILE: Final = Path(__file__).parents[1] / "data" / "cdnow_orders.csv.gz"
PAGE: Final = 1_000
STOCK: Final = 60_000
"""Less than the 167,881 units that the file asks for."""
LIMIT: Final = 5
CANCELLED_EVERY: Final = 10


@pytest.fixture(scope="module")
def orders() -> list[Order]:
    return [line.order for line in read_orders(FILE).orders.values()]


@pytest.fixture
def store(private_valkey: ValkeyServer) -> Iterator[RedisStore]:
    with RedisStore.from_url(private_valkey.url) as store:
        yield store


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


def sell(pool: Pool, orders: list[Order]) -> dict[str, str]:
    fates: dict[str, str] = {}
    for page in pages(orders):
        found = {
            order.order_id: fate_of(order, answer) for order, answer in zip(page, pool.reserve_many(page), strict=True)
        }
        fates |= found
        for end, settle in (("confirmed", pool.confirm_many), ("cancelled", pool.cancel_many)):
            ended = settle(order_id for order_id, fate in found.items() if fate == end)
            assert all(isinstance(one, Settled) and one.state == end and not one.replay for one in ended)
    return fates


@pytest.mark.parametrize("limit", [None, LIMIT], ids=["without a limit", "with a limit"])
def test_the_real_order_file_sells_alike_at_every_segment_count(
    store: RedisStore, orders: list[Order], limit: int | None
) -> None:
    expected = one_counter(orders, limit)
    assert set(expected.values()) == {"confirmed", "cancelled", "sold out"} | ({"limit"} if limit else set())
    sold = sum(order.quantity for order in orders if expected[order.order_id] == "confirmed")
    for segments in (1, 7, 20, 64):
        pool = Pool(store, f"cdnow {segments}")
        pool.open(stock=STOCK, segments=segments, customer_limit=limit)
        assert sell(pool, orders) == expected, segments
        state = pool.state()
        assert (state.available, state.reserved, state.confirmed) == (STOCK - sold, 0, sold)
        assert pool.audit().is_clean
        store.client.flushall()
