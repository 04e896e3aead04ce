"""Lost replies of a cluster's nodes, through a proxy before each."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented.clock import Clock, SystemClock
from segmented.keys import lock_keys
from segmented.plans.drivers import AsyncStore
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import AsyncSide, Side, SyncSide
from tests.fixtures.stores_deployed import COLOURS
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.contract.pools.lost_replies import ROUNDS, STOCK, LossyPool, replays
from tests.support.flavour import Flavour
from tests.support.proxy import LOOPBACK, Proxy
from tests.support.servers.deployments import Cluster

LONG: Final = 600.0
SOON: Final = 60.0


@pytest.fixture
def proxies(cluster: Cluster) -> Iterator[dict[int, Proxy]]:
    """A proxy before each node, by the node's port."""
    with ExitStack() as stack:
        yield {node.port: stack.enter_context(Proxy((LOOPBACK, node.port))) for node in cluster.nodes}


@pytest.fixture
def far_side(request: pytest.FixtureRequest, cluster: Cluster, proxies: dict[int, Proxy]) -> Iterator[Side]:
    """A store that reaches every node through its proxy."""
    ports = {port: proxy.port for port, proxy in proxies.items()}
    options: dict[str, Any] = {
        "host": LOOPBACK,
        "port": ports[cluster.nodes[0].port],
        "address_remap": lambda address: (LOOPBACK, ports.get(address[1], address[1])),
    }

    async def make_store(clock: Clock) -> AsyncStore:
        return AsyncRedisStore(redis_asyncio.RedisCluster(**options), clock=clock, patience=SOON)

    clock = SystemClock()
    if getattr(request, "param", "sync") == "async":
        side: Side = AsyncSide(Flavour("redis", "async"), clock, make_store)
    else:
        store = RedisStore(redis.RedisCluster(**options), clock=clock, patience=SOON)
        side = SyncSide(Flavour("redis", "sync"), store, clock)
    yield side
    side.close()


@pytest.mark.parametrize("far_side", COLOURS, indirect=True)
def test_a_release_whose_reply_was_lost_is_none_that_came_too_late(
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


@pytest.fixture
def lossy_pool(far_side: Side, cluster: Cluster, proxies: dict[int, Proxy]) -> Iterator[LossyPool]:
    """A pool of one of the masters; not yet open."""
    made = LossyPool(far_side, lambda key: proxies[cluster.master_of(key).port].swallow_replies(1, to=b"EVALSHA"))
    yield made
    assert sum(proxy.swallowed for proxy in proxies.values()) == made.lost


@pytest.mark.parametrize("far_side", COLOURS, indirect=True)
def test_of_105_calls_with_a_lost_reply_none_says_replay_and_all_repeats_do(lossy_pool: LossyPool) -> None:
    lossy_pool.shop.open(STOCK, 4)
    found = replays(lossy_pool)
    assert found == dict.fromkeys(found, (0, ROUNDS))
    assert len(found) * ROUNDS == 105
