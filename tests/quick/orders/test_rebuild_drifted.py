"""A frozen gated pool whose numbers another program has written to is rebuilt: its records and database know all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import Order, Pool, RedisStore, Reserved, protocol as op
from segmented.errors import PoolDrifted, PoolNotFrozen, PoolNotGated, StoreRefused
from segmented.keys import shard_keys
from segmented.orders import audit_both, finish_reserved, open_gated, rebuild, restock_gated, withdraw_gated
from tests.support.command_line import ran
from tests.support.pools.forgetting import SKU, check_sells_the_rest, sell

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units, of which four are sold and five are reserved, after a restock, a withdrawal and a rebuild."""
    pool = Pool(store, SKU)
    open_gated(pool, gate, stock=18, segments=4)
    restock_gated(pool, gate, 5, restock_id="r")
    withdraw_gated(pool, gate, 3, withdraw_id="w")
    sell(pool, gate, "sold before", 3)
    pool.store.execute(op.FreezePool(SKU, 1))
    rebuild(pool, gate)
    sell(pool, gate, "sold")
    assert isinstance(pool.reserve("kept", quantity=5), Reserved)
    return pool


def write(pool: Pool, **said: str) -> None:
    """Write to the pool's numbers, as another program does."""
    assert isinstance(pool.store, RedisStore)
    pool.store.client.hset(shard_keys(SKU).meta, mapping=said)


def check_rebuilt(pool: Pool, gate: Gate, epoch: int = 3) -> None:
    state = pool.state()
    numbers = (state.epoch, state.confirmed, state.reserved, state.available, state.frozen, state.unreadable)
    assert numbers == (epoch, 4, 5, 11, None, ())
    assert (state.restocked, state.withdrawn, state.lost) == (5, 3, 0)
    assert pool.audit().is_clean, pool.audit().drift
    assert audit_both(pool, gate).is_clean
    kept = pool.reserve("kept", quantity=5)
    assert isinstance(kept, Reserved)
    assert kept.replay
    assert finish_reserved(pool, gate, Order("kept", 5), kept).state == "confirmed"
    check_sells_the_rest(pool, gate)


@pytest.mark.parametrize("number", ["epoch", "sequence", "available", "fence"])
def test_a_number_that_cannot_be_read_is_counted_again(pool: Pool, gate: Gate, number: str) -> None:
    pool.store.execute(op.FreezePool(SKU, 2))
    write(pool, **{number: "x"})
    rebuild(pool, gate)
    check_rebuilt(pool, gate)


@pytest.mark.parametrize(
    ("number", "said"), [("opened", "0"), ("available", "1000"), ("confirmed", "-1"), ("restocked", "9" * 20)]
)
def test_numbers_of_a_frozen_pool_that_do_not_add_up_are_recounted_and_void_no_order(
    pool: Pool, gate: Gate, number: str, said: str
) -> None:
    pool.store.execute(op.FreezePool(SKU, 2))
    write(pool, **{number: said})
    rebuild(pool, gate)
    check_rebuilt(pool, gate)
    assert {row.state for row in gate.each_order(SKU)} == {"confirmed"}


def test_the_command_rebuilds_a_drifted_pool(pool: Pool, gate: Gate, valkey: ValkeyServer, order_database: str) -> None:
    pool.store.execute(op.FreezePool(SKU, 2))
    write(pool, reserved="x", confirmed="")
    done = ran("pool", "rebuild", SKU, url=valkey.url, database=order_database)
    assert (done.returncode, done.stdout) == (0, "rebuilt in epoch 3: 4 sold, 5 reserved, 11 free\n")
    check_rebuilt(pool, gate)


def test_a_setting_that_cannot_be_read_is_refused_and_nothing_changes(pool: Pool, gate: Gate) -> None:
    pool.store.execute(op.FreezePool(SKU, 2))
    write(pool, closed="x")
    before = pool.state()
    with pytest.raises(PoolDrifted):
        rebuild(pool, gate)
    assert (pool.state(), gate.totals(SKU).epoch) == (before, 2)


def test_numbers_that_change_while_they_are_counted_are_counted_again(pool: Pool) -> None:
    pool.store.execute(op.FreezePool(SKU, 2))
    before = pool.state()
    late = op.RecountPool(SKU, 5, 4, 5, 3, 4, 0, before=(6, 4))
    assert pool.store.execute(late) is False
    assert pool.state() == before


def test_only_a_frozen_gated_pool_is_counted(pool: Pool, store: RedisStore) -> None:
    with pytest.raises(PoolNotFrozen):
        store.execute(op.RecountPool(SKU, 5, 4, 5, 3, 4, 0, before=(5, 4)))
    Pool(store, "plain").open(stock=3, segments=1)
    with pytest.raises(PoolNotGated):
        store.execute(op.RecountPool("plain", 0, 0, 0, 0, 1, 0, before=(0, 0)))
    write(pool, gated="x")
    with pytest.raises(StoreRefused):
        store.execute(op.RecountPool(SKU, 5, 4, 5, 3, 4, 0, before=(5, 4)))
