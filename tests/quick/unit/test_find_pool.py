"""A pool is found by its sku in the form in which it was opened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.models import ShardDirectory
from segmented.plans import Now, Within
from segmented.stock import AsyncPool, AsyncShardedPool, Pool, ShardedPool, async_find_pool, find_pool
from segmented.stock.sharded.opening import is_in_shards_plan
from segmented.stores.memory import AsyncMemoryStore, MemoryStore

if TYPE_CHECKING:
    from segmented.plans import Plan

DIRECTORY = ShardDirectory("concert", ("a", "b"), 10, 4, 1, None, is_open=True)
Copy = ShardDirectory | StoreUnavailable | None


def outcome(plan: Plan[bool], copies: list[Copy]) -> tuple[bool, int]:
    """Run the plan over what the copies of the directory answer; return what it says, and how many were asked."""
    asked = 0
    answer: ShardDirectory | float | None = None
    failure: StoreUnavailable | None = None
    while True:
        try:
            effect = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return end.value, asked
        answer, failure = None, None
        if isinstance(effect, Now):
            answer = 0.0
            continue
        assert isinstance(effect, Within)
        assert isinstance(effect.operation, op.ReadDirectory)
        assert effect.operation.copy == asked
        said = copies[asked]
        asked += 1
        if isinstance(said, StoreUnavailable):
            failure = said
        else:
            answer = said


def test_a_pool_is_found_as_it_was_opened() -> None:
    store = MemoryStore()
    ShardedPool(store, "in shards").open(stock=10, segments=4, shards=2)
    Pool(store, "in one").open(stock=10, segments=4)
    found = [find_pool(store, sku, ttl=3, hold=4) for sku in ("in shards", "in one", "never opened")]
    assert [type(pool) for pool in found] == [ShardedPool, Pool, Pool]
    assert found[0].state().available == found[1].state().available == 10


def test_an_async_pool_is_found_as_it_was_opened() -> None:
    async def find() -> list[type]:
        store = AsyncMemoryStore()
        await AsyncShardedPool(store, "in shards").open(stock=10, segments=4, shards=2)
        return [type(await async_find_pool(store, sku)) for sku in ("in shards", "never opened")]

    assert asyncio.run(find()) == [AsyncShardedPool, AsyncPool]


def test_one_command_is_enough_where_the_first_copy_answers() -> None:
    assert outcome(is_in_shards_plan("concert"), [DIRECTORY]) == (True, 1)
    assert outcome(is_in_shards_plan("concert"), [None]) == (False, 1)


def test_another_copy_tells_while_the_first_is_away() -> None:
    away = StoreUnavailable("away")
    assert outcome(is_in_shards_plan("concert"), [away, None, away, DIRECTORY]) == (True, 4)


def test_where_no_copy_tells_it_is_unknown() -> None:
    first = StoreUnavailable("first")
    with pytest.raises(StoreUnavailable, match="first"):
        outcome(is_in_shards_plan("concert"), [first, None, None, StoreUnavailable("fourth"), None])


def test_a_sku_that_cannot_be_one_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(InvalidInput, match="sku"):
        find_pool(MemoryStore(), "")
