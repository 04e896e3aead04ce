"""A gated pool one of whose keys was deleted is frozen, rebuilt from the order database, and sells the rest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore, Reserved
from segmented.errors import PoolFrozen
from segmented.keys import shard_keys
from segmented.orders import cancel_order, open_gated, rebuild, take_envelope, take_order
from tests.support.command_line import ran
from tests.support.pools.forgetting import SKU, check_sells_the_rest, sell

if TYPE_CHECKING:
    from segmented.orders import Gate
    from segmented.servers import ValkeyServer

pytestmark = pytest.mark.usefixtures("patient_attempts")

KEYS: Final = ("stock", "ledger", "orders", "holds")


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Twenty units in four segments: two are sold, three and one are reserved, and one of these is submitted."""
    pool = Pool(store, SKU, outbox=Outbox())
    open_gated(pool, gate, stock=20, segments=4)
    sell(pool, gate, "sold", 2)
    assert isinstance(pool.reserve("kept", quantity=3), Reserved)
    pool.submit_many([Order("submitted")])
    return pool


def lose(pool: Pool, key: str) -> None:
    assert isinstance(pool.store, RedisStore)
    assert pool.store.client.delete(getattr(shard_keys(SKU), key)) == 1


@pytest.mark.parametrize("key", KEYS)
def test_a_pool_that_lost_a_key_is_rebuilt_and_sells_exactly_the_rest(pool: Pool, gate: Gate, key: str) -> None:
    lose(pool, key)
    with pytest.raises(PoolFrozen, match=f"its key '{key}' is gone"):
        take_order(pool, gate, Order("next"), timeout=0)
    state = rebuild(pool, gate).state
    reserved = 0 if key == "orders" else 4
    assert (state.epoch, state.confirmed, state.reserved, state.available) == (2, 2, reserved, 18 - reserved)
    assert (sell(pool, gate, "sold", 2).replay, gate.totals(SKU).sold) == (True, 2)
    report = take_envelope(pool, ["submitted"], gate=gate)
    assert [one.state for one in report.settled] == ([] if key == "orders" else ["confirmed"])
    assert list(report.unknown) == (["submitted"] if key == "orders" else [])
    if key == "orders":
        sell(pool, gate, "submitted")
    else:
        assert cancel_order(pool, gate, Order("kept", 3)).state == "cancelled"
    check_sells_the_rest(pool, gate)


def test_the_hook_the_log_and_the_commands_tell_of_a_key_that_is_gone(
    pool: Pool, store: RedisStore, valkey: ValkeyServer, order_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[PoolFrozen] = []
    store.on_frozen = heard.append
    lose(pool, "holds")
    with caplog.at_level(logging.ERROR, logger="segmented.stock"):
        for _ in range(2):
            with pytest.raises(PoolFrozen):
                pool.reserve("next")
    assert [(one.sku, one.missing) for one in heard] == [(SKU, "holds")]
    assert [record.getMessage() for record in caplog.records] == [
        "pool.frozen sku=mug found=(1, 5) seen=(1, 5) missing=holds"
    ]
    audited = ran("pool", "audit", SKU, url=valkey.url)
    line = "frozen: mug is at change 5 of epoch 1, and one of its keys is gone, or its order database knows of more"
    assert (audited.returncode, line in audited.stdout.splitlines()) == (1, True)
    done = ran("pool", "rebuild", SKU, url=valkey.url, database=order_database)
    assert (done.returncode, done.stdout) == (0, "rebuilt in epoch 2: 2 sold, 4 reserved, 14 free\n")
