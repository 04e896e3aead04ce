"""What is given where a client or a store is meant, and cannot serve: one sentence at construction. No server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import redis
import valkey
from redis import asyncio as redis_asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel
from valkey import asyncio as valkey_asyncio

from segmented.errors import InvalidInput
from segmented.locks import (
    AsyncFairLock,
    AsyncGetSetLock,
    AsyncLock,
    AsyncMultiLock,
    AsyncReadWriteLock,
    AsyncReentrantLock,
    AsyncSemaphore,
    FairLock,
    GetSetLock,
    Lock,
    MultiLock,
    ReadWriteLock,
    ReentrantLock,
    Semaphore,
)
from segmented.stock import AsyncCarts, AsyncPool, Carts, Pool
from segmented.stock.sharded import AsyncShardedPool, ShardedPool
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from segmented.stores.redis import AsyncRedisStore, RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeRedis(redis.Redis):
    """What fakeredis's clients look like from outside: a class of theirs over redis-py's."""

    __module__ = "fakeredis"


class GlideClient:
    """As valkey-glide's client looks from outside: a class of another package."""

    __module__ = "glide.glide_client"


valkey_watchers: Any = valkey.sentinel.Sentinel([])  # type: ignore[no-untyped-call]  # valkey-py's is untyped
REFUSED: Final[list[tuple[object, str]]] = [
    (None, "needs a client of redis-py (redis.Redis or redis.RedisCluster), and got None"),
    (b"redis://:secret@host", "takes a client or a URL, which is a str, not bytes: decode it"),
    (redis_asyncio.Redis(), "not a client for asyncio: use AsyncRedisStore for it"),
    (redis.Redis().pipeline(), "takes a client, not a pipeline: pass"),
    (redis.Redis().pubsub(), "and got redis.client.PubSub"),
    (redis.ConnectionPool(), "and got redis.connection.ConnectionPool"),
    (Sentinel([]).slave_for("stock"), "use Sentinel.master_for(...), not slave_for"),
    (redis.Redis(encoding="utf-16"), "cannot use a client with encoding='utf-16'"),
    (redis.Redis(encoding="cp037"), "cannot use a client with encoding='cp037'"),
    (redis.Redis(encoding="no such"), "cannot use a client with encoding='no such'"),
    (FakeRedis(), "does not work with fakeredis"),
    (GlideClient(), "and got glide.glide_client.GlideClient"),
    (MemoryStore(), "and got segmented.stores.memory"),
    (valkey_asyncio.Valkey(), "not a client for asyncio: use AsyncRedisStore for it"),
    (valkey.Valkey().pipeline(), "takes a client, not a pipeline: pass"),
    (valkey_watchers.master_for("stock"), "accepts only single-server clients of valkey-py"),
    (valkey.Valkey(encoding="utf-16"), "cannot use a client with encoding='utf-16'"),
]
REFUSED_ASYNC: Final[list[tuple[object, str]]] = [
    (None, "needs a client of redis-py (redis.asyncio.Redis or redis.asyncio.RedisCluster), and got None"),
    (b"redis://:secret@host", "takes a client or a URL, which is a str, not bytes: decode it"),
    (redis.Redis(), "not a client for threads: use RedisStore for it"),
    (redis_asyncio.Redis().pipeline(), "takes a client, not a pipeline: pass"),
    (AsyncSentinel([]).slave_for("stock"), "use Sentinel.master_for(...), not slave_for"),
    (redis_asyncio.Redis(encoding="utf-32"), "cannot use a client with encoding='utf-32'"),
    (valkey.Valkey(), "not a client for threads: use RedisStore for it"),
]


def sentence_of(make: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_what_cannot_serve_is_refused_at_construction(given: Any, sentence: str) -> None:  # noqa: ANN401  # what a caller may give
    said = sentence_of(lambda: RedisStore(given))
    assert said.startswith("RedisStore ")
    assert sentence in said


@pytest.mark.parametrize(("given", "sentence"), REFUSED_ASYNC)
def test_what_cannot_serve_in_asyncio_is_refused_at_construction(given: Any, sentence: str) -> None:  # noqa: ANN401  # what a caller may give
    said = sentence_of(lambda: AsyncRedisStore(given))
    assert said.startswith("AsyncRedisStore ")
    assert sentence in said


# --- where a store is meant ---

SYNC: Final[dict[str, Callable[[Any], object]]] = {
    **{
        kind.__name__: lambda store, kind=kind: kind(store, "x")  # type: ignore[misc]  # kind has its own type
        for kind in (Lock, FairLock, ReentrantLock, ReadWriteLock, GetSetLock, Pool, ShardedPool)
    },
    "Semaphore": lambda store: Semaphore(store, "x", permits=2),
    "MultiLock": lambda store: MultiLock(store, ["x", "y"]),
    "Carts": Carts,
}
ASYNC: Final[dict[str, Callable[[Any], object]]] = {
    **{
        kind.__name__: lambda store, kind=kind: kind(store, "x")  # type: ignore[misc]  # kind has its own type
        for kind in (AsyncLock, AsyncFairLock, AsyncReentrantLock, AsyncReadWriteLock, AsyncGetSetLock, AsyncPool)
    },
    "AsyncSemaphore": lambda store: AsyncSemaphore(store, "x", permits=2),
    "AsyncMultiLock": lambda store: AsyncMultiLock(store, ["x", "y"]),
    "AsyncShardedPool": lambda store: AsyncShardedPool(store, "x"),
    "AsyncCarts": AsyncCarts,
}


@pytest.mark.parametrize("make", SYNC.values(), ids=SYNC)
def test_a_store_for_asyncio_or_a_bare_client_is_no_store_for_threads(make: Callable[[Any], object]) -> None:
    assert "needs a store for threads, such as RedisStore, and got AsyncMemoryStore" in sentence_of(
        lambda: make(AsyncMemoryStore())
    )
    for client in (redis.Redis(), redis.Redis().pipeline(), redis_asyncio.Redis(), valkey.Valkey()):
        said = sentence_of(lambda client=client: make(client))  # type: ignore[misc]  # called at once
        assert said.endswith(f"needs a store, and got the client {type(client).__name__}: give RedisStore(client)")


@pytest.mark.parametrize("make", ASYNC.values(), ids=ASYNC)
def test_a_store_for_threads_or_a_bare_client_is_no_store_for_asyncio(make: Callable[[Any], object]) -> None:
    assert "needs a store for asyncio, such as AsyncRedisStore, and got MemoryStore" in sentence_of(
        lambda: make(MemoryStore())
    )
    assert sentence_of(lambda: make(redis_asyncio.Redis())).endswith(
        "needs a store, and got the client Redis: give AsyncRedisStore(client)"
    )
