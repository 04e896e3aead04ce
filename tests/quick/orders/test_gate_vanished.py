"""A gated pool whose keys are gone: refused, never opened again as if nothing had been, and rebuilt in a new epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import text

from segmented import Order, Pool, RedisStore, Reserved, Settled
from segmented.errors import PoolVanished
from segmented.keys import shard_keys
from segmented.models import Opened, Restocked
from segmented.orders import connect
from segmented.orders.changing import restock_gated, withdraw_gated
from segmented.orders.opening import open_gated, reopen_gated
from segmented.orders.sale import cancel_order, take_order
from tests.support.dying import Died, DyingStore, StepCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.orders import Gate
    from segmented.servers import ValkeyServer
    from segmented.stock import Grant


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = Pool(store, "mug")
    assert isinstance(open_gated(pool, gate, stock=10, segments=2), Opened)
    return pool


@pytest.fixture
def another(valkey: ValkeyServer) -> Iterator[Pool]:
    """The pool of another process, which has not seen it open."""
    with RedisStore(valkey.url) as store:
        yield Pool(store, "mug")


@pytest.fixture
def flush(store: RedisStore) -> Callable[[], object]:
    """Forget everything, as a server without persistence does when it starts again."""
    flush: Callable[[], object] = store.client.flushall
    return flush


def take(pool: Pool, gate: Gate, order_id: str, quantity: int) -> Settled:
    answer = take_order(pool, gate, Order(order_id, quantity), timeout=0)
    assert isinstance(answer, Settled)
    return answer


def test_a_pool_that_lost_some_of_its_keys_is_not_opened_again_either(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    store.client.delete(shard_keys("mug").meta)
    with pytest.raises(PoolVanished):
        open_gated(pool, gate, stock=10, segments=2)


def test_a_sale_sold_by_an_older_release_is_not_opened_again(
    store: RedisStore, another: Pool, gate: Gate, flush: Callable[[], object]
) -> None:
    """Its database has no note that the pool was open, but what it sold says so."""
    pool = Pool(store, "mug")
    gate.open("mug", [5, 5])
    pool.open(stock=10, segments=2, gated=True)
    take(pool, gate, "a", 3)
    flush()
    with pytest.raises(PoolVanished):
        open_gated(another, gate, stock=10, segments=2)


def test_a_sold_order_that_the_new_pool_has_not_heard_of_is_not_cancelled(
    pool: Pool, gate: Gate, flush: Callable[[], object]
) -> None:
    take(pool, gate, "a", 4)
    flush()
    reopen_gated(pool, gate, segments=2, epoch=2)
    answer = cancel_order(pool, gate, Order("a", 4))
    assert (answer.state, answer.quantity, answer.replay) == ("confirmed", 4, True)
    assert pool.state().available == 6


def test_changes_of_an_earlier_epoch_are_in_the_new_one_already(
    pool: Pool, gate: Gate, order_database: str, open_gate: Callable[..., Gate], flush: Callable[[], object]
) -> None:
    restock_gated(pool, gate, 5, restock_id="whole")
    withdraw_gated(pool, gate, 1, withdraw_id="whole-out")
    dying = open_gate(order_database)
    with pytest.raises(Died):  # the database has the units, the pool does not
        restock_gated(Pool(DyingStore(pool.store, StepCounter(5)), "mug"), dying, 3, restock_id="half")
    with pytest.raises(Died):  # the pool has given the units up, the database does not know
        withdraw_gated(Pool(DyingStore(pool.store, StepCounter(8)), "mug"), dying, 2, withdraw_id="half-out")
    assert (gate.totals("mug").quota, pool.state().stocked) == (17, 12)
    flush()
    reopen_gated(pool, gate, segments=2, epoch=2)
    for _ in range(2):
        for answer in (
            restock_gated(pool, gate, 5, restock_id="whole"),
            withdraw_gated(pool, gate, 1, withdraw_id="whole-out"),
            restock_gated(pool, gate, 3, restock_id="half"),
            withdraw_gated(pool, gate, 2, withdraw_id="half-out"),
        ):
            assert isinstance(answer, Restocked)
    assert (gate.totals("mug").quota, pool.state().stocked, gate.unfinished_changes("mug")) == (15, 15, ())
    assert pool.audit().is_clean


def test_the_body_of_a_sold_order_does_not_run_again_if_the_pool_was_not_told(pool: Pool, gate: Gate) -> None:
    bodies: list[str] = []

    def body(grant: Grant) -> None:
        bodies.append(grant.order_id)

    dying = DyingStore(pool.store, StepCounter(9))
    with pytest.raises(Died):
        take_order(Pool(dying, "mug", ttl=0.001), gate, Order("a", 4), timeout=0, body=body)
    assert gate.totals("mug").sold == 4
    answer = take_order(Pool(pool.store, "mug"), gate, Order("a", 4), timeout=60, body=body)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.quantity, bodies) == ("confirmed", 4, ["a"])
    assert pool.audit().is_clean


TERMS: Final[dict[str, Any]] = {"limit_per_customer": 5, "profile": "database", "queue": "paid", "step": "shop:pay"}


def terms_of(pool: Pool) -> dict[str, object]:
    state = pool.state()
    return {name: getattr(state, name) for name in TERMS}


def test_a_reopened_pool_has_the_terms_that_are_given_instead(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug", gate=gate)
    pool.open(stock=10, segments=2, **TERMS)
    flush()
    reopen_gated(pool.plain, gate, segments=2, epoch=2, limit_per_customer=3, queue="late")
    assert terms_of(pool) == TERMS | {"limit_per_customer": 3, "queue": "late"}


@pytest.mark.parametrize("is_with_gate", [True, False])
def test_a_reopened_pool_has_the_workers_that_were_named_last(
    store: RedisStore, another: Pool, gate: Gate, flush: Callable[[], object], *, is_with_gate: bool
) -> None:
    """Named without the database, they are kept once a process with the database has used the pool."""
    pool = Pool(store, "mug", gate=gate)
    pool.open(stock=10, segments=2, **TERMS)
    (pool if is_with_gate else Pool(store, "mug")).assign(queue="late", step=None)
    if not is_with_gate:
        assert isinstance(Pool(another.store, "mug", gate=gate).reserve("a", customer_id="c"), Reserved)
    flush()
    reopen_gated(pool.plain, gate, segments=2, epoch=2)
    assert terms_of(pool) == TERMS | {"queue": "late", "step": None}


def test_a_sale_of_an_earlier_release_is_reopened_on_the_terms_that_are_given(
    store: RedisStore, gate: Gate, order_database: str, flush: Callable[[], object]
) -> None:
    Pool(store, "mug", gate=gate).open(stock=10, segments=2, **TERMS)
    flush()
    with connect(order_database).connect() as connection:
        connection.execute(text("UPDATE segmented_sales SET profile = NULL, limit_per_customer = NULL"))
    reopen_gated(Pool(store, "mug"), gate, segments=2, epoch=2, limit_per_customer=3)
    state = Pool(store, "mug").state()
    assert (state.limit_per_customer, state.profile, state.queue, state.step) == (3, "database", None, None)
