"""Steps of an earlier epoch that reach a pool after its rebuild count nothing twice and get the database's answer.

A late step is one whose process was held up between the order database and the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import PoolFrozen
from segmented.keys import shard_keys
from segmented.models import Decided
from segmented.orders import (
    audit_both,
    cancel_order,
    expire_voided,
    finish_reserved,
    open_gated,
    rebuild,
    take_envelope,
    take_order,
)
from segmented.stock.outbox import Outbox
from tests.support.overtaking import OvertakenStore
from tests.support.pools.forgetting import SKU, forgotten, sell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.models.submitted import BegunOrder
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments, on both sides."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=20, segments=4)
    return pool


@pytest.fixture
def fresh(valkey: ValkeyServer) -> Iterator[Pool]:
    """The same pool in another process."""
    with RedisStore.from_url(valkey.url) as other:
        yield Pool(other, SKU)


def rebuilt(pool: Pool, gate: Gate) -> None:
    """Freeze the pool and rebuild it, as another process does after a loss."""
    pool.store.execute(op.FreezePool(SKU, pool.state().epoch))
    rebuild(pool, gate)


def late(pool: Pool, kind: type[op.Operation[Any]], happens: Callable[[], object], nth: int = 1) -> Pool:
    """Return the pool of a process that is held up before its nth operation of a kind."""
    return Pool(OvertakenStore(pool.store, kind, nth, happens), SKU, outbox=pool.outbox)


def check_both(pool: Pool, gate: Gate, *, sold: int, free: int) -> None:
    """Both sides have these numbers, and agree about every order."""
    state = pool.state()
    assert (state.confirmed, state.reserved, state.available) == (sold, 0, free)
    assert gate.totals(SKU).sold == sold
    assert pool.audit().is_clean
    report = audit_both(pool, gate)
    assert (report.is_clean, report.unsettled) == (True, 0), report.differences


# --- orders ---


def test_a_confirm_that_arrives_after_a_rebuild_gives_back_the_units_that_its_order_got_again(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        rebuilt(fresh, gate)
        assert isinstance(fresh.reserve("late", quantity=3), Reserved)  # its caller tried again elsewhere

    reserved: list[Reserved] = []
    with forgotten(pool):  # the reservation is lost, so the rebuild finds no units of the order
        answer = pool.reserve("late", quantity=3)
        assert isinstance(answer, Reserved)
        reserved.append(answer)
    settled = finish_reserved(late(fresh, op.Confirm, happens), gate, Order("late", 3), reserved[0])
    assert (settled.state, settled.quantity) == ("confirmed", 3)
    check_both(fresh, gate, sold=3, free=17)


def test_a_confirm_that_arrives_after_a_rebuild_that_has_counted_it_gets_its_answer(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    grants: list[object] = []
    held_up = late(pool, op.Confirm, lambda: rebuilt(fresh, gate))
    settled = take_order(held_up, gate, Order("late", 2), timeout=0, body=grants.append)
    assert isinstance(settled, Settled)
    assert (settled.state, settled.quantity, len(grants)) == ("confirmed", 2, 1)
    check_both(fresh, gate, sold=2, free=18)


def test_a_confirm_of_an_order_that_the_rebuilt_pool_does_not_know_gets_the_database_s_answer(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    with forgotten(pool):
        reserved = pool.reserve("late", quantity=3)
    assert isinstance(reserved, Reserved)
    settled = finish_reserved(late(fresh, op.Confirm, lambda: rebuilt(fresh, gate)), gate, Order("late", 3), reserved)
    assert (settled.state, settled.quantity, settled.replay) == ("confirmed", 3, True)
    check_both(fresh, gate, sold=3, free=17)


def test_an_order_that_an_earlier_epoch_sold_keeps_that_answer_in_the_pool(pool: Pool, fresh: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    again = fresh.reserve("lost", quantity=3)
    assert isinstance(again, Reserved)
    assert finish_reserved(fresh, gate, Order("lost", 3), again).state == "confirmed"
    for answer in (fresh.reserve("lost", quantity=3), fresh.grant("lost", quantity=3, timeout=0)):
        assert isinstance(answer, Decided)
        assert (answer.state, answer.quantity) == ("confirmed", 3)
    check_both(fresh, gate, sold=3, free=17)


def test_a_cancel_of_an_order_that_an_earlier_epoch_sold_keeps_it_sold_and_gives_its_new_units_back(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    assert isinstance(fresh.reserve("lost", quantity=3), Reserved)
    assert cancel_order(fresh, gate, Order("lost", 3)).state == "confirmed"
    answer = fresh.reserve("lost", quantity=3)
    assert isinstance(answer, Decided)
    assert answer.state == "confirmed"
    check_both(fresh, gate, sold=3, free=17)


def test_a_hold_of_an_order_that_an_earlier_epoch_sold_ends_with_that_answer(
    pool: Pool, valkey: ValkeyServer, gate: Gate
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    with RedisStore.from_url(valkey.url) as other:
        fresh = Pool(other, SKU, ttl=0.005, hold=0.01)
        rebuilt(fresh, gate)
        assert isinstance(fresh.reserve("lost", quantity=3), Reserved)
        other.client.zadd(shard_keys(SKU).holds, {"lost": 1})
        expire_voided(fresh, gate)
        answer = fresh.reserve("lost", quantity=3)
        assert isinstance(answer, Decided)
        assert answer.state == "confirmed"
        check_both(fresh, gate, sold=3, free=17)


# --- a process that still has the earlier epoch ---


def test_the_body_of_an_order_that_an_earlier_epoch_sold_does_not_run_again(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    grants: list[object] = []
    answer = take_order(long_lived, gate, Order("lost", 3), timeout=0, body=grants.append)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.replay, grants) == ("confirmed", True, [])
    check_both(fresh, gate, sold=3, free=17)


def test_a_sold_out_pool_answers_an_order_that_an_earlier_epoch_sold_as_the_database_does(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    sell(fresh, gate, "rest", 17)
    answer = take_order(long_lived, gate, Order("lost", 3), timeout=0)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.replay) == ("confirmed", True)
    refused = long_lived.reserve("lost", quantity=3)
    assert isinstance(refused, SoldOut)
    assert refused.epoch == 2
    check_both(fresh, gate, sold=20, free=0)


def test_a_closed_pool_answers_an_order_that_an_earlier_epoch_sold_as_the_database_does(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    fresh.close()
    answer = take_order(long_lived, gate, Order("lost", 3), timeout=0)
    assert isinstance(answer, Settled)
    assert (answer.state, answer.replay) == ("confirmed", True)


def test_a_second_loss_while_the_epoch_is_read_lets_no_body_run_again(
    pool: Pool, fresh: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    long_lived = Pool(fresh.store, SKU)
    assert long_lived.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    pool.store.execute(op.FreezePool(SKU, 1))
    grants: list[object] = []
    with RedisStore.from_url(valkey.url) as other:
        names = {name: other.client.dump(name) for name in shard_keys(SKU).listed()}
        rebuild(Pool(other, SKU), gate)

        def lose() -> None:
            for name, content in names.items():
                other.client.delete(name)
                if content is not None:
                    other.client.restore(name, 0, content)

        held_up = late(fresh, op.ReadPool, lose, nth=2)
        assert held_up.epoch() == 2
        held_up._found = long_lived._found  # noqa: SLF001  # it asked for the epoch before the rebuild
        with pytest.raises(PoolFrozen):
            take_order(held_up, gate, Order("lost", 3), timeout=0, body=grants.append)
    assert grants == []


# --- workers ---


@pytest.mark.parametrize("is_sold_out", [False, True])
def test_a_worker_that_still_has_the_earlier_epoch_gives_a_sold_order_its_answer_and_runs_no_step(
    pool: Pool, fresh: Pool, gate: Gate, *, is_sold_out: bool
) -> None:
    shop = Pool(fresh.store, SKU, outbox=Outbox(decides="in the worker"))
    worker = Pool(fresh.store, SKU)
    assert worker.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    if is_sold_out:
        sell(fresh, gate, "rest", 17)
    handle = shop.submit("lost", quantity=3)
    steps: list[BegunOrder] = []
    report = take_envelope(worker, ["lost"], gate=gate, step=steps.append)
    assert [(one.order_id, one.state) for one in report.settled] == [("lost", "confirmed")]
    outcome = handle.wait(timeout=0)
    assert isinstance(outcome, Settled)
    assert (outcome.state, outcome.quantity, steps) == ("confirmed", 3, [])
    check_both(fresh, gate, sold=20 if is_sold_out else 3, free=0 if is_sold_out else 17)


@pytest.mark.usefixtures("pool")
def test_an_envelope_whose_confirmation_arrives_after_a_rebuild_counts_nothing_twice(fresh: Pool, gate: Gate) -> None:
    ids = [f"o-{number}" for number in range(4)]

    for order_id in ids:
        Pool(fresh.store, SKU, outbox=Outbox(decides="in the worker")).submit(order_id)

    def lose_and_rebuild() -> None:
        """Lose what happened to these orders, rebuild the pool, and take two of them again."""
        assert isinstance(fresh.store, RedisStore)
        client = fresh.store.client
        keys = shard_keys(SKU)
        client.hdel(keys.orders, *ids)
        client.zrem(keys.holds, *ids)
        client.hset(keys.meta, mapping={"reserved": 0, "available": 20})
        rebuilt(fresh, gate)
        for order_id in ids[:2]:
            assert isinstance(fresh.reserve(order_id), Reserved)

    report = take_envelope(late(fresh, op.SettleMany, lose_and_rebuild), ids, gate=gate)
    assert sorted((one.order_id, one.state) for one in report.settled) == [(order_id, "confirmed") for order_id in ids]
    assert report.put_off == {}
    check_both(fresh, gate, sold=4, free=16)


@pytest.mark.usefixtures("pool")
def test_a_rebuild_during_a_step_does_not_count_as_a_failure_of_the_order(fresh: Pool, gate: Gate) -> None:
    shop = Pool(fresh.store, SKU, outbox=Outbox(decides="in the worker"))
    shop.submit("slow")
    steps: list[str] = []

    def step(order: BegunOrder) -> None:
        steps.append(order.order.order_id)
        if len(steps) < 5:
            rebuilt(fresh, gate)

    for _ in range(4):
        report = take_envelope(shop, ["slow"], gate=gate, step=step)
        assert list(report.put_off) == ["slow"]
        (found,) = shop.store.execute(op.ReadSubmitted(SKU, ("slow",)))
        assert (found.begun, found.state) == (0, "reserved")
    report = take_envelope(shop, ["slow"], gate=gate, step=step)
    assert [(one.order_id, one.state) for one in report.settled] == [("slow", "confirmed")]
    check_both(fresh, gate, sold=1, free=19)


def test_a_database_that_is_ahead_during_a_step_does_not_count_as_a_failure_of_the_order(
    pool: Pool, gate: Gate
) -> None:
    shop = Pool(pool.store, SKU, outbox=Outbox(decides="in the worker"))
    shop.submit("slow")

    def step(_: BegunOrder) -> None:
        gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1)

    assert list(take_envelope(shop, ["slow"], gate=gate, step=step).put_off) == ["slow"]
    assert pool.state().frozen is not None
    (found,) = shop.store.execute(op.ReadSubmitted(SKU, ("slow",)))
    assert found.begun == 0
