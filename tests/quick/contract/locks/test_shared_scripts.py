"""The scripts of locks on a server: keys, votes and fenced values."""

from collections.abc import Iterator
from typing import Final

import pytest
import redis
from redis import asyncio as redis_asyncio

from segmented import protocol as op
from segmented.clock import Clock, SystemClock
from segmented.errors import LeaseLost, StoreRefused
from segmented.keys import lock_keys, read_write_keys
from segmented.models import Acquired, HeldBy, Lost, Reestablished, Released, Renewed
from segmented.plans.drivers import AsyncStore
from segmented.protocol.wire import Dialect, text
from segmented.stores.redis import AsyncRedisStore, RedisStore
from tests.fixtures.stores import FEW_REDIS, AsyncSide, Side, SyncSide
from tests.support.flavour import Flavour
from tests.support.servers.nodes import Node

NAME: Final = "n{a}me"
KEYS: Final = read_write_keys(NAME)
DAY_MS: Final = 24 * 3_600_000


def lives_of(store: RedisStore) -> dict[str, int]:
    """Return every key of the lock with the milliseconds that it has left; -1 for one without end."""
    found = [text(key) for key in store.client.keys("*")]
    return {key: store.client.pttl(key) for key in found if key.startswith(KEYS.lock)}


def test_a_reader_is_a_member_of_a_set_that_lives_as_long_as_the_last(store: RedisStore) -> None:
    store.execute(op.AcquireRead(NAME, "r1", 60_000))
    store.execute(op.AcquireRead(NAME, "r2", 30_000))
    lives = lives_of(store)
    assert set(lives) == {KEYS.lock, KEYS.fence, KEYS.readers}
    assert 30_000 < lives[KEYS.lock] <= 60_000
    assert 30_000 < lives[KEYS.readers] <= 60_000
    assert DAY_MS < lives[KEYS.fence] <= DAY_MS + 60_000
    store.execute(op.RenewReadWrite(NAME, "r2", 90_000))
    assert 60_000 < lives_of(store)[KEYS.lock] <= 90_000
    store.execute(op.ReleaseReadWrite(NAME, "r2"))
    assert 30_000 < lives_of(store)[KEYS.lock] <= 60_000
    store.execute(op.ReleaseReadWrite(NAME, "r1"))
    assert set(lives_of(store)) == {KEYS.fence}


def test_a_semaphore_is_one_set_that_lives_as_long_as_the_last_permit(store: RedisStore) -> None:
    keys = lock_keys(NAME)
    store.execute(op.AcquirePermit(NAME, "a", 60_000, 3))
    store.execute(op.AcquirePermit(NAME, "b", 30_000, 3))
    lives = lives_of(store)
    assert set(lives) == {keys.lock, keys.fence}
    assert 30_000 < lives[keys.lock] <= 60_000
    assert DAY_MS < lives[keys.fence] <= DAY_MS + 60_000
    assert store.client.hmget(keys.fence, ["kind", "permits"]) == [b"semaphore", b"3"]
    for holder in ("a", "b"):
        store.execute(op.ReleasePermit(NAME, holder))
    assert set(lives_of(store)) == {keys.fence}


@pytest.mark.parametrize(
    ("acquire", "renew", "release"),
    [
        (op.AcquireRead(NAME, "h", 60_000), op.RenewReadWrite(NAME, "h", 60_000), op.ReleaseReadWrite(NAME, "h")),
        (op.AcquireWrite(NAME, "h", 60_000), op.RenewReadWrite(NAME, "h", 60_000), op.ReleaseReadWrite(NAME, "h")),
        (op.AcquirePermit(NAME, "h", 60_000, 2), op.RenewPermit(NAME, "h", 60_000), op.ReleasePermit(NAME, "h")),
    ],
)
def test_without_memory_a_lease_is_renewed_and_released_and_none_is_granted(
    store: RedisStore, acquire: op.Operation[object], renew: op.Operation[object], release: op.Operation[object]
) -> None:
    store.execute(acquire)
    store.client.config_set("maxmemory", 1)
    try:
        assert store.execute(renew) == Renewed(60_000)
        assert store.execute(release) == Released()
        with pytest.raises(StoreRefused, match="maxmemory"):
            store.execute(acquire)
    finally:
        store.client.config_set("maxmemory", 0)


def test_all_keys_of_a_name_are_in_one_hash_slot() -> None:
    assert len({redis.crc.key_slot(key.encode()) for key in KEYS}) == 1


LONG_MS = 600_000


def vote(side: Side, name: str, holder: str = "h", *, number: int = 1, ttl_ms: int = LONG_MS) -> Acquired | HeldBy:
    answer = side.execute(op.AcquireVote(name, holder, ttl_ms, number))
    assert isinstance(answer, Acquired | HeldBy)
    return answer


def mark(side: Side, name: str) -> str:
    """Return the mark by which another attempt knows who has the vote."""
    answer = vote(side, name, "who asks")
    assert isinstance(answer, HeldBy)
    return answer.holder_mark


def test_e1_a_vote_that_is_asked_for_again_is_the_holders_still(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, ttl_ms=60_000)
    assert vote(side, name, number=2) == Acquired(0, LONG_MS, replay=True)
    held = vote(side, name, "another")
    assert isinstance(held, HeldBy)
    assert held.free_in_ms is not None
    assert held.free_in_ms > LONG_MS - 60_000


def test_a_mark_is_that_of_one_attempt_and_not_the_holders_id(side: Side) -> None:
    name, other = side.name("lock"), side.name("lock")
    vote(side, name, "secret", number=1)
    vote(side, other, "secret", number=1)
    assert mark(side, name) == mark(side, other)
    vote(side, other, "secret", number=2)
    assert mark(side, name) != mark(side, other)
    if side.flavour.store == "redis":
        assert "secret" not in mark(side, name)
        assert len(mark(side, name)) == 16


def test_what_takes_an_earlier_attempt_back_leaves_a_later_one_alone(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, number=3)
    assert side.execute(op.ReleaseVote(name, "h", 2)) == Lost()
    vote(side, name, number=1)  # a request that is late
    assert side.execute(op.ReleaseVote(name, "h", 2)) == Lost()
    assert side.execute(op.ReleaseVote(name, "h", 3)) == Released()


@pytest.mark.parametrize("reestablish", [False, True])
def test_b6_a_renewal_after_the_end_makes_the_vote_again_only_if_asked_and_says_so(
    side: Side, *, reestablish: bool
) -> None:
    name = side.name("lock")
    vote(side, name, ttl_ms=2)
    side.pass_time(0.01)
    answer = side.execute(op.RenewVote(name, "h", LONG_MS, reestablish))
    assert answer == (Reestablished() if reestablish else Lost())
    assert isinstance(vote(side, name, "another"), HeldBy) is reestablish


def test_a_renewal_takes_no_vote_from_somebody_else(side: Side) -> None:
    name = side.name("lock")
    vote(side, name, "another")
    assert side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True)) == Lost()


def test_a_release_wakes_and_a_quiet_one_does_not(redis_side: Side) -> None:
    name, server = redis_side.name("lock"), redis_side.raw()
    with server.pubsub() as listener:
        listener.subscribe(lock_keys(name).freed)
        assert (listener.get_message(timeout=30) or {})["type"] == "subscribe"
        vote(redis_side, name)
        redis_side.execute(op.ReleaseVote(name, "h", 1, quiet=True))
        vote(redis_side, name)
        redis_side.execute(op.ReleaseVote(name, "nobody"))
        redis_side.execute(op.ReleaseVote(name, "h"))
        server.publish(lock_keys(name).freed, "the end")
        assert [(listener.get_message(timeout=30) or {})["data"] for _ in range(2)] == ["freed", "the end"]


def test_the_keys_of_a_vote_lapse_and_are_those_of_a_lock(plain_redis_side: Side) -> None:
    name, server = plain_redis_side.name("lock"), plain_redis_side.raw()
    keys = lock_keys(name)
    vote(plain_redis_side, name)
    plain_redis_side.execute(op.RenewVote(name, "h", LONG_MS, reestablish=True))
    assert {key for key in server.keys("*") if name in key} == {keys.lock, keys.fence}
    assert server.get(keys.lock) == "h"
    assert server.hget(keys.fence, "kind") == "quorum"
    assert LONG_MS - 60_000 < server.pttl(keys.lock) <= LONG_MS
    day_ms = 24 * 3_600_000
    assert day_ms < server.pttl(keys.fence) <= day_ms + LONG_MS
    plain_redis_side.execute(op.ReleaseVote(name, "h"))
    assert {key for key in server.keys("*") if name in key} == {keys.fence}


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


@pytest.mark.real  # that server is Debian's
@pytest.mark.parametrize("flavour", FEW_REDIS, ids=str)
def test_a_server_without_such_commands_gets_scripts(flavour: Flavour, redis70_server: Node) -> None:
    side = side_of(flavour, redis70_server.url, None)
    assert cycle(side) == {"evalsha": 3, "delifeq": 0}
    assert repr(side.store).endswith("compare-and-delete by a script)")
    side.close()


@pytest.mark.real
@pytest.mark.parametrize(
    ("flavour", "dialect"), list(zip(FEW_REDIS, [Dialect.REDIS, Dialect.TAIR], strict=True)), ids=str
)
def test_a_server_that_refuses_the_command_gets_the_script(
    flavour: Flavour, dialect: Dialect, redis70_server: Node
) -> None:
    side = side_of(flavour, redis70_server.url, dialect)
    assert cycle(side) == {"evalsha": 3, "delifeq": 0}
    side.close()
