"""Whether a pool is gated, and its epoch: asked once, and again before a change of stock is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import ChangeGated, PoolGated, PoolMissing, PoolNotGated
from segmented.keys import shard_keys
from segmented.models import Resized, Restocked
from segmented.stock import Pool
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.stores import Side

CHANGES: dict[str, Callable[[Pool, bool], object]] = {
    "restock": lambda pool, stored: pool.restock(2, restock_id="r1", stored=stored),
    "withdraw": lambda pool, stored: pool.withdraw(2, withdraw_id="w1", stored=stored),
    "resize": lambda pool, stored: pool.resize(4, stored=stored),
}


def opened(side: Side, *, gated: bool = False, epoch: int = 1) -> Pool:
    """Open a pool of six units, and ask whether it is gated."""
    pool = side.pool(side.name())
    pool.open(stock=6, segments=2, gated=gated, epoch=epoch)
    assert pool.is_gated() is gated
    return pool


def opened_again(side: Side, pool: Pool, *, gated: bool, epoch: int = 1) -> Pool:
    """Have another process open the pool from nothing, as after its server lost its data."""
    side.raw().delete(*shard_keys(pool.sku).listed())
    with RedisStore(side.raw()) as other:
        Pool(other, pool.sku).open(stock=6, segments=2, gated=gated, epoch=epoch)
    return pool


def test_a_pool_that_is_missing_is_asked_for_again(side: Side) -> None:
    pool = side.pool(side.name())
    for ask in (pool.is_gated, pool.epoch):
        with pytest.raises(PoolMissing):
            ask()
    side.pool(pool.sku).open(stock=6, segments=2, gated=True, epoch=7)
    assert (pool.is_gated(), pool.epoch(), pool.epoch(at_least=7), pool.epoch(at_least=8)) == (True, 7, 7, 8)


def test_the_server_is_asked_once_and_again_for_a_later_epoch(redis_side: Side) -> None:
    pool = opened_again(redis_side, opened(redis_side), gated=True, epoch=3)
    assert (pool.is_gated(), pool.epoch(), pool.epoch(at_least=1)) == (False, 1, 1)
    assert (pool.epoch(at_least=2), pool.is_gated()) == (3, True)
    opened_again(redis_side, pool, gated=False)
    assert (pool.is_gated(), pool.is_gated(again=True), pool.is_gated()) == (True, False, False)


def test_a_change_is_refused_when_another_process_has_gated_the_pool_meanwhile(redis_side: Side) -> None:
    for change, ask in CHANGES.items():
        pool = opened_again(redis_side, opened(redis_side), gated=True)
        sentence = rf"^pool '{pool.sku}' is gated: use Pool\(store, sku, gate=gate\) to {change} it, "
        with pytest.raises(ChangeGated, match=sentence) as caught:
            ask(pool, False)  # noqa: FBT003  # as the table has it
        assert (caught.value.sku, caught.value.change) == (pool.sku, change)
        state = pool.state()
        assert (state.sequence, state.available, state.segment_count) == (1, 6, 2), change
        assert isinstance(ask(pool, True), Restocked | Resized), change  # noqa: FBT003  # as above


def test_a_change_is_made_when_the_pool_is_gated_no_longer(redis_side: Side) -> None:
    for change, ask in CHANGES.items():
        pool = opened_again(redis_side, opened(redis_side, gated=True), gated=False)
        assert isinstance(ask(pool, False), Restocked | Resized), change  # noqa: FBT003  # as above
        assert pool.state().sequence == 2, change


def test_a_confirmation_is_refused_when_the_pool_was_gated_meanwhile(redis_side: Side) -> None:
    pool = opened_again(redis_side, opened(redis_side), gated=True)
    pool.reserve("a")
    for call in (lambda: pool.confirm("a"), pool.expire):
        with pytest.raises(PoolGated):
            call()
    assert [type(answer) for answer in pool.confirm_many(["a"])] == [PoolGated]


def test_a_resolver_is_refused_when_the_pool_is_gated_no_longer(redis_side: Side) -> None:
    pool = opened_again(redis_side, opened(redis_side, gated=True), gated=False)
    with pytest.raises(PoolNotGated):
        pool.expire(resolver=lambda record: "wait")  # noqa: ARG005  # nothing is due
