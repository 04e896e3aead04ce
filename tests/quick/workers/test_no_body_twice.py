"""A body or step does not run for an order that the database has decided, whatever the pool says."""

from collections.abc import Iterator

import pytest

from segmented import Order, Outbox, Pool, RedisStore
from segmented.errors import OrderMismatch
from segmented.orders import Gate, take_envelope
from segmented.orders.sale import take_order
from segmented.servers import ValkeyServer
from segmented.stock import Grant
from tests.support.pools.forgetting import SKU, forgotten, sell

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def stranger(valkey: ValkeyServer) -> Iterator[Pool]:
    """The pool in another process."""
    with RedisStore.from_url(valkey.url) as store:
        yield Pool(store, SKU)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = Pool(store, SKU, outbox=Outbox())
    Pool(pool.store, pool.sku, gate=gate).open(stock=20, segments=2)
    return pool


def test_no_body_runs_for_a_sold_order_after_an_older_copy_of_the_keys_was_restored(
    pool: Pool, gate: Gate, stranger: Pool
) -> None:
    sell(stranger, gate, "first")  # it has compared the pool with the database, and seen nothing since
    with forgotten(pool):
        sell(pool, gate, "a")
    ran: list[str] = []
    take_order(stranger, gate, Order("a"), timeout=60, body=lambda grant: ran.append(grant.order_id))
    assert (ran, gate.confirmed_units(SKU)) == ([], 2)


def test_no_body_runs_for_an_id_that_the_database_has_with_other_content(pool: Pool, gate: Gate) -> None:
    gate.confirm(order_id="a", sku=SKU, segment=0, quantity=1, epoch=1)
    ran: list[str] = []

    def body(grant: Grant) -> None:
        ran.append(grant.order_id)

    with pytest.raises(OrderMismatch, match="quantity 1 is stored, 2 was given"):
        take_order(pool, gate, Order("a", 2), timeout=60, body=body)
    assert (ran, pool.state().available, pool.state().reserved) == ([], 20, 0)


def test_no_step_is_called_with_a_sold_order_after_an_older_copy_was_restored(
    pool: Pool, gate: Gate, stranger: Pool
) -> None:
    pool.submit_many([Order("a"), Order("b")])
    with forgotten(pool):
        take_envelope(pool, ["a"], gate=gate)
    called: list[str] = []
    take_envelope(stranger, ["a", "b"], gate=gate, step=lambda order: called.append(order.order.order_id))
    assert (called, gate.confirmed_units(SKU)) == (["b"], 2)


def test_a_step_is_called_once_if_its_worker_died_before_it_told_the_pool(pool: Pool, gate: Gate) -> None:
    pool.submit_many([Order("a")])
    called: list[str] = []
    gate.confirm(order_id="a", sku=SKU, segment=0, quantity=1, epoch=1)
    report = take_envelope(pool, ["a"], gate=gate, step=lambda order: called.append(order.order.order_id))
    assert ([(one.order_id, one.state) for one in report.settled], called) == ([("a", "confirmed")], [])
