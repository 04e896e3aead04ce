"""A gated pool whose keys are gone: refused, never opened again as if nothing had been, and rebuilt in a new epoch."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from sqlalchemy import text

from segmented import Order, Pool, RedisStore, Reserved, Settled, SoldOut
from segmented.errors import InvalidInput, OrderMismatch, PoolDiffers, PoolDiverged, PoolMissing, PoolVanished
from segmented.keys import shard_keys
from segmented.models import AlreadyOpen, Opened, Restocked
from segmented.models.submitted import Deciding
from segmented.orders import Gate, connect
from segmented.orders.envelopes import take_envelope
from segmented.orders.opening import reopen_gated, restock_gated, withdraw_gated
from segmented.orders.sale import cancel_order, expire_voided, finish_reserved, take_order
from segmented.servers import ValkeyServer
from segmented.stock import Grant
from segmented.stock.outbox import Outbox
from tests.support.dying import Deaths, Died, DyingStore, StepCounter
from tests.support.workers.envelope_till import BOTH


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    pool = Pool(store, "mug")
    assert isinstance(Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2), Opened)
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


def test_opening_again_changes_nothing_and_says_what_is_there(pool: Pool, gate: Gate) -> None:
    take(pool, gate, "a", 3)
    with pytest.raises(PoolDiffers, match="with stock 10 instead of 99, segments 2 instead of 9"):
        Pool(pool.store, pool.sku, gate=gate).open(stock=99, segments=9)
    again = Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    assert isinstance(again, AlreadyOpen)
    assert (again.state.opened, again.state.confirmed, again.state.segment_count) == (10, 3, 2)
    assert gate.totals("mug").quota == 10


@pytest.mark.parametrize("sold", [0, 3])
def test_a_pool_whose_keys_vanished_refuses_and_is_not_opened_again(
    pool: Pool, another: Pool, gate: Gate, flush: Callable[[], object], store: RedisStore, sold: int
) -> None:
    if sold:
        take(pool, gate, "a", sold)
    flush()
    with pytest.raises(PoolVanished if sold else PoolMissing):  # before the first order it asks whether it is gated
        take_order(pool, gate, Order("b", 1), timeout=0)
    with pytest.raises(PoolMissing):  # which this asks every time
        restock_gated(pool, gate, 1, restock_id="x")
    with pytest.raises(PoolVanished, match="segmented pool reopen mug --database URL"):
        Pool(another.store, another.sku, gate=gate).open(stock=10, segments=2)
    assert store.client.dbsize() == 0
    assert gate.totals("mug").sold == sold
    assert gate.unfinished_changes("mug") == ()


def test_a_pool_that_lost_some_of_its_keys_is_not_opened_again_either(
    pool: Pool, gate: Gate, store: RedisStore
) -> None:
    store.client.delete(shard_keys("mug").meta)
    with pytest.raises(PoolVanished):
        Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)


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
        Pool(another.store, another.sku, gate=gate).open(stock=10, segments=2)


def opened(pool: Pool, gate: Gate) -> None:
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)


def test_an_opening_that_died_at_any_step_is_finished_by_the_next(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate]
) -> None:
    own, dying = open_gate(order_database), open_gate(order_database)
    deaths = Deaths(dying)
    for step in deaths:
        pool = Pool(store, f"mug-{step}")
        deaths.at_step(opened, Pool(deaths.store(store), pool.sku), dying)
        assert Pool(pool.store, pool.sku, gate=own).open(stock=10, segments=2).state.available == 10
        assert take(pool, own, "all", 10).state == "confirmed"
        assert own.stocking.opened_epoch(pool.sku) == 1


def test_an_opening_that_died_is_not_finished_as_another_sale(store: RedisStore, gate: Gate) -> None:
    gate.open("mug", [5, 5])
    with pytest.raises(InvalidInput, match="rows for 'mug' with stock 10 in 2 segments, not with stock 12 in 2 segmen"):
        Pool(store, "mug", gate=gate).open(stock=12, segments=2)


def test_a_new_epoch_sells_what_the_database_has_not_sold_and_knows_what_it_has(
    pool: Pool, gate: Gate, store: RedisStore, flush: Callable[[], object]
) -> None:
    take(pool, gate, "a", 4)
    lost = pool.reserve(Order("lost", 2))
    assert isinstance(lost, Reserved)
    flush()
    opened = reopen_gated(pool, gate, segments=3, epoch=2)
    assert (opened.state.available, opened.state.epoch, opened.state.segment_count) == (6, 2, 3)
    with pytest.raises(PoolDiverged, match="the database is in epoch 2"):
        finish_reserved(pool, gate, Order("lost", 2), lost)
    for reader in (Pool(store, "mug"), pool, pool):  # the last two: a process that knew the earlier epoch
        again = take(reader, gate, "a", 4)
        assert (again.state, again.quantity, again.replay) == ("confirmed", 4, True)
        assert (reader.state().available, reader.state().reserved) == (6, 0)
    with pytest.raises(OrderMismatch):
        take_order(pool, gate, Order("a", 3), timeout=0)
    assert take(pool, gate, "b", 6).state == "confirmed"
    assert isinstance(take_order(pool, gate, Order("c", 1), timeout=0), SoldOut)
    assert take(pool, gate, "a", 4).replay
    totals = gate.totals("mug")
    assert (totals.quota, totals.sold, gate.confirmed_units("mug"), pool.state().confirmed) == (10, 10, 10, 6)
    assert pool.audit().is_clean


@pytest.mark.parametrize("end", ["lapses", "is cancelled"])
@pytest.mark.parametrize("asked", [4, 9])
def test_units_that_a_new_epoch_holds_for_an_order_that_an_earlier_one_sold_go_back(
    store: RedisStore, gate: Gate, flush: Callable[[], object], end: str, asked: int
) -> None:
    """Its message came again, and the worker died between the pool and the database."""
    pool = Pool(store, "mug", ttl=0.001, hold=0.001)
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    pool.reserve(Order("other", 6))
    order = Order("a", asked)
    taken = take_order(pool, gate, order, timeout=0, partial=True)
    assert isinstance(taken, Settled)
    assert (taken.state, taken.quantity) == ("confirmed", 4)
    flush()
    reopen_gated(Pool(store, "mug"), gate, segments=2, epoch=2)
    pool.reserve(order, partial=True)
    if end == "lapses":
        decided: tuple[Settled, ...] = ()
        while not decided:
            decided = expire_voided(pool, gate)
        assert [(one.state, one.quantity) for one in decided] == [("confirmed", 4)]
    for _ in range(2):
        answer = cancel_order(pool, gate, order)
        assert (answer.state, answer.quantity, answer.replay) == ("confirmed", 4, True)
    assert (pool.state().available, pool.state().confirmed, gate.totals("mug").sold) == (6, 0, 4)
    assert take(pool, gate, "all-that-is-left", 6).state == "confirmed"
    assert pool.audit().is_clean


def test_a_sold_order_that_the_new_pool_has_not_heard_of_is_not_cancelled(
    pool: Pool, gate: Gate, flush: Callable[[], object]
) -> None:
    take(pool, gate, "a", 4)
    flush()
    reopen_gated(pool, gate, segments=2, epoch=2)
    answer = cancel_order(pool, gate, Order("a", 4))
    assert (answer.state, answer.quantity, answer.replay) == ("confirmed", 4, True)
    assert pool.state().available == 6


@pytest.mark.parametrize("decides", BOTH)
def test_an_envelope_sells_nothing_again_that_an_earlier_epoch_has_sold(
    gate: Gate, store: RedisStore, flush: Callable[[], object], decides: Deciding
) -> None:
    pool = Pool(store, "mug", outbox=Outbox(decides=decides))
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    take(pool, gate, "a", 4)
    flush()
    reopen_gated(pool, gate, segments=3, epoch=2)
    pool.submit_many([Order("a", 4), Order("b", 1)])
    settled = {one.order_id: one for one in take_envelope(pool, ["a", "b"], gate=gate).settled}
    assert [(one.state, one.quantity, one.replay) for one in (settled["a"], settled["b"])] == [
        ("confirmed", 4, True),
        ("confirmed", 1, False),
    ]
    state, totals = pool.state(), gate.totals("mug")
    assert (state.available, state.reserved, state.confirmed) == (5, 0, 1)
    assert (totals.sold, gate.confirmed_units("mug")) == (5, 5)
    assert pool.audit().is_clean


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


def test_only_a_later_epoch_of_a_pool_that_is_gone_is_opened_anew(
    pool: Pool, gate: Gate, flush: Callable[[], object]
) -> None:
    with pytest.raises(InvalidInput, match="pool 'mug' is open in epoch 1; only one whose keys vanished"):
        reopen_gated(pool, gate, segments=2, epoch=2)
    flush()
    with pytest.raises(InvalidInput, match="was open in epoch 1; give a later epoch"):
        reopen_gated(pool, gate, segments=2, epoch=1)
    assert isinstance(reopen_gated(pool, gate, segments=2, epoch=3), Opened)
    assert isinstance(reopen_gated(pool, gate, segments=2, epoch=3), AlreadyOpen)
    assert take(pool, gate, "a", 10).state == "confirmed"
    flush()
    for epoch in (2, 3):
        with pytest.raises(InvalidInput, match="was open in epoch 3; give a later epoch"):
            reopen_gated(pool, gate, segments=2, epoch=epoch)
    with pytest.raises(InvalidInput, match="the whole stock of 'mug' is sold, 10 units: there is nothing to open"):
        reopen_gated(pool, gate, segments=2, epoch=4)
    with pytest.raises(InvalidInput, match="has no rows for 'cup', so it is not opened again: name the database"):
        reopen_gated(Pool(pool.store, "cup"), gate, segments=2, epoch=2)


def test_a_reopening_that_died_at_any_step_is_finished_by_the_next(
    store: RedisStore, order_database: str, open_gate: Callable[..., Gate], flush: Callable[[], object]
) -> None:
    own, dying = open_gate(order_database), open_gate(order_database)
    deaths = Deaths(dying)
    for step in deaths:
        pool = Pool(store, f"mug-{step}")
        Pool(pool.store, pool.sku, gate=own).open(stock=10, segments=2)
        take(pool, own, "a", 4)
        flush()
        deaths.at_step(reopen_gated, Pool(deaths.store(store), pool.sku), dying, segments=4, epoch=2)
        state = reopen_gated(pool, own, segments=4, epoch=2).state
        assert (state.available, state.epoch, state.segment_count) == (6, 2, 4)
        assert take(Pool(store, pool.sku), own, "b", 6).state == "confirmed"


def test_the_body_of_a_sold_order_does_not_run_again_if_the_pool_was_not_told(pool: Pool, gate: Gate) -> None:
    bodies: list[str] = []

    def body(grant: Grant) -> None:
        bodies.append(grant.order_id)

    dying = DyingStore(pool.store, StepCounter(13))
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


def test_a_reopened_pool_has_the_terms_that_it_was_opened_with(
    store: RedisStore, gate: Gate, flush: Callable[[], object]
) -> None:
    pool = Pool(store, "mug", gate=gate)
    pool.open(stock=10, segments=2, **TERMS)
    flush()
    reopen_gated(pool.plain, gate, segments=2, epoch=2)
    assert terms_of(pool) == TERMS


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
