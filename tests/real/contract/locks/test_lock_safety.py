"""What a lock may ask for beyond its lease: lock-delay after a loss, and the acknowledgement of replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented import AsyncLock, Lock, RedisStore, protocol as op
from segmented.clock import Clock, SystemClock
from segmented.errors import AcquireTimeout, InvalidInput, ReplicasMissing
from segmented.keys import lock_keys
from segmented.locks.lock import LockClaim
from segmented.stores.memory import MemoryStore
from segmented.stores.redis import AsyncRedisStore
from tests.fixtures.stores import AsyncSide, Blocking, Side
from tests.support.flavour import Flavour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.plans.drivers import AsyncStore
    from tests.support.servers.deployments import ReplicaPair


# --- lock-delay ---


def test_j8_a_lost_lease_keeps_the_name_closed_for_its_delay_which_is_told_apart_from_held(side: Side) -> None:
    name = side.name("lock")
    lease = side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0)
    with pytest.raises(AcquireTimeout) as held:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert not held.value.is_delayed
    side.execute(lease.claim.renewing(300))
    side.pass_time(0.31)
    with pytest.raises(AcquireTimeout, match=r"its last lease was lost, and the lock-delay still runs$") as delayed:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert delayed.value.is_delayed


def test_a_name_is_open_again_when_its_delay_is_over(side: Side) -> None:
    name = side.name("lock")
    side.execute(op.AcquireLock(name, "h", 100, delay_ms=100))
    side.pass_time(0.21)
    side.lock(name, ttl=60).acquire(timeout=0).release()


def test_a_release_in_time_ends_the_delay_with_the_lease(side: Side) -> None:
    name = side.name("lock")
    side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0).release()
    side.lock(name, ttl=60).acquire(timeout=0).release()


def test_a_renewed_lease_is_trusted_for_its_ttl_and_the_key_lives_for_the_delay_beyond(redis_side: Side) -> None:
    name = redis_side.name("lock")
    lease = redis_side.lock(name, ttl=200, lock_delay=100).acquire(timeout=0)
    assert 200_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 300_000
    assert lease.remaining() < 200
    lease.renew(ttl=400)
    assert 400_000 < redis_side.raw().pttl(lock_keys(name).lock) <= 500_000
    assert 200 < lease.remaining() < 400
    lease.release()


def test_a_lease_whose_delay_runs_is_neither_renewed_nor_released(side: Side) -> None:
    name = side.name("lock")
    delay_claim = side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0).claim
    side.execute(delay_claim.renewing(300))
    side.pass_time(0.31)
    assert type(side.execute(delay_claim.renewing(60_000))).__name__ == "Lost"
    assert type(side.execute(delay_claim.releasing())).__name__ == "Lost"
    with pytest.raises(AcquireTimeout) as delayed:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert delayed.value.is_delayed


def test_the_delay_of_an_earlier_holder_says_nothing_about_the_present_one(side: Side) -> None:
    name = side.name("lock")
    side.lock(name, ttl=60, lock_delay=60).acquire(timeout=0).release()
    side.lock(name, ttl=30).acquire(timeout=0)
    with pytest.raises(AcquireTimeout) as held:
        side.lock(name, ttl=60).acquire(timeout=0)
    assert not held.value.is_delayed


def test_a_waiter_gets_in_when_the_delay_is_over(waiting_side: Side) -> None:
    name = waiting_side.name("lock")
    waiting_side.execute(op.AcquireLock(name, "h", 300, delay_ms=200))
    waiting_side.lock(name, ttl=60).acquire(timeout=30).release()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e16])
def test_a_delay_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"^lock_delay of .* s is not a duration: give "):
        Lock(MemoryStore(), "door", lock_delay=seconds)


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


def test_g1_a_stopped_replica_acknowledges_nothing_not_even_on_a_connection_that_is_new(
    pair_lock: Callable[..., Any], replica_pair: ReplicaPair
) -> None:
    replica_pair.replica.pause()
    try:
        with pytest.raises(ReplicasMissing):
            pair_lock("paused", replicas=1, replicas_timeout=0.1).acquire(timeout=0)
    finally:
        replica_pair.replica.resume()
    assert replica_pair.master.ask("EXISTS", lock_keys("paused").lock) == 0


def test_a_lock_that_is_held_is_not_asked_to_be_acknowledged(
    pair_lock: Callable[..., Any], replica_pair: ReplicaPair
) -> None:
    with pair_lock("held").acquire(timeout=0):
        replica_pair.master.ask("CONFIG", "RESETSTAT")
        assert pair_lock("held", replicas=1).try_acquire() is None
        assert "cmdstat_wait" not in replica_pair.master.info("commandstats")


@pytest.mark.parametrize("replicas", [-1, 101, 1.5, True, "2"])
def test_a_number_of_replicas_that_is_none_is_refused(replicas: Any) -> None:  # noqa: ANN401  # bad input
    with pytest.raises(InvalidInput, match=r"is not a number of replicas: give 0 to 100$"):
        Lock(MemoryStore(), "door", replicas=replicas)


def test_in_memory_there_are_no_replicas_so_none_is_waited_for() -> None:
    assert LockClaim("door", "h", 1_000).acquiring().replicas == 0
