"""Slots of a cluster: all keys of a name are in one, names are on all masters, and a slot may move in mid-use."""

import threading
from concurrent.futures import Future
from functools import partial
from typing import Final

import pytest

from segmented.keys import lock_keys, shard_keys
from segmented.locks import Lease
from segmented.models import Acquired
from segmented.protocol import AcquireLock
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import COLOURS, deployed_side
from tests.support.contract.parking import has_come_to_rest, wait_until
from tests.support.servers.deployments import Cluster
from tests.support.servers.moving import WAYS, SlotMover
from tests.support.servers.nodes import eventually

LONG: Final = 600.0
SOON: Final = 60.0


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
