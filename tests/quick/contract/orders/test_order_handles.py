"""Submitting through the pool, and waiting for what becomes of an order, in both colours of both stores."""

from collections.abc import Sequence

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderUnknown
from segmented.models import Order
from segmented.models.submitted import Deciding
from segmented.stock import AsyncPool, Outbox, Pool
from tests.fixtures.stores import Side
from tests.support.contract.orders.submitting import take, waiting
from tests.support.contract.pools.shop import Shop

DEADLINE = 60.0
BOTH: list[Deciding] = ["at acceptance", "in the worker"]


class RecordingPublisher:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, tuple[str, ...], int | None]] = []

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        self.given.append((sku, tuple(order_ids), segment))

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Not called here."""

    def room(self) -> int | None:
        return None


def opened(
    side: Side, decides: Deciding = "at acceptance", *, stock: int = 9, publisher: RecordingPublisher | None = None
) -> tuple[Pool, Shop]:
    sku = side.name()
    outbox = Outbox(publisher, decides=decides)
    pool: Pool = side.made(
        lambda store: Pool(store, sku, outbox=outbox), lambda store: AsyncPool(store, sku, outbox=outbox)
    )
    pool.open(stock=stock, segments=3)
    return pool, Shop(side, sku)


def decide(shop: Shop, *order_ids: str) -> None:
    take(shop, *order_ids)
    shop.confirm_many(*order_ids)


@pytest.mark.parametrize("decides", BOTH)
def test_submitted_orders_are_told_to_the_publisher_once(side: Side, decides: Deciding) -> None:
    publisher = RecordingPublisher()
    pool, shop = opened(side, decides, publisher=publisher)
    pool.submit("a", quantity=2)
    handle = pool.submit("a", quantity=2)
    pool.submit(Order("b", 1))
    assert handle.state == ("reserved" if decides == "at acceptance" else "queued")
    assert handle.outcome is None
    assert [given[:2] for given in publisher.given] == [(shop.sku, ("a",)), (shop.sku, ("b",))]
    assert waiting(shop) == 2
    assert shop.sku in side.execute(op.ListOutboxes())
    shop.check_books()


def test_an_order_that_nobody_submitted_is_unknown_at_once(side: Side) -> None:
    pool, _ = opened(side)
    handle = pool.handle("nobody")
    with pytest.raises(OrderUnknown):
        handle.wait(timeout=None)
    assert handle.refresh() == "unknown"
    with pytest.raises(InvalidInput, match=r"^order id '' must have 1 to 256 bytes of UTF-8$"):
        pool.handle("")


@pytest.mark.parametrize("decides", BOTH)
def test_other_content_is_a_mismatch_in_its_place(side: Side, decides: Deciding) -> None:
    pool, shop = opened(side, decides)
    pool.submit("a")
    with pytest.raises(OrderMismatch):
        pool.submit("a", quantity=2)
    answers = pool.submit_many([Order("a", 2), Order("b", 1)])
    assert isinstance(answers[0], OrderMismatch)
    assert waiting(shop) == 2
