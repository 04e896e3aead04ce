"""Reserved and submitted orders of a pool with its gate: the database answers for what the pool does not know.

The pool was opened again in epoch 2, because its keys were lost: it does not know what it sold in epoch 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented import Decided, Order, Pool, RedisStore, Reserved, Settled, SoldOut
from segmented.errors import OrderMismatch, OrderUnknown, PoolNotGated
from segmented.orders import Gate, reopen_gated, take_envelope
from segmented.stock.outbox import Outbox
from tests.support.pools.both_sides import UNITS, judged, sql_rows

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer

SKU: Final = "mug"


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """A pool of 20 units that sold 2 of them."""
    pool = Pool(store, SKU, gate=gate, outbox=Outbox(publish_after=600))
    pool.open(stock=20, segments=2)
    pool.reserve("sold", quantity=2)
    pool.confirm("sold")
    return pool


def reopen(store: RedisStore, gate: Gate) -> None:
    store.client.flushdb()
    reopen_gated(Pool(store, SKU), gate, segments=2, epoch=2)


def is_sold(answer: object) -> bool:
    return isinstance(answer, Decided | Settled) and (answer.state, answer.quantity, answer.replay) == (
        "confirmed",
        2,
        True,
    )


def test_an_order_that_only_the_database_knows_takes_no_units(
    store: RedisStore, gate: Gate, pool: Pool, order_database: str
) -> None:
    reopen(store, gate)
    fresh = Pool(store, SKU, outbox=Outbox(), gate=gate)
    assert is_sold(fresh.reserve("sold", quantity=2))
    first, second, third = fresh.reserve_many([Order("new"), Order("sold", 2), Order("sold", 5)])
    assert isinstance(first, Reserved)
    assert is_sold(second)
    assert isinstance(third, OrderMismatch)
    with pytest.raises(OrderMismatch):
        fresh.reserve("sold", quantity=5)
    assert is_sold(fresh.submit("sold", quantity=2).outcome)
    assert pool.state().available == 17
    fresh.confirm("new")
    (row,) = sql_rows(order_database, UNITS)
    assert tuple(row) == (SKU, 20, 3, 2)
    state = pool.state()
    assert (state.stocked, state.confirmed, state.available) == (18, 1, 17)


def test_an_order_that_the_database_has_voided_takes_no_units_of_a_later_epoch(
    store: RedisStore, gate: Gate, pool: Pool
) -> None:
    pool.reserve("void", quantity=3)
    pool.cancel("void")
    reopen(store, gate)
    fresh = Pool(store, SKU, outbox=Outbox(), gate=gate)
    for answer in (fresh.reserve("void", quantity=3), fresh.submit("void", quantity=3).outcome):
        assert isinstance(answer, Decided)
        assert (answer.state, answer.replay) == ("cancelled", True)
    assert fresh.state().available == 18


def test_a_sold_order_is_not_refused_as_sold_out(store: RedisStore, gate: Gate, pool: Pool) -> None:
    del pool
    reopen(store, gate)
    fresh = Pool(store, SKU, outbox=Outbox(), gate=gate)
    fresh.reserve("rest", quantity=18)
    assert is_sold(fresh.reserve("sold", quantity=2))
    assert isinstance(fresh.reserve("late"), SoldOut)


def test_a_process_that_knew_the_first_epoch_gives_the_units_of_a_sold_order_back(
    store: RedisStore, gate: Gate, pool: Pool
) -> None:
    reopen(store, gate)
    assert is_sold(pool.reserve("sold", quantity=2))
    assert (pool.state().available, pool.state().reserved) == (18, 0)


def test_a_handle_has_the_databases_decision_on_an_order_that_the_pool_does_not_know(
    store: RedisStore, gate: Gate, pool: Pool
) -> None:
    handle = pool.submit("sold", quantity=2)
    assert is_sold(handle.wait(0))
    reopen(store, gate)
    assert pool.handle("sold").refresh() == "confirmed"
    assert is_sold(pool.handle("sold").wait(0))
    assert pool.handle("nobody's").refresh() == "unknown"
    for unknown in (pool.handle("nobody's"), pool.plain.handle("sold")):
        with pytest.raises(OrderUnknown):
            unknown.wait(0)


def test_submitted_orders_end_on_both_sides(gate: Gate, pool: Pool, valkey: ValkeyServer, order_database: str) -> None:
    queue = Pool(pool.store, SKU, gate=gate, outbox=Outbox(decides="in the worker", publish_after=600))
    handles = [pool.submit("accepted"), queue.submit("queued"), pool.submit("cancelled", quantity=3)]
    pool.cancel("cancelled")
    queue.submit("cancelled in the queue")
    queue.cancel("cancelled in the queue")
    take_envelope(pool, ["accepted", "queued", "cancelled", "cancelled in the queue"], gate=gate)
    outcomes = [handle.wait(0) for handle in [*handles, queue.handle("cancelled in the queue")]]
    states = [outcome.state for outcome in outcomes if isinstance(outcome, Decided | Settled)]
    assert states == ["confirmed", "confirmed", "cancelled", "cancelled"]
    assert judged(valkey.url, order_database) == (20, 4, 16)


def test_a_gate_over_a_pool_without_one_takes_no_orders(store: RedisStore, gate: Gate) -> None:
    Pool(store, "cup").open(stock=3, segments=1)
    pool = Pool(store, "cup", outbox=Outbox(), gate=gate)
    for call in (lambda: pool.reserve("a"), lambda: pool.submit("a")):
        with pytest.raises(PoolNotGated):
            call()
    assert pool.state().available == 3
