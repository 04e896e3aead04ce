"""What a failover to a replica that missed the last writes does to fencing tokens, as the pages say it."""

from functools import partial
from typing import Final

import redis

from segmented import Grant, Lock, Pool, RedisStore
from segmented.keys import lock_keys
from tests.support.servers.deployments import ReplicaPair
from tests.support.servers.nodes import eventually

HOUR_US: Final = 3_600 * 10**6


def is_acknowledged(client: redis.Redis) -> bool:
    """Return whether the replica has every write so far of this connection, or of others before it."""
    client.set("marker", "1")
    return bool(client.execute_command("WAIT", 1, 1_000) == 1)


def cut_off(pair: ReplicaPair) -> None:
    """Let the replica miss every later write."""
    pair.replica.ask("REPLICAOF", "NO", "ONE")


def test_after_a_failover_that_lost_grants_a_pool_gives_larger_tokens(private_replica_pair: ReplicaPair) -> None:
    pair = private_replica_pair
    with RedisStore.from_url(pair.url) as before:
        pool = Pool(before, "mug")
        pool.open(stock=10, segments=2)
        with pair.master.client() as client:
            eventually(partial(is_acknowledged, client), "the replica has it all")
        cut_off(pair)
        lost = pool.grant("o-1", timeout=0)
    pair.master.kill()
    with RedisStore.from_url(pair.replica.url) as after:
        found = Pool(after, "mug").grant("o-2", timeout=0)
    assert isinstance(lost, Grant)
    assert isinstance(found, Grant)
    assert found.fencing_token > lost.fencing_token


def test_a_lock_of_a_promoted_server_whose_clock_is_behind_gives_a_smaller_token(
    private_replica_pair: ReplicaPair,
) -> None:
    pair = private_replica_pair
    cut_off(pair)
    with RedisStore.from_url(pair.url) as before:
        first = Lock(before, "door").acquire(timeout=0)
        # as a master leaves it whose clock is an hour ahead of its replica's
        before.client.hincrby(lock_keys("door").fence, "token", HOUR_US)
        first.release()
        ahead = Lock(before, "door").acquire(timeout=0).fencing_token
    pair.master.kill()
    with RedisStore.from_url(pair.replica.url) as after:
        assert Lock(after, "door").acquire(timeout=0).fencing_token < ahead


def test_a_lock_whose_promoted_server_knows_the_last_token_gives_a_larger_one(
    private_replica_pair: ReplicaPair,
) -> None:
    pair = private_replica_pair
    with RedisStore.from_url(pair.url) as before:
        first = Lock(before, "door").acquire(timeout=0)
        before.client.hincrby(lock_keys("door").fence, "token", HOUR_US)
        first.release()
        ahead = Lock(before, "door").acquire(timeout=0)
        ahead.release()
        with pair.master.client() as client:
            eventually(partial(is_acknowledged, client), "the replica has it all")
        cut_off(pair)
    pair.master.kill()
    with RedisStore.from_url(pair.replica.url) as after:
        assert Lock(after, "door").acquire(timeout=0).fencing_token == ahead.fencing_token + 1
