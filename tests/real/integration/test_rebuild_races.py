"""Rebuilds that overtake each other, and pools that lose what was rebuilt: no number is older than the database's.

Found by tests/quick/simulation/test_lost_suffixes.py; here they happen on real servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from segmented import Order, Pool, RedisStore, Reserved, protocol as op
from segmented.errors import InvalidInput, PoolDiverged, PoolFrozen, PoolUnverified
from segmented.orders import finish_reserved, open_gated, rebuild, take_order
from tests.support.overtaking import OvertakenStore
from tests.support.pools.forgetting import SKU, check_sells_the_rest, forgotten, sell

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments, on both sides."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=20, segments=4)
    return pool


def test_an_epoch_whose_sales_were_lost_is_not_used_again(pool: Pool, gate: Gate, valkey: ValkeyServer) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost")
    with RedisStore.from_url(valkey.url) as other:
        fresh = Pool(other, SKU)
        pool.store.execute(op.FreezePool(SKU, 1))
        with forgotten(pool):
            assert rebuild(fresh, gate).state.epoch == 2
            late = fresh.reserve("late")
            assert isinstance(late, Reserved)
            sell(fresh, gate, "lost in epoch 2", 3)
    assert rebuild(pool, gate).state.epoch == 3  # by a process that has not seen epoch 2
    with pytest.raises(PoolDiverged, match="the database is in epoch 3"):
        finish_reserved(pool, gate, Order("late"), late)
    assert sell(pool, gate, "lost in epoch 2", 3).replay
    assert (pool.state().confirmed, gate.totals(SKU).sold) == (4, 4)
    check_sells_the_rest(pool, gate)


def test_an_order_sold_by_a_lost_epoch_stays_sold_for_a_process_that_knows_only_that_one(
    pool: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    assert pool.epoch() == 1
    with forgotten(pool):
        sell(pool, gate, "lost")
    with RedisStore.from_url(valkey.url) as other:
        fresh = Pool(other, SKU)
        fresh.store.execute(op.FreezePool(SKU, 1))
        rebuild(fresh, gate)
        again = fresh.reserve("lost")
        assert isinstance(again, Reserved)
        assert finish_reserved(fresh, gate, Order("lost"), again).state == "confirmed"  # its units went back
    assert sell(pool, gate, "lost").state == "confirmed"
    assert (pool.state().confirmed, gate.totals(SKU).sold) == (1, 1)


def test_a_process_that_is_the_first_to_see_the_loss_rebuilds_the_pool(pool: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 2)
    assert pool.state().frozen == (1, 3)  # as this process knows; nobody has frozen the pool yet
    assert rebuild(pool, gate).state.epoch == 2
    check_sells_the_rest(pool, gate)


def test_a_rebuild_that_another_one_overtook_leaves_the_pool_in_the_database_s_epoch(pool: Pool, gate: Gate) -> None:
    """Another process raised the database to epoch 2, read what was sold, and died before it opened the pool."""
    with forgotten(pool):
        sell(pool, gate, "lost", 2)
    assert gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1) is not None
    gate.stocking.note_opened(SKU, epoch=2)
    thawed = rebuild(pool, gate)
    assert (thawed.state.epoch, gate.totals(SKU).segments[0].epoch) == (3, 3)
    check_sells_the_rest(pool, gate)


def test_nobody_takes_units_while_the_only_process_that_knows_of_the_loss_rebuilds_the_pool(
    pool: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)
    with RedisStore.from_url(valkey.url) as other:

        def take() -> None:
            with pytest.raises(PoolFrozen):
                Pool(other, SKU).reserve("lost", quantity=3)

        overtaken = OvertakenStore(pool.store, op.ScanHolds, 1, take)
        assert rebuild(Pool(overtaken, SKU), gate).state.available == 17
    check_sells_the_rest(pool, gate)


@pytest.mark.parametrize(
    ("kind", "nth"),
    [
        pytest.param(op.ReadPool, 2, id="before it is noted"),
        pytest.param(op.ThawPool, 1, id="after it was noted"),
    ],
)
def test_another_rebuild_that_opens_the_pool_and_is_lost_leaves_no_older_number(
    pool: Pool, gate: Gate, valkey: ValkeyServer, kind: type[op.Operation[Any]], nth: int
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    with RedisStore.from_url(valkey.url) as other:
        fresh = Pool(other, SKU)

        def overtake() -> None:
            with forgotten(pool):
                rebuild(fresh, gate)
                sell(fresh, gate, "in between", 3)

        state = rebuild(Pool(OvertakenStore(pool.store, kind, nth, overtake), SKU), gate).state
        assert (state.epoch, state.confirmed) == (gate.totals(SKU).segments[0].epoch, gate.totals(SKU).sold)
        check_sells_the_rest(Pool(other, SKU), gate)


@pytest.mark.parametrize(("before", "epoch"), [(op.FreezePool, 2), (op.ThawPool, 3)])
def test_another_rebuild_that_opens_the_pool_meanwhile_is_left_alone(
    pool: Pool, gate: Gate, valkey: ValkeyServer, before: type[op.Operation[Any]], epoch: int
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    with RedisStore.from_url(valkey.url) as other:
        overtaken = OvertakenStore(pool.store, before, 1, lambda: assert_rebuilt(Pool(other, SKU), gate, epoch))
        thawed = rebuild(Pool(overtaken, SKU), gate)
    assert (thawed.replay, thawed.state.epoch, thawed.state.frozen) == (True, epoch, None)
    assert gate.totals(SKU).segments[0].epoch == epoch
    check_sells_the_rest(pool, gate)


def assert_rebuilt(pool: Pool, gate: Gate, epoch: int) -> None:
    assert rebuild(pool, gate).state.epoch == epoch


def test_another_rebuild_in_its_last_step_does_not_open_the_pool_in_an_earlier_epoch(
    pool: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    with RedisStore.from_url(valkey.url) as other:
        assert gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1) is not None
        gate.stocking.note_opened(SKU, epoch=2)
        late = op.ThawPool(SKU, 2, sold=0, stocked=20, is_stored=True)
        overtaken = OvertakenStore(pool.store, op.ThawPool, 1, lambda: assert_too_late(other, late))
        assert rebuild(Pool(overtaken, SKU), gate).state.epoch == 3
    check_sells_the_rest(pool, gate)


def assert_too_late(store: RedisStore, operation: op.ThawPool) -> None:
    with pytest.raises(InvalidInput, match="is in epoch 1, which does not fit epoch 2"):
        store.execute(operation)


def test_no_epoch_is_raised_past_one_in_which_the_pool_was_opened_since(pool: Pool, gate: Gate) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    assert_rebuilt(pool, gate, 2)
    assert gate.stocking.raise_epoch(SKU, 4, epoch=3, opened=1) is None
    check_sells_the_rest(pool, gate)


def assert_thawed(store: RedisStore, operation: op.ThawPool) -> None:
    assert store.execute(operation) is not None


def test_a_pool_that_a_rebuild_opened_in_an_epoch_that_a_later_one_has_left_sells_nothing(
    pool: Pool, gate: Gate, valkey: ValkeyServer
) -> None:
    """Both rebuilds died: the later one before it opened the pool, the earlier one just after it had done so."""
    with forgotten(pool):
        sell(pool, gate, "lost", 2)
    with RedisStore.from_url(valkey.url) as other:
        fresh = Pool(other, SKU)
        fresh.store.execute(op.FreezePool(SKU, 1))
        for epoch in (2, 3):
            assert gate.stocking.raise_epoch(SKU, 4, epoch=epoch, opened=1) is not None
        assert_thawed(other, op.ThawPool(SKU, 2, sold=2, stocked=20, is_stored=True))
        with pytest.raises(PoolUnverified):
            fresh.reserve("too early")
        with pytest.raises(PoolFrozen):
            take_order(fresh, gate, Order("too early"), timeout=0)
        assert rebuild(fresh, gate).state.epoch == 4
        check_sells_the_rest(fresh, gate)
