"""Submitting through the pool, and waiting for what becomes of an order, in both colours of both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, OrderMismatch, OrderUnknown
from segmented.models import Decided, Order, Settled, SoldOut
from segmented.models.submitted import Dead, Deciding
from segmented.stock import AsyncPool, Outbox, Pool
from tests.support.contract.orders.submitting import buried, put_off, submitted, take, waiting
from tests.support.contract.pools.shop import LONG_MS, Shop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.stores import Side

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


@pytest.mark.parametrize("decides", BOTH)
def test_an_order_that_is_decided_has_its_outcome_at_once(side: Side, decides: Deciding) -> None:
    pool, shop = opened(side, decides)
    handle = pool.submit("a", quantity=2)
    decide(shop, "a")
    outcome = handle.wait(timeout=DEADLINE)
    assert isinstance(outcome, Settled)
    assert (outcome.state, outcome.quantity, handle.state) == ("confirmed", 2, "confirmed")
    assert handle.outcome == handle.wait() == outcome
    assert pool.submit("a", quantity=2).state == "confirmed"


def test_a_time_that_is_over_leaves_the_order_on_its_way(side: Side) -> None:
    pool, _ = opened(side, "in the worker")
    handle = pool.submit("a")
    assert handle.wait(timeout=0) is None
    assert (handle.state, handle.outcome) == ("queued", None)


def test_a_dead_order_has_an_outcome_until_it_is_replayed(side: Side) -> None:
    pool, shop = opened(side)
    handle = pool.submit("a")
    buried(shop, "a")
    assert handle.wait(timeout=DEADLINE) == Dead("a", 1)
    assert handle.state == "dead"
    side.execute(op.ReplayDead(shop.sku, ("a",)))
    assert handle.refresh() == "reserved"
    assert handle.outcome is None


def test_an_order_that_nobody_submitted_is_unknown_at_once(side: Side) -> None:
    pool, _ = opened(side)
    handle = pool.handle("nobody")
    with pytest.raises(OrderUnknown):
        handle.wait(timeout=None)
    assert handle.refresh() == "unknown"
    with pytest.raises(InvalidInput, match=r"^order id '' must have 1 to 256 bytes of UTF-8$"):
        pool.handle("")


def test_a_refusal_at_acceptance_is_an_outcome_and_nobody_is_told(side: Side) -> None:
    publisher = RecordingPublisher()
    pool, _ = opened(side, stock=3, publisher=publisher)
    handle = pool.submit("a", quantity=4)
    assert handle.state == "refused"
    assert isinstance(handle.wait(timeout=None), SoldOut)
    assert handle.refresh() == "refused"
    assert isinstance(handle.outcome, SoldOut)
    assert publisher.given == []


def test_a_refusal_by_the_worker_is_an_outcome(side: Side) -> None:
    pool, shop = opened(side, "in the worker", stock=3)
    handle = pool.submit("a", quantity=4)
    take(shop, "a")
    outcome = handle.wait(timeout=DEADLINE)
    assert isinstance(outcome, Decided)
    assert outcome.state == handle.state == "refused"
    assert not outcome


@pytest.mark.parametrize("decides", BOTH)
def test_other_content_is_a_mismatch_in_its_place(side: Side, decides: Deciding) -> None:
    pool, shop = opened(side, decides)
    pool.submit("a")
    with pytest.raises(OrderMismatch):
        pool.submit("a", quantity=2)
    answers = pool.submit_many([Order("a", 2), Order("b", 1)])
    assert isinstance(answers[0], OrderMismatch)
    assert waiting(shop) == 2


@pytest.mark.parametrize("decides", BOTH)
def test_more_than_a_thousand_orders_are_accepted_page_by_page(side: Side, decides: Deciding) -> None:
    publisher = RecordingPublisher()
    pool, shop = opened(side, decides, stock=3_000, publisher=publisher)
    handles = pool.submit_many(Order(f"o{number}", 1) for number in range(2_001))
    assert len(handles) == waiting(shop) == sum(len(ids) for _, ids, _ in publisher.given) == 2_001


def test_orders_are_published_by_the_segment_that_their_units_are_from(side: Side) -> None:
    publisher = RecordingPublisher()
    pool, _ = opened(side, stock=9, publisher=publisher)  # three units in each of three segments
    pool.submit_many(Order(f"o{number}", 1) for number in range(5))
    assert publisher.given == [(pool.sku, ("o0", "o1", "o2"), 0), (pool.sku, ("o3", "o4"), 1)]


def test_an_order_that_is_put_off_says_why(side: Side) -> None:
    pool, shop = opened(side)
    handle = pool.submit("a")
    take(shop, "a", work_ms=LONG_MS)
    put_off(shop, "a", reason="no such address")
    assert handle.refresh() == "reserved"
    assert submitted(shop, "a").reason == "no such address"
