"""Steps of an earlier epoch that reach a pool after its rebuild count nothing twice and get the database's answer.

A late step is one whose process was held up between the order database and the pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import Order, Pool, RedisStore, Reserved, Settled, SoldOut, protocol as op
from segmented.errors import ChangeDiverged, EpochEnded
from segmented.keys import shard_keys
from segmented.models import Decided, TooFew
from segmented.orders import (
    cancel_order,
    expire_voided,
    finish_reserved,
    open_gated,
    rebuild,
    resize_gated,
    restock_gated,
    take_envelope,
    take_order,
    withdraw_gated,
)
from segmented.orders.verifying import compare_once
from segmented.stock.outbox import Outbox
from tests.support.overtaking import OvertakenStore
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell
from tests.support.pools.gated_shop import check

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


# --- orders ---


def test_a_confirm_after_a_rebuild_gives_back_the_units_that_its_order_got_again(
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
    check(fresh, gate, confirmed=3, available=17)


def test_a_cancel_of_an_order_sold_in_an_earlier_epoch_returns_only_new_units(
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
    check(fresh, gate, confirmed=3, available=17)


def test_a_hold_of_an_order_that_an_earlier_epoch_sold_ends_with_that_answer(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    rebuilt(fresh, gate)
    assert isinstance(fresh.reserve("lost", quantity=3), Reserved)
    assert isinstance(fresh.store, RedisStore)
    fresh.store.client.zadd(shard_keys(SKU).holds, {"lost": 1})
    expire_voided(fresh, gate)
    answer = fresh.reserve("lost", quantity=3)
    assert isinstance(answer, Decided)
    assert answer.state == "confirmed"
    check(fresh, gate, confirmed=3, available=17)


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
    check(fresh, gate, confirmed=3, available=17)


def test_a_sold_out_pool_answers_an_order_of_an_earlier_epoch_as_the_database_does(
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
    check(fresh, gate, confirmed=20, available=0)


# --- workers ---


@pytest.mark.parametrize("is_sold_out", [False, True])
def test_a_worker_of_the_earlier_epoch_answers_a_sold_order_and_runs_no_step(
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
    check(fresh, gate, confirmed=20 if is_sold_out else 3, available=0 if is_sold_out else 17)


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
    check(fresh, gate, confirmed=1, available=19)


# --- changes of stock ---


def test_a_restock_whose_units_a_rebuild_has_counted_adds_nothing(pool: Pool, fresh: Pool, gate: Gate) -> None:
    held_up = late(pool, op.Restock, lambda: rebuilt(fresh, gate))
    answer = restock_gated(held_up, gate, 5, restock_id="r")
    assert (answer.units, answer.replay) == (5, True)  # type: ignore[union-attr]  # a closed pool is another test
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (25, 25, ())
    assert restock_gated(fresh, gate, 5, restock_id="r").replay  # type: ignore[union-attr]  # as above
    check(fresh, gate, confirmed=0, available=25)


def test_a_withdrawal_that_was_made_lost_and_counted_is_not_repeated_by_a_late_step(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    def happens() -> None:
        with forgotten(pool):
            withdraw_gated(fresh, gate, 5, withdraw_id="w")
        rebuilt(fresh, gate)

    withdraw_gated(late(pool, op.Withdraw, happens), gate, 5, withdraw_id="w")
    assert (fresh.state().available, gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (15, 15, ())
    check(fresh, gate, confirmed=0, available=15)


def test_a_resize_that_is_held_up_until_after_a_rebuild_has_rows_for_its_segments(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    held_up = late(pool, op.Resize, lambda: rebuilt(fresh, gate))
    assert resize_gated(held_up, gate, 8).state.segment_count == 8
    assert {(row.segment, row.epoch) for row in gate.totals(SKU).segments} == {(number, 2) for number in range(8)}
    for number in range(20):
        sell(fresh, gate, f"o-{number}")
    check(fresh, gate, confirmed=20, available=0)


def test_a_change_for_an_epoch_that_has_ended_is_refused_by_the_pool(pool: Pool, gate: Gate) -> None:
    rebuilt(pool, gate)
    for operation in (op.Restock(SKU, "r", 5, epoch=1), op.Withdraw(SKU, "w", 5, epoch=1)):
        with pytest.raises(EpochEnded, match="pool 'mug' is in epoch 2"):
            pool.store.execute(operation)
    check_sells_the_rest(pool, gate)


def test_a_withdrawal_of_units_sold_but_forgotten_freezes_the_pool_and_is_undone(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    compare_once(fresh, gate)  # it has seen nothing since
    with forgotten(pool):
        sell(pool, gate, "lost", 18)
    with pytest.raises(ChangeDiverged, match="the pool has given units up, but 18 of 20 are sold"):
        withdraw_gated(fresh, gate, 5, withdraw_id="w")
    assert fresh.state().frozen is not None
    rebuild(fresh, gate)
    assert withdraw_gated(fresh, gate, 5, withdraw_id="w") == TooFew("w", 5, 2)
    assert (gate.totals(SKU).quota, gate.unfinished_changes(SKU)) == (20, ())
    check(fresh, gate, confirmed=18, available=2)
    check_sells_the_rest(fresh, gate)
