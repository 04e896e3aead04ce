"""What a lock may ask for beyond its lease: lock-delay after a loss, and the acknowledgement of replicas."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented import AsyncLock, Lock, RedisStore
from segmented.clock import Clock, SystemClock
from segmented.errors import ReplicasMissing
from segmented.keys import lock_keys
from segmented.plans.drivers import AsyncStore
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import AsyncSide, Blocking
from tests.support.flavour import Flavour
from tests.support.servers.deployments import ReplicaPair

# --- lock-delay ---


# --- replicas ---


@pytest.fixture(params=["sync", "async"])
def pair_lock(request: pytest.FixtureRequest, replica_pair: ReplicaPair) -> Iterator[Callable[..., Any]]:
    """Makes locks of either colour on the master; called with a name and options."""
    url = replica_pair.url
    if request.param == "sync":
        store = RedisStore(redis.Redis.from_url(url))
        yield lambda name, **options: Lock(store, name, **options)
        store.close()
        store.client.close()
        return

    async def make_store(clock: Clock) -> AsyncStore:
        return AsyncRedisStore(redis_asyncio.Redis.from_url(url), clock=clock)

    side = AsyncSide(Flavour("redis", "async"), SystemClock(), make_store)
    yield lambda name, **options: Blocking(AsyncLock(side.store, name, **options), side)
    side.close()


def test_an_acquire_that_the_replica_acknowledged_stands(
    pair_lock: Callable[..., Any], replica_pair: ReplicaPair
) -> None:
    with pair_lock("acknowledged", replicas=1, replicas_timeout=30.0).acquire(timeout=0) as lease:
        assert replica_pair.replica.ask("GET", lock_keys("acknowledged").lock) == lease.holder_id


def test_g1_too_few_acknowledgements_undo_the_acquire(pair_lock: Callable[..., Any], replica_pair: ReplicaPair) -> None:
    with pytest.raises(ReplicasMissing, match=r"^lock 'two' was acknowledged by 1 replicas of the 2 wanted$") as raised:
        pair_lock("two", replicas=2, replicas_timeout=3.0).acquire(timeout=0)
    assert (raised.value.wanted, raised.value.acknowledged) == (2, 1)
    assert replica_pair.master.ask("EXISTS", lock_keys("two").lock) == 0


def test_g1_a_stopped_replica_acknowledges_nothing_even_on_a_new_connection(
    pair_lock: Callable[..., Any], replica_pair: ReplicaPair
) -> None:
    replica_pair.replica.pause()
    try:
        with pytest.raises(ReplicasMissing):
            pair_lock("paused", replicas=1, replicas_timeout=0.1).acquire(timeout=0)
    finally:
        replica_pair.replica.resume()
    assert replica_pair.master.ask("EXISTS", lock_keys("paused").lock) == 0
