"""A lock over each way of comparing and deleting: the server's own commands, and the scripts where it has none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented import AsyncLock, RedisStore
from segmented.clock import Clock, SystemClock
from segmented.errors import LeaseLost
from segmented.keys import lock_keys
from segmented.protocol.wire import Dialect
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import FEW_REDIS, AsyncSide, Side, SyncSide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.plans.drivers import AsyncStore
    from tests.support.flavour import Flavour
    from tests.support.servers.nodes import Node


def side_of(flavour: Flavour, url: str, dialect: Dialect | None) -> Side:
    async def make_store(clock: Clock) -> AsyncStore:
        client = redis_asyncio.Redis.from_url(url, protocol=flavour.protocol)
        return AsyncRedisStore(client, clock=clock, dialect=dialect)

    clock = SystemClock()
    if flavour.colour == "async":
        side: Side = AsyncSide(flavour, clock, make_store)
    else:
        client = redis.Redis.from_url(url, protocol=flavour.protocol)
        side = SyncSide(flavour, RedisStore(client, clock=clock, dialect=dialect), clock)
    side.server = redis.Redis.from_url(url, decode_responses=True)
    return side


def cycle(side: Side) -> dict[str, int]:
    """Acquire, renew, release; count the commands of each kind."""
    name, server = side.name("lock"), side.raw()
    side.lock(name, ttl=60).acquire(timeout=0).release()
    server.config_resetstat()
    lease = side.lock(name, ttl=60).acquire(timeout=0)
    lease.renew(ttl=90)
    assert 60_000 < server.pttl(lock_keys(name).lock) <= 90_000
    lease.release()
    assert server.exists(lock_keys(name).lock) == 0
    found = server.info("commandstats")
    counts = {command: found.get(f"cmdstat_{command}", {"calls": 0})["calls"] for command in ("evalsha", "delifeq")}
    lost = side.lock(name, ttl=60).acquire(timeout=0)
    server.delete(lock_keys(name).lock)
    with pytest.raises(LeaseLost):
        lost.renew()
    again = side.lock(name, ttl=60).acquire(timeout=0)
    server.set(lock_keys(name).lock, "somebody else")
    with pytest.raises(LeaseLost):
        again.release()
    assert server.get(lock_keys(name).lock) == "somebody else"
    return counts


@pytest.fixture(params=FEW_REDIS, ids=str)
def own_commands(request: pytest.FixtureRequest, private_valkey_url: str) -> Iterator[Side]:
    side = side_of(request.param, private_valkey_url, None)
    yield side
    side.close()


def test_valkey_compares_by_its_own_commands_and_only_the_acquire_is_a_script(own_commands: Side) -> None:
    assert cycle(own_commands) == {"evalsha": 1, "delifeq": 1}
    assert repr(own_commands.store).endswith("compare-and-delete by DELIFEQ)")


@pytest.mark.parametrize("flavour", FEW_REDIS, ids=str)
def test_a_server_without_such_commands_gets_scripts(flavour: Flavour, redis70_server: Node) -> None:
    side = side_of(flavour, redis70_server.url, None)
    assert cycle(side) == {"evalsha": 3, "delifeq": 0}
    assert repr(side.store).endswith("compare-and-delete by a script)")
    side.close()


@pytest.mark.parametrize(
    ("flavour", "dialect"), list(zip(FEW_REDIS, [Dialect.REDIS, Dialect.TAIR], strict=True)), ids=str
)
def test_a_server_that_refuses_the_command_gets_the_script(
    flavour: Flavour, dialect: Dialect, redis70_server: Node
) -> None:
    side = side_of(flavour, redis70_server.url, dialect)
    assert cycle(side) == {"evalsha": 3, "delifeq": 0}
    side.close()


def test_before_the_first_connection_nothing_is_known(valkey_url: str) -> None:
    async def used_once() -> None:
        store = AsyncRedisStore(redis_asyncio.Redis.from_url(valkey_url))
        assert repr(store).endswith("not connected yet)")
        await (await AsyncLock(store, "seen-by-nobody").acquire(timeout=0)).release()
        assert repr(store).endswith("compare-and-delete by DELIFEQ)")
        await store.close()

    asyncio.run(used_once())
