"""Rebuilds that overtake each other, and pools that lose what was rebuilt: no number is older than the database's.

Found by tests/quick/simulation/test_lost_suffixes.py.
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
    from collections.abc import Iterator

    from segmented.orders import Gate
    from segmented.plans.drivers import Store
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


def test_an_epoch_whose_sales_were_lost_is_not_used_again(pool: Pool, fresh: Pool, gate: Gate) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost")
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


def test_nobody_takes_units_while_the_process_that_knows_of_the_loss_rebuilds(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    with forgotten(pool):
        sell(pool, gate, "lost", 3)

    def take() -> None:
        with pytest.raises(PoolFrozen):
            fresh.reserve("lost", quantity=3)

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
    pool: Pool, fresh: Pool, gate: Gate, kind: type[op.Operation[Any]], nth: int
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))

    def overtake() -> None:
        with forgotten(pool):
            rebuild(fresh, gate)
            sell(fresh, gate, "in between", 3)

    state = rebuild(Pool(OvertakenStore(pool.store, kind, nth, overtake), SKU), gate).state
    assert (state.epoch, state.confirmed) == (gate.totals(SKU).segments[0].epoch, gate.totals(SKU).sold)
    check_sells_the_rest(fresh, gate)


def assert_rebuilt(pool: Pool, gate: Gate, epoch: int) -> None:
    assert rebuild(pool, gate).state.epoch == epoch


def test_another_rebuild_in_its_last_step_does_not_open_the_pool_in_an_earlier_epoch(
    pool: Pool, fresh: Pool, gate: Gate
) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    assert gate.stocking.raise_epoch(SKU, 4, epoch=2, opened=1) is not None
    gate.stocking.note_opened(SKU, epoch=2)
    late = op.ThawPool(SKU, 2, sold=0, stocked=20, is_stored=True)
    overtaken = OvertakenStore(pool.store, op.ThawPool, 1, lambda: assert_too_late(fresh.store, late))
    assert rebuild(Pool(overtaken, SKU), gate).state.epoch == 3
    check_sells_the_rest(pool, gate)


def assert_too_late(store: Store, operation: op.ThawPool) -> None:
    with pytest.raises(InvalidInput, match="is in epoch 1, which does not fit epoch 2"):
        store.execute(operation)


def test_no_epoch_is_raised_past_one_in_which_the_pool_was_opened_since(pool: Pool, gate: Gate) -> None:
    pool.store.execute(op.FreezePool(SKU, 1))
    assert_rebuilt(pool, gate, 2)
    assert gate.stocking.raise_epoch(SKU, 4, epoch=3, opened=1) is None
    check_sells_the_rest(pool, gate)


def assert_thawed(store: Store, operation: op.ThawPool) -> None:
    assert store.execute(operation) is not None


def test_a_pool_that_a_rebuild_opened_in_an_epoch_since_left_sells_nothing(pool: Pool, fresh: Pool, gate: Gate) -> None:
    """Both rebuilds died: the later one before it opened the pool, the earlier one just after it had done so."""
    with forgotten(pool):
        sell(pool, gate, "lost", 2)
    fresh.store.execute(op.FreezePool(SKU, 1))
    for epoch in (2, 3):
        assert gate.stocking.raise_epoch(SKU, 4, epoch=epoch, opened=1) is not None
    assert_thawed(fresh.store, op.ThawPool(SKU, 2, sold=2, stocked=20, is_stored=True))
    with pytest.raises(PoolUnverified):
        fresh.reserve("too early")
    with pytest.raises(PoolFrozen):
        take_order(fresh, gate, Order("too early"), timeout=0)
    assert rebuild(fresh, gate).state.epoch == 4
    check_sells_the_rest(fresh, gate)
