"""A server that may evict keys, as hosted ones do by default: locks and tasks are warned of it, pools are refused."""

from collections.abc import Callable

import pytest
import redis

from segmented.errors import InvalidInput
from segmented.locks import Lock
from segmented.servers import ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from segmented.stores.redis.edge import CURE, EARLY


@pytest.fixture
def evicting(start_valkey: Callable[..., ValkeyServer]) -> str:
    return start_valkey(config={"maxmemory-policy": "volatile-lru"}).url


def sentence(url: str, end: str) -> str:
    path = url.removeprefix("unix://").partition("?")[0]
    return f"the server at {path} has maxmemory-policy volatile-lru, which may evict locks and stock, {end}"


def keys_at(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.dbsize())


def test_a_lock_is_warned_once_a_store_and_a_pool_is_refused(caplog: pytest.LogCaptureFixture, evicting: str) -> None:
    with redis.Redis.from_url(evicting) as client, RedisStore(client) as store:
        for _ in range(2):
            with Lock(store, "door", ttl=60):
                pass
        assert caplog.messages == [sentence(evicting, EARLY)]
        before = keys_at(evicting)
        with pytest.raises(InvalidInput) as caught:
            Pool(store, "mug").open(stock=10, segments=2)
    assert (str(caught.value), keys_at(evicting)) == (sentence(evicting, CURE), before)


@pytest.mark.parametrize("way", ["argument", "URL"])
def test_a_user_who_knows_has_pools_and_no_warning(caplog: pytest.LogCaptureFixture, evicting: str, way: str) -> None:
    with redis.Redis.from_url(evicting) as client:
        given = client if way == "argument" else f"{evicting}&allow_eviction=yes"
        with RedisStore(given, allow_eviction=way == "argument") as store:
            pool = Pool(store, "mug")
            pool.open(stock=10, segments=2)
            pool.reserve("an order", quantity=1)
            assert pool.available() == 9
    assert caplog.messages == []
