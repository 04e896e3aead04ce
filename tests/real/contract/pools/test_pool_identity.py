"""Whether a pool is gated, and its epoch; a change of stock asks the server again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import ChangeGated, PoolGated, PoolMissing, PoolNotGated
from segmented.keys import shard_keys
from segmented.models import Resized, Restocked
from segmented.protocol.model import MemoryModel
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side

CHANGES: dict[str, Callable[[Pool], object]] = {
    "restock": lambda pool: pool.restock(2, restock_id="r1"),
    "withdraw": lambda pool: pool.withdraw(2, withdraw_id="w1"),
    "resize": lambda pool: pool.resize(4),
}
STORED: dict[str, Callable[[Pool], object]] = {
    "restock": lambda pool: pool.restock(2, restock_id="r1", stored=True),
    "withdraw": lambda pool: pool.withdraw(2, withdraw_id="w1", stored=True),
    "resize": lambda pool: pool.resize(4, stored=True),
}


def open_again(side: Side, sku: str, *, gated: bool, epoch: int = 1) -> None:
    """Have another process open the pool from nothing, as after a server lost its data."""
    if side.flavour.store == "memory":
        side.store._model = MemoryModel(side.clock)  # noqa: SLF001  # the model has no way to forget a pool
        side.pool(sku).open(stock=6, segments=2, gated=gated, epoch=epoch)
        return
    side.raw().delete(*shard_keys(sku).listed())
    with RedisStore(side.raw()) as other:
        Pool(other, sku).open(stock=6, segments=2, gated=gated, epoch=epoch)


@pytest.mark.parametrize("gated", [True, False])
def test_a_pool_says_whether_it_is_gated(side: Side, *, gated: bool) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=gated)
    assert pool.is_gated() is gated
    assert side.pool(pool.sku).is_gated() is gated


def test_a_pool_says_its_epoch(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, epoch=7)
    assert (pool.epoch(), pool.epoch(at_least=7), pool.epoch(at_least=8)) == (7, 7, 8)


def test_a_pool_that_is_missing_is_asked_for_again(side: Side) -> None:
    pool = side.pool(side.name())
    with pytest.raises(PoolMissing):
        pool.is_gated()
    with pytest.raises(PoolMissing):
        pool.epoch()
    side.pool(pool.sku).open(stock=6, segments=2, gated=True, epoch=3)
    assert (pool.is_gated(), pool.epoch()) == (True, 3)


def test_the_server_is_asked_once_and_again_for_a_later_epoch(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2)
    assert (pool.is_gated(), pool.epoch()) == (False, 1)
    open_again(side, pool.sku, gated=True, epoch=3)
    assert (pool.is_gated(), pool.epoch(), pool.epoch(at_least=1)) == (False, 1, 1)
    assert (pool.epoch(at_least=2), pool.is_gated()) == (3, True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_when_another_process_has_gated_the_pool_meanwhile(side: Side, change: str) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2)
    assert not pool.is_gated()
    open_again(side, pool.sku, gated=True)
    sentence = rf"^pool '{pool.sku}' is gated: use Pool\(store, sku, gate=gate\) to {change} it, "
    with pytest.raises(ChangeGated, match=sentence) as caught:
        CHANGES[change](pool)
    assert (caught.value.sku, caught.value.change) == (pool.sku, change)
    state = pool.state()
    assert (state.sequence, state.available, state.segment_count) == (1, 6, 2)
    assert isinstance(STORED[change](pool), Restocked | Resized)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_made_when_the_pool_is_gated_no_longer(side: Side, change: str) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=True)
    assert pool.is_gated()
    open_again(side, pool.sku, gated=False)
    assert isinstance(CHANGES[change](pool), Restocked | Resized)
    assert pool.state().sequence == 2


def test_a_pool_that_is_asked_again_says_what_it_is_now(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=False)
    assert not pool.is_gated()
    open_again(side, pool.sku, gated=True)
    assert (pool.is_gated(), pool.is_gated(again=True), pool.is_gated()) == (False, True, True)


def test_a_confirmation_is_refused_when_the_pool_was_gated_meanwhile(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=False)
    assert not pool.is_gated()
    open_again(side, pool.sku, gated=True)
    pool.reserve("a")
    with pytest.raises(PoolGated):
        pool.confirm("a")
    assert [type(answer) for answer in pool.confirm_many(["a"])] == [PoolGated]


def test_what_is_due_is_refused_when_the_pool_was_gated_meanwhile(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2)
    assert not pool.is_gated()
    open_again(side, pool.sku, gated=True)
    with pytest.raises(PoolGated):
        pool.expire()


def test_a_resolver_is_refused_when_the_pool_is_gated_no_longer(side: Side) -> None:
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=True)
    assert pool.is_gated()
    open_again(side, pool.sku, gated=False)
    with pytest.raises(PoolNotGated):
        pool.expire(resolver=lambda record: "wait")  # noqa: ARG005  # nothing is due
