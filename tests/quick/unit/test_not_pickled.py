"""What belongs to its process: stores, order databases, and whatever uses one."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncLock, AsyncPool, Dedup, Lock, MemoryStore, Pool, ReadWriteLock, RedisStore, Semaphore
from segmented.errors import InvalidInput
from segmented.locks import MultiLock
from segmented.orders import Gate
from segmented.stock import Carts, ShardedPool
from segmented.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from segmented.servers import ValkeyServer

USERS: dict[str, Callable[[Any], object]] = {
    "the store": lambda store: store,
    "a lock": lambda store: Lock(store, "stock"),
    "readers and writers": lambda store: ReadWriteLock(store, "prices"),
    "a semaphore": lambda store: Semaphore(store, "gateway", permits=2),
    "several locks": lambda store: MultiLock(store, ["a", "b"]),
    "a pool": lambda store: Pool(store, "mug"),
    "a pool in shards": lambda store: ShardedPool(store, "mug"),
    "an order": lambda store: Pool(store, "mug").handle("o-1"),
    "carts": Carts,
    "deduplication": lambda store: Dedup(store, "shop"),
}


def refused(what: object, whose: str) -> None:
    said = f"{whose} cannot be pickled, nor a lock or pool of it: create both in the process that needs them"
    for copied in (pickle.dumps, deepcopy):
        with pytest.raises(InvalidInput) as caught:
            copied(what)
        assert str(caught.value) == said


@pytest.mark.parametrize("user", USERS)
def test_what_belongs_to_its_process_is_not_pickled_and_says_what_to_do(user: str, valkey: ValkeyServer) -> None:
    refused(USERS[user](MemoryStore()), "MemoryStore")
    with RedisStore.from_url(valkey.url) as store:
        refused(USERS[user](store), "RedisStore")


def test_what_is_for_asyncio_or_has_an_order_database_is_not_pickled_either(
    tmp_path: Path,
) -> None:
    refused(AsyncLock(AsyncMemoryStore(), "stock"), "AsyncMemoryStore")
    refused(AsyncPool(AsyncMemoryStore(), "mug"), "AsyncMemoryStore")
    with Gate(f"sqlite:///{tmp_path / 'orders'}") as gate:
        refused(gate, "Gate")
