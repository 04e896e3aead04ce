"""A cluster of which nodes go away, in mid-wait and in mid-hold; and what it takes to be connected to."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Final

import pytest

from segmented.clock import SystemClock
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.keys import lock_keys, shard_keys
from segmented.locks import Lease
from segmented.models import Acquired
from segmented.protocol import AcquireLock
from segmented.stock import Pool
from segmented.stores.redis import RedisStore, listener
from tests.fixtures.stores import REDIS, Side, make_side
from tests.fixtures.stores_deployed import COLOURS, deployed_side, sentence_of
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.flavour import Flavour
from tests.support.servers.deployments import Cluster
from tests.support.servers.moving import WAYS, SlotMover
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


# Slots of a cluster: all keys of a name are in one, names are on all masters, and a slot may move in mid-use.


# --- slots ---
# --- messages ---
def sent(cluster: Cluster) -> tuple[int, int]:
    """Return how many messages of PUBLISH, and of SPUBLISH, all nodes have sent to each other."""
    infos = [dict(line.split(":") for line in node.ask("CLUSTER", "INFO").split()) for node in cluster.nodes]
    kinds = ("publish", "publishshard")
    found = [sum(int(info.get(f"cluster_stats_messages_{kind}_sent", 0)) for info in infos) for kind in kinds]
    return found[0], found[1]


@pytest.mark.parametrize("colour", COLOURS)
def test_a_release_sends_one_message_to_its_replica_and_none_to_other_masters(cluster: Cluster, colour: str) -> None:
    side = deployed_side(cluster.url, colour)
    pool = side.pool(side.name())
    pool.open(stock=100, segments=4)
    before = sent(cluster)
    for number in range(20):
        with pool.grant(f"order{number}"):
            pass
        side.lock(side.name(), ttl=LONG).acquire(timeout=0).release()
    after = sent(cluster)
    side.close()
    assert (after[0] - before[0], after[1] - before[1]) == (0, 40)


# --- a slot moves ---
def parked(side: Side, name: str) -> Future[Lease]:
    """Begin to wait for a lock, and return once the waiter is parked."""
    lock = side.lock(name, ttl=LONG)
    waiter: Future[Lease] = side.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, side.store, 1))
    return waiter


@pytest.mark.parametrize("way", WAYS)
def test_a_waiter_follows_its_slot_to_the_other_node(
    cluster: Cluster, shared_sides: tuple[Side, Side], way: str
) -> None:
    ours, theirs = shared_sides
    name = ours.name("parked")
    channel = lock_keys(name).freed
    held = theirs.lock(name, ttl=2 * LONG).acquire(timeout=0)
    waiter = parked(ours, name)
    mover = SlotMover(cluster, channel)
    mover.move(way)
    eventually(lambda: mover.target.ask("PUBSUB", "SHARDNUMSUB", channel)[1] == 1, "the waiter listens at the new node")
    assert not waiter.done()
    held.release()
    waiter.result(SOON).release()


def test_a_lock_released_while_its_slot_moves_wakes_the_waiter_on_arrival(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    ours, theirs = shared_sides
    name = ours.name("parked")
    held = theirs.lock(name, ttl=2 * LONG).acquire(timeout=0)
    waiter = parked(ours, name)
    mover = SlotMover(cluster, lock_keys(name).lock)
    mover.begin()
    mover.move_keys()
    held.release()  # its message goes to those who listen at the new node, and nobody does yet
    assert not waiter.done()
    mover.end()
    waiter.result(SOON).release()


def test_the_listener_of_a_node_ends_when_its_last_slot_has_moved(cluster: Cluster) -> None:
    sides = [deployed_side(cluster.url, "sync") for _ in range(2)]
    name, before = sides[0].name("parked"), set(threading.enumerate())
    held = sides[1].lock(name, ttl=2 * LONG).acquire(timeout=0)
    waiter = parked(sides[0], name)

    def listeners() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "segmented-listener" and each not in before]

    (first,) = listeners()
    SlotMover(cluster, lock_keys(name).lock).move(WAYS[0])
    eventually(lambda: first not in listeners(), "the listener of the old node ends")
    assert len(listeners()) == 1
    held.release()
    waiter.result(SOON).release()
    for side in sides:
        side.close()


def test_a_pool_is_sold_while_its_slot_moves(cluster: Cluster, shared_sides: tuple[Side, Side]) -> None:
    ours, theirs = shared_sides
    sales, sku = 120, ours.name("ticket")
    pools = [side.pool(sku) for side in shared_sides]
    pools[0].open(stock=sales, segments=8)
    sold = threading.Semaphore(0)

    def sell(half: int) -> None:
        for number in range(sales // 2):
            with pools[half].grant(f"order{half}-{number}", timeout=LONG):
                sold.release()

    sellers = [side.start(partial(sell, half)) for half, side in enumerate((ours, theirs))]
    for _ in range(sales // 6):
        assert sold.acquire(timeout=SOON)
    mover = SlotMover(cluster, shard_keys(sku).meta)
    mover.begin()
    mover.move_keys()
    mover.end()
    for seller in sellers:
        seller.result(2 * SOON)
    report = pools[1].audit()
    assert report.is_clean
    assert (report.state.available, report.state.reserved, report.state.confirmed) == (0, 0, sales)
    assert cluster.master_of(shard_keys(sku).meta) is mover.target


def test_an_operation_on_a_slot_on_its_way_waits_until_it_has_arrived(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    ours, theirs = shared_sides
    name = ours.name("lock")
    held = ours.lock(name, ttl=LONG).acquire(timeout=0)
    mover = SlotMover(cluster, lock_keys(name).lock)
    mover.target.ask("CONFIG", "RESETSTAT")
    mover.begin()
    assert {key for key in mover.move_keys() if f"{{{name}}}" in key} == {lock_keys(name).lock, lock_keys(name).fence}
    held.renew()  # one key: the source says where it is, once (ASK)
    asking = theirs.start(lambda: theirs.execute(AcquireLock(name, "b", 60_000)))  # several keys: later (TRYAGAIN)
    eventually(lambda: "errorstat_TRYAGAIN" in mover.target.info("errorstats"), "it was told to try again")
    assert not asking.done()
    mover.end()
    assert not isinstance(asking.result(SOON), Acquired)  # held by us, as it should be
    held.release()


# A listener asks now and then whether its connection still lives, and the answer is not taken for a loss.


QUICK = 0.05
ENOUGH = 5
"""Answered questions, each of which would have been taken for a lost connection if it were not understood."""


def pings(node: Node) -> int:
    calls: int = node.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]
    return calls


class Kept:
    """Counts the questions that the one subscribed connection of a server has been asked so far.

    On a busy machine an answer may take too long, and the connection is made again: then the count begins again.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connections, self._asked = subscribers(node), pings(node)

    def is_kept(self) -> bool:
        """Return whether the connection was asked often enough since it was made."""
        asked, found = pings(self._node), subscribers(self._node)
        if found != self._connections:
            self._connections, self._asked = found, pings(self._node)
        return len(found) == 1 and asked >= self._asked + ENOUGH


@pytest.mark.parametrize("flavour", [REDIS[0], REDIS[-1]], ids=str)
def test_a_parked_waiters_connection_is_asked_for_a_sign_of_life_and_kept(
    flavour: Flavour, single_server: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PING_SECONDS", QUICK)
    monkeypatch.setattr(listener, "POLL_SECONDS", QUICK)
    side = make_side(flavour, SystemClock(), single_server.url)
    held = side.lock("a", ttl=LONG).acquire(timeout=0)
    lock = side.lock("a", ttl=LONG)
    waiter = side.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, side.store, 1))
    eventually(Kept(single_server).is_kept, "one connection is asked, and kept", seconds=SOON)
    held.release()
    waiter.result(SOON).release()
    side.close()
