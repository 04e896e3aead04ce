"""A cluster of which nodes go away, in mid-wait and in mid-hold; and what it takes to be connected to."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.keys import lock_keys
from segmented.models import Acquired
from segmented.protocol import AcquireLock
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import deployed_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import Node, eventually

LONG: Final = 600.0
SOON: Final = 60.0


@pytest.fixture
def sides(request: pytest.FixtureRequest, private_cluster: Cluster) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on a cluster that the test may break."""
    made = [deployed_side(private_cluster.url, getattr(request, "param", "sync"), patience=SOON) for _ in range(2)]
    yield made[0], made[1]
    for side in made:
        side.close()


def name_on(cluster: Cluster, master: Node, word: str = "lock") -> str:
    """Return the name of a lock that this master serves."""
    names = (f"{word}{number}" for number in range(1_000))
    return next(name for name in names if cluster.master_of(lock_keys(name).lock) is master)


def listeners_at(node: Node, channel: str) -> int:
    """Return how many processes this node sends the channel's messages to."""
    count: int = node.ask("PUBSUB", "SHARDNUMSUB", channel)[1]
    return count


def subscribers(node: Node) -> set[str]:
    """Return the ids of the connections that listen at a node."""
    with node.client() as client:
        return {found["id"] for found in client.client_list(_type="pubsub")}


# --- a master goes away ---


@pytest.mark.parametrize(("sides", "way"), [("sync", "kill"), ("async", "cut")], indirect=["sides"])
def test_a_waiter_proceeds_after_its_master_was_replaced(
    private_cluster: Cluster, sides: tuple[Side, Side], way: str
) -> None:
    ours, theirs = sides
    old = private_cluster.masters()[1]
    replica = private_cluster.replica_of(old)
    name = name_on(private_cluster, old)
    held = theirs.lock(name, ttl=2 * LONG).acquire(timeout=0)
    lock = ours.lock(name, ttl=LONG)
    waiter = ours.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, ours.store, 1))
    eventually(lambda: replica.ask("DBSIZE") == 3, "lease, fence and line are replicated")
    if way == "kill":
        old.kill()
    else:
        old.pause()
    private_cluster.wait_failover(old, replica)
    held.renew()
    channel = lock_keys(name).freed
    listening = [node for node in private_cluster.nodes if node is not old]
    eventually(lambda: any(listeners_at(node, channel) for node in listening), "the waiter listens")
    held.release()
    taken = waiter.result(SOON)
    assert taken.fencing_token > held.fencing_token
    taken.release()


def test_an_operation_waits_for_the_replica_to_take_over_and_the_other_masters_go_on(
    private_cluster: Cluster, sides: tuple[Side, Side]
) -> None:
    ours, theirs = sides
    old, *others = private_cluster.masters()
    replica = private_cluster.replica_of(old)
    replica.ask("CONFIG", "SET", "cluster-replica-no-failover", "yes")  # it waits until the others have gone on
    lost, kept = name_on(private_cluster, old), [name_on(private_cluster, master) for master in others]
    for side in sides:
        for name in (lost, *kept):
            side.lock(name, ttl=LONG).acquire(timeout=SOON).release()
    old.kill()
    asking = ours.start(lambda: ours.execute(AcquireLock(lost, "a", 60_000)))
    for _ in range(20):
        for name in kept:
            theirs.lock(name, ttl=LONG).acquire(timeout=SOON).release()
    assert not asking.done()
    replica.ask("CONFIG", "SET", "cluster-replica-no-failover", "no")
    assert isinstance(asking.result(2 * SOON), Acquired)
    assert replica.info("replication")["role"] == "master"


def test_a_lost_subscription_is_made_again_at_the_node_of_its_slot(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    ours, theirs = shared_sides
    name = ours.name("lock")
    channel = lock_keys(name).freed
    master = cluster.master_of(channel)
    others = subscribers(master)
    held = theirs.lock(name, ttl=2 * LONG).acquire(timeout=0)
    lock = ours.lock(name, ttl=LONG)
    waiter = ours.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, ours.store, 1))
    (lost,) = subscribers(master) - others
    assert [listeners_at(node, channel) for node in cluster.nodes] == [int(node is master) for node in cluster.nodes]
    master.ask("CLIENT", "KILL", "TYPE", "pubsub")
    eventually(lambda: listeners_at(master, channel) == 1 and lost not in subscribers(master), "it listens again")
    held.release()
    waiter.result(SOON).release()


@pytest.mark.parametrize(("colour", "deadline"), [("sync", 0.5), ("async", None)])
def test_without_any_node_an_operation_is_given_up_at_its_patience_or_deadline(
    private_cluster: Cluster, colour: str, deadline: float | None
) -> None:
    side = deployed_side(private_cluster.url, colour, patience=1.5 if deadline is None else LONG)
    for node in private_cluster.nodes:
        node.kill()
    lock = side.lock("a", ttl=LONG)
    with pytest.raises(StoreUnavailable, match="did not answer"):  # long before the test's time limit
        lock.try_acquire() if deadline is None else lock.acquire(timeout=deadline)
    side.close()


# --- at the first contact ---


def sentence_of(url: str, kind: type[InvalidInput | StoreUnavailable] = InvalidInput) -> str:
    with pytest.raises(kind) as caught:
        RedisStore.from_url(url)
    return str(caught.value)


def test_one_master_that_may_evict_is_enough_to_refuse_pools(cluster: Cluster) -> None:
    node = cluster.masters()[2]
    node.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    try:
        with RedisStore.from_url(cluster.url) as store, pytest.raises(InvalidInput) as caught:
            Pool(store, "mug").open(stock=1, segments=1)
    finally:
        node.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    sentence = f"the server at {cluster.url} (node 127.0.0.1:{node.port}) has maxmemory-policy volatile-lru"
    assert str(caught.value).startswith(sentence)


def test_a_node_of_a_cluster_given_as_a_server(cluster: Cluster) -> None:
    url = cluster.nodes[0].url
    assert sentence_of(url) == f"the server at {url} is a node of a cluster: give redis+cluster://HOST:PORT"


def test_a_server_given_as_a_cluster(single_server: Node) -> None:
    url = f"redis+cluster://127.0.0.1:{single_server.port}"
    assert sentence_of(url) == f"the server at {url} is not usable: Cluster mode is not enabled on this node"
