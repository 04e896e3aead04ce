"""Lost replies of a cluster's nodes, through a proxy before each."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented.clock import SystemClock
from segmented.errors import LeaseLost
from segmented.keys import lock_keys
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.contract.locks.shared import several
from tests.contract.parking import has_come_to_rest, wait_until
from tests.fixtures.stores import AsyncSide, Flavour, Side, SyncSide
from tests.fixtures.stores_deployed import COLOURS
from tests.support.proxy import LOOPBACK, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncStore
    from tests.support.servers.deployments import Cluster

LONG: Final = 60.0
SOON: Final = 10.0


@pytest.fixture
def proxies(cluster: Cluster) -> Iterator[dict[int, Proxy]]:
    """A proxy before each node, by the node's port."""
    with ExitStack() as stack:
        yield {node.port: stack.enter_context(Proxy((LOOPBACK, node.port))) for node in cluster.nodes}


@pytest.fixture(params=COLOURS)
def far_side(request: pytest.FixtureRequest, cluster: Cluster, proxies: dict[int, Proxy]) -> Iterator[Side]:
    """A store that reaches every node through its proxy."""
    ports = {port: proxy.port for port, proxy in proxies.items()}
    options: dict[str, Any] = {
        "host": LOOPBACK,
        "port": ports[cluster.nodes[0].port],
        "address_remap": lambda address: (LOOPBACK, ports.get(address[1], address[1])),
    }

    async def make_store(clock: Clock) -> AsyncStore:
        return AsyncRedisStore(redis_asyncio.RedisCluster(**options), clock=clock)

    clock = SystemClock()
    if request.param == "async":
        side: Side = AsyncSide(Flavour("redis", "async"), clock, make_store)
    else:
        side = SyncSide(Flavour("redis", "sync"), RedisStore(redis.RedisCluster(**options), clock=clock), clock)
    yield side
    side.close()


def test_a_release_whose_reply_was_lost_is_none_that_came_too_late_also_beside_a_local_waiter(
    far_side: Side, cluster: Cluster, proxies: dict[int, Proxy]
) -> None:
    name = far_side.name("handed")
    lock = far_side.lock(name, ttl=LONG)
    lock.acquire(timeout=0).release()
    for with_waiter in (False, True):
        lease = lock.acquire(timeout=SOON)
        waiter = far_side.start(partial(lock.acquire, timeout=LONG)) if with_waiter else None
        if waiter is not None:
            wait_until(partial(has_come_to_rest, far_side.store, 1))
        proxy = proxies[cluster.master_of(lock_keys(name).lock).port]
        before = proxy.swallowed
        proxy.swallow_replies(1, to=re.escape(lease.holder_id.encode()))
        lease.release()
        assert proxy.swallowed == before + 1
        if waiter is not None:
            waiter.result(SOON).release()


def test_several_names_on_several_nodes_are_released_though_a_reply_was_lost(
    far_side: Side, cluster: Cluster, proxies: dict[int, Proxy]
) -> None:
    names = [far_side.name("one") for _ in range(6)]
    several(far_side, names, ttl=LONG).acquire(timeout=0).release()
    lease = several(far_side, names, ttl=LONG).acquire(timeout=0)
    proxy = proxies[cluster.master_of(lock_keys(names[0]).lock).port]
    before = proxy.swallowed
    proxy.swallow_replies(1, to=b"DELIFEQ|EVALSHA")
    lease.release()
    assert proxy.swallowed == before + 1


def test_a_lease_that_was_taken_away_is_lost_when_no_reply_was(far_side: Side, cluster: Cluster) -> None:
    names = [far_side.name("gone") for _ in range(2)]
    lease = several(far_side, names, ttl=LONG).acquire(timeout=0)
    key = lock_keys(names[1]).lock
    cluster.master_of(key).ask("DEL", key)
    with pytest.raises(LeaseLost, match=names[1]):
        lease.release()
