"""What a server says of itself, and addresses that are none: judged word by word, each with one sentence."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.metadata import version
from typing import Any, Final

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented.errors import InvalidInput
from segmented.masking import masked
from segmented.protocol import AcquireLock
from segmented.stores.redis import AsyncRedisStore, RedisStore
from segmented.stores.redis.edge import check_server
from segmented.stores.redis.eviction import Eviction

SECRET: Final = "open sesame/#1"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"redis_version": "6.2.14"}, "speaks Redis 6.2.14; 7.0 or newer is needed (Valkey: any)"),
        ({"redis_version": "255.255.255"}, None),  # a build from the source
        ({"redis_version": None}, "answers INFO with something else: is it a proxy?"),
        ({"redis_version": "unstable"}, "speaks Redis unstable; 7.0 or newer is needed (Valkey: any)"),
        ({"cluster_enabled": 1, "server_mode": None, "redis_mode": None}, "is a node of a cluster: give redis+cluster"),
        ({"server_mode": "sentinel"}, "is a Sentinel: give redis+sentinel://HOST:PORT/SERVICE"),
        ({"role": "slave"}, "is a replica, which takes no locks and no stock: give its master's address"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_what_a_server_says_of_itself_is_judged_word_by_word(
    valkey_url: str, changed: dict[str, object], says: str | None, *, encoded: bool
) -> None:
    """INFO of a real server, with other words in it, as text or as bytes."""
    with redis.Redis.from_url(valkey_url) as server:
        found: Any = server.info()
    found = {name: value for name, value in (found | changed).items() if value is not None}
    if encoded:
        found = {name: value.encode() if isinstance(value, str) else value for name, value in found.items()}
    if says is None:
        check_server("here", found, is_cluster=False, eviction=Eviction())
        return
    with pytest.raises(InvalidInput) as caught:
        check_server("here", found, is_cluster=False, eviction=Eviction())
    assert str(caught.value).startswith(f"the server at here {says}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "valkey",
        "http://localhost",
        "localhost:6379",
        "redis://localhost:port",
        "redis://[::1",
        "redis://localhost?no_such_option=1",
        "redis://localhost?socket_timeout=soon",
        "redis://localhost/?db=first",
        f"redis://user:{SECRET}@localhost",
    ],
)
def test_what_is_not_a_redis_url(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        RedisStore.from_url(url)
    assert SECRET not in str(caught.value)
    assert str(caught.value).startswith(f"{masked(url)!r} is not a Redis URL: ")


def test_a_store_on_a_cluster_in_an_event_loop_needs_redis_py_8() -> None:
    is_new = int(version("redis").partition(".")[0]) >= 8
    with nullcontext() if is_new else pytest.raises(InvalidInput, match="needs redis-py 8 or newer"):
        AsyncRedisStore(redis_asyncio.RedisCluster("127.0.0.1", 1))


EVICTS = "the server at here has maxmemory-policy volatile-lru, which may evict locks and stock, so a lock"
HIDES = "the server at here does not report its maxmemory-policy: make sure that it is noeviction"


@pytest.mark.parametrize(
    ("policy", "warned", "refused"),
    [("noeviction", "", False), ("volatile-lru", EVICTS, True), ("", HIDES, False)],
)
def test_a_policy_is_a_warning_and_one_that_evicts_is_a_refusal_of_pools(
    caplog: pytest.LogCaptureFixture, policy: str, warned: str, *, refused: bool
) -> None:
    eviction = Eviction()
    eviction.note("here", policy)
    assert bool(eviction.refusal) is refused
    if eviction.warning:
        for _ in range(3):
            eviction.check(AcquireLock("door", "holder", 1_000))
    assert [line.startswith(warned) for line in caplog.messages] == ([True] if warned else [])


@pytest.mark.parametrize("given", [1, "yes", None])
def test_allow_eviction_is_true_or_false(given: object) -> None:
    with pytest.raises(InvalidInput, match=r"^allow_eviction is True or False, not "):
        RedisStore(redis.Redis(), allow_eviction=given)  # type: ignore[arg-type]  # on purpose
