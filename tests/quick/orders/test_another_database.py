"""A database that has another sale under the pool's sku is refused, and nothing changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from segmented import Order, Outbox, Pool, RedisStore, Settled
from segmented.errors import AnotherDatabase, InvalidInput
from segmented.keys import shard_keys
from segmented.models import Thawed, Verified
from segmented.orders import Gate, audit_both, rebuild, relay, reopen_gated, take_envelope, verify
from segmented.orders.opening import resize_gated, restock_gated, withdraw_gated
from segmented.orders.sale import take_order
from segmented.protocol import FreezePool, ThawPool
from segmented.servers import ValkeyServer
from tests.support.command_line import ran
from tests.support.pools.gated_shop import everything

SKU: Final = "mug"
CALLS: Final[dict[str, Callable[[Pool, Gate], object]]] = {
    "verify": verify,
    "rebuild": rebuild,
    "relay": relay,
    "audit": audit_both,
    "open": lambda pool, gate: Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2),
    "reopen": lambda pool, gate: reopen_gated(pool, gate, segments=2, epoch=2),
    "restock": lambda pool, gate: restock_gated(pool, gate, 5, restock_id="more"),
    "withdraw": lambda pool, gate: withdraw_gated(pool, gate, 5, withdraw_id="less"),
    "resize": lambda pool, gate: resize_gated(pool, gate, 4),
}


@pytest.fixture
def pool(store: RedisStore, gate: Gate) -> Pool:
    """Ten units in two segments, of which three are sold."""
    pool = Pool(store, SKU, outbox=Outbox())
    Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=2)
    take(pool, gate, "a", 3)
    return pool


@pytest.fixture
def other_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/staging.db"


@pytest.fixture
def other(open_gate: Callable[..., Gate], other_url: str) -> Gate:
    """A database with a sale of the same sku and the same numbers."""
    gate = open_gate(other_url)
    gate.open(SKU, [5, 5])
    gate.stocking.note_opened(SKU, epoch=1)
    return gate


def take(pool: Pool, gate: Gate, order_id: str, quantity: int) -> None:
    assert isinstance(take_order(pool, gate, Order(order_id, quantity), timeout=0), Settled)


def freeze(pool: Pool) -> None:
    pool.store.execute(FreezePool(SKU, 1))


def forget_identity(pool: Pool, store: RedisStore) -> None:
    """Leave the pool as an earlier release opened it."""
    store.client.hdel(shard_keys(SKU).meta, "sale_id")
    assert pool.state().sale_id == ""


@pytest.mark.parametrize("call", CALLS)
def test_a_database_of_another_sale_is_refused_and_nothing_changes(
    pool: Pool, other: Gate, other_url: str, store: RedisStore, call: str
) -> None:
    before = everything(store, other_url)
    with pytest.raises(AnotherDatabase) as caught:
        CALLS[call](pool, other)
    assert str(caught.value) == (
        f"the order database {other_url} has another sale of 'mug', not the one of the pool: name the database that "
        "the pool was opened with, or a copy of that one"
    )
    assert everything(store, other_url) == before


def test_the_commands_refuse_another_sale_with_one_sentence(
    pool: Pool, other: Gate, other_url: str, store: RedisStore, valkey: ValkeyServer
) -> None:
    del other
    freeze(pool)
    before = everything(store, other_url)
    for command in ("verify", "rebuild", "forget", "relay", "audit"):
        said = ran("pool", command, SKU, "--database", other_url, url=valkey.url)
        assert (said.returncode, said.stdout) == (2, "")
        assert f"{other_url} has another sale of 'mug', not the one of the pool: name the" in said.stderr
    assert everything(store, other_url) == before


def test_a_pool_that_another_database_has_rebuilt_is_brought_back_by_its_own(
    pool: Pool, gate: Gate, other: Gate, store: RedisStore
) -> None:
    forget_identity(pool, store)
    freeze(pool)
    assert rebuild(pool, other).state.epoch == 2
    forget_identity(pool, store)  # an earlier release noted none
    with pytest.raises(InvalidInput, match="is in epoch 2, which does not fit epoch 1"):
        verify(pool, gate)
    thawed = rebuild(pool, gate)
    assert (thawed.state.epoch, thawed.state.confirmed, thawed.state.available) == (3, 3, 7)
    assert gate.totals(SKU).epoch == 3
    take(pool, gate, "b", 7)
    assert gate.totals(SKU).sold == 10
    assert audit_both(pool, gate).is_clean


def test_a_pool_ahead_of_a_restored_copy_of_its_database_is_rebuilt(pool: Pool, gate: Gate) -> None:
    freeze(pool)
    pool.store.execute(ThawPool(SKU, 5, 3, 10, is_stored=True))
    assert (pool.state().epoch, gate.totals(SKU).epoch) == (5, 1)
    thawed = rebuild(pool, gate)
    assert thawed == Thawed(thawed.state, replay=False)
    assert (thawed.state.epoch, thawed.state.frozen, gate.totals(SKU).epoch) == (6, None, 6)


def test_a_process_that_sells_asks_for_the_sale_before_its_first_order(
    pool: Pool, other: Gate, other_url: str, store: RedisStore
) -> None:
    pool.submit("queued")
    before = everything(store, other_url)
    with pytest.raises(AnotherDatabase):
        take_order(Pool(store, SKU), other, Order("b"), timeout=0)
    with pytest.raises(AnotherDatabase):
        take_envelope(Pool(store, SKU), ("queued",), gate=other)
    assert everything(store, other_url) == before


def test_a_pool_notes_the_random_identity_that_its_rows_got(pool: Pool, gate: Gate, other: Gate) -> None:
    own, another = gate.totals(SKU).sale_id, other.totals(SKU).sale_id
    assert pool.state().sale_id == own
    assert (len(own), len(another), own == another) == (32, 32, False)
    int(own, 16)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_pool_of_an_earlier_release_takes_the_identity_at_a_verify_or_rebuild(
    pool: Pool, gate: Gate, other: Gate, store: RedisStore, *, is_frozen: bool
) -> None:
    forget_identity(pool, store)
    if is_frozen:
        freeze(pool)
        rebuild(pool, gate)
    else:
        assert verify(pool, gate) == Verified(SKU, replay=True)
    assert pool.state().sale_id == gate.totals(SKU).sale_id
    with pytest.raises(AnotherDatabase):
        verify(pool, other)
