"""A body or step does not run for an order that the database has decided, whatever the pool says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import Order, Outbox, Pool, RedisStore, Settled
from segmented.errors import OrderMismatch
from segmented.keys import shard_keys
from segmented.models import Decided
from segmented.orders import cancel_order, open_gated, reopen_gated, take_envelope, take_order
from segmented.stock import Grant
from tests.support.pools.forgetting import SKU, forgotten, sell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def stranger(valkey: ValkeyServer) -> Iterator[Pool]:
    """The pool in another process."""
    with RedisStore.from_url(valkey.url) as store:
        yield Pool(store, SKU)


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = Pool(store, SKU, outbox=Outbox())
    open_gated(pool, gate, stock=20, segments=2)
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


def test_no_step_is_called_with_a_sold_order_after_an_older_copy_was_restored(
    pool: Pool, gate: Gate, stranger: Pool
) -> None:
    pool.submit_many([Order("a"), Order("b")])
    with forgotten(pool):
        take_envelope(pool, ["a"], gate=gate)
    called: list[str] = []
    take_envelope(stranger, ["a", "b"], gate=gate, step=lambda order: called.append(order.order.order_id))
    assert (called, gate.confirmed_units(SKU)) == (["b"], 2)


def test_no_body_runs_for_a_void_order_of_a_pool_that_was_opened_again(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    pool.reserve("a")
    cancel_order(pool, gate, Order("a"))
    store.client.delete(*shard_keys(SKU).listed())
    reopen_gated(pool, gate, segments=2, epoch=2)
    ran: list[str] = []
    answer = take_order(pool, gate, Order("a"), timeout=60, body=lambda grant: ran.append(grant.order_id))
    assert isinstance(answer, Decided)
    assert (answer.state, ran, pool.state().available, pool.state().reserved) == ("cancelled", [], 20, 0)


def test_no_body_runs_for_an_id_that_the_database_has_with_other_content(pool: Pool, gate: Gate) -> None:
    gate.confirm(order_id="a", sku=SKU, segment=0, quantity=1, epoch=1)
    ran: list[str] = []

    def body(grant: Grant) -> None:
        ran.append(grant.order_id)

    with pytest.raises(OrderMismatch, match="quantity 1 is stored, 2 was given"):
        take_order(pool, gate, Order("a", 2), timeout=60, body=body)
    assert (ran, pool.state().available, pool.state().reserved) == ([], 20, 0)


def test_a_step_is_called_once_if_its_worker_died_before_it_told_the_pool(pool: Pool, gate: Gate) -> None:
    pool.submit_many([Order("a")])
    called: list[str] = []
    gate.confirm(order_id="a", sku=SKU, segment=0, quantity=1, epoch=1)
    report = take_envelope(pool, ["a"], gate=gate, step=lambda order: called.append(order.order.order_id))
    assert ([(one.order_id, one.state) for one in report.settled], called) == ([("a", "confirmed")], [])


def test_no_body_runs_if_a_worker_that_dies_meanwhile_has_stored_the_order(
    pool: Pool, gate: Gate, stranger: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pool.grant("a")
    assert isinstance(first, Grant)
    assert isinstance(pool.store, RedisStore)
    pool.store.client.delete(f"{shard_keys(SKU).lock}:{first.segment}")  # its lease has ended
    real = gate.is_decided

    def is_decided(sku: str, order_id: str) -> bool:
        gate.confirm(order_id="a", sku=SKU, segment=first.segment, quantity=1, epoch=1, fence=first.fencing_token)
        return real(sku, order_id)

    monkeypatch.setattr(gate, "is_decided", is_decided)
    ran: list[str] = []
    answer = take_order(stranger, gate, Order("a"), timeout=60, body=lambda grant: ran.append(grant.order_id))
    assert isinstance(answer, Settled)
    assert (answer.state, ran, pool.state().confirmed) == ("confirmed", [], 1)
