"""A cluster: every name's keys in one slot, names on all masters, and what happens when one of those goes away."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from segmented.errors import InvalidInput, StoreUnavailable
from segmented.keys import lock_keys, shard_keys
from segmented.models import Acquired, Released
from segmented.operations import AcquireLock, ReleaseLock
from segmented.plans import perform
from segmented.plans.effects import Batch
from segmented.stores.redis import RedisStore
from tests.contract.parking import has_come_to_rest, wait_until
from tests.fixtures.stores_deployed import COLOURS, deployed_side
from tests.nodes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.errors import SegmentedError
    from segmented.operations import Operation
    from tests.deployments import Cluster
    from tests.fixtures.stores import Side
    from tests.nodes import Node

AnswerT = TypeVar("AnswerT")

LONG: Final = 60.0
SOON: Final = 5.0
FAILOVER: Final = 25.0
"""Far above what a failover takes here (three seconds, and the pauses of a busy machine), far below LONG."""
ODD_NAMES: Final = ["plain", "{a}b", "a{b}c{d}", "}{", "{}", "%7B", "ünicode {x} 漢", "a b", "-", "x" * 300]


@pytest.fixture(params=COLOURS)
def shared_sides(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on the session's cluster, where slots may move and no node may be killed."""
    made = [deployed_side(cluster.url, request.param) for _ in range(2)]
    yield made[0], made[1]
    for side in made:
        side.close()


@pytest.fixture(params=COLOURS)
def sides(request: pytest.FixtureRequest, private_cluster: Cluster) -> Iterator[tuple[Side, Side]]:
    """Two processes' worth of stores on a cluster that the test may break."""
    made = [deployed_side(private_cluster.url, request.param) for _ in range(2)]
    yield made[0], made[1]
    for side in made:
        side.close()


def name_on(cluster: Cluster, master: Node, word: str = "lock") -> str:
    """Return the name of a lock that this master serves."""
    names = (f"{word}{number}" for number in range(1_000))
    return next(name for name in names if cluster.master_of(lock_keys(name).lock) is master)


def batch(side: Side, operations: tuple[Operation[AnswerT], ...]) -> list[AnswerT | SegmentedError]:
    """Perform many operations at once."""
    return side.run(perform(Batch(operations, time.monotonic() + LONG)))


# --- slots ---


def test_all_keys_of_a_lock_and_of_a_pool_are_in_one_slot_whatever_the_name(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    for name in ODD_NAMES:
        for keys in (lock_keys(name).listed(), [*shard_keys(name).listed(), f"{shard_keys(name).lock}:7"]):
            assert len({node.ask("CLUSTER", "KEYSLOT", key) for key in keys}) == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_odd_names_are_locked(cluster: Cluster, colour: str) -> None:
    side = deployed_side(cluster.url, colour)
    for name in ODD_NAMES:
        side.lock(name, ttl=LONG).acquire(timeout=0).release()
    side.close()


@pytest.mark.parametrize("colour", COLOURS)
def test_locks_are_on_all_three_masters_and_a_batch_reaches_each(cluster: Cluster, colour: str) -> None:
    side = deployed_side(cluster.url, colour)
    names = [side.name("spread") for _ in range(60)]
    operations = tuple(AcquireLock(name, "a", 60_000) for name in names)
    assert all(isinstance(answer, Acquired) for answer in batch(side, operations))
    homes = [cluster.master_of(lock_keys(name).lock) for name in names]
    assert {home.port for home in homes} == {master.port for master in cluster.masters()}
    for name, home in zip(names, homes, strict=True):
        assert home.ask("GET", lock_keys(name).lock) == "a"
        assert side.execute(ReleaseLock(name, "a")) == Released()
    side.close()


# --- a master goes away ---


@pytest.mark.parametrize("way", ["kill", "cut"])
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
    eventually(lambda: replica.ask("DBSIZE") == 2, "lease and fence are replicated")
    if way == "kill":
        old.kill()
    else:
        old.pause()
    private_cluster.wait_failover(old, replica)
    held.renew()
    channel = lock_keys(name).freed
    listening = [node for node in private_cluster.nodes if node is not old]
    eventually(lambda: any(node.ask("PUBSUB", "NUMSUB", channel)[1] for node in listening), "the waiter listens")
    began = time.monotonic()
    held.release()
    taken = waiter.result(LONG)
    assert time.monotonic() - began < SOON
    assert taken.fencing_token > held.fencing_token
    taken.release()


def test_an_operation_waits_for_the_replica_to_take_over_and_the_other_masters_go_on(
    private_cluster: Cluster, sides: tuple[Side, Side]
) -> None:
    ours, theirs = sides
    old, *others = private_cluster.masters()
    replica = private_cluster.replica_of(old)
    lost, kept = name_on(private_cluster, old), [name_on(private_cluster, master) for master in others]
    for side in sides:
        for name in (lost, *kept):
            side.lock(name, ttl=LONG).acquire(timeout=SOON).release()
    old.kill()
    asking = ours.start(lambda: ours.execute(AcquireLock(lost, "a", 60_000)))
    longest = 0.0
    while not asking.done():
        for name in kept:
            began = time.monotonic()
            theirs.lock(name, ttl=LONG).acquire(timeout=SOON).release()
            longest = max(longest, time.monotonic() - began)
    assert isinstance(asking.result(), Acquired)
    assert replica.info("replication")["role"] == "master"
    assert longest < 1.0


def test_a_batch_waits_for_the_replica_to_take_over(private_cluster: Cluster, sides: tuple[Side, Side]) -> None:
    ours, _ = sides
    operations = tuple(AcquireLock(f"lock{number}", "a", 60_000) for number in range(30))
    assert all(isinstance(answer, Acquired) for answer in batch(ours, operations))
    private_cluster.masters()[0].kill()
    assert all(isinstance(answer, Acquired) for answer in batch(ours, operations))  # the same holder asks again


def test_a_batch_of_which_one_master_is_gone_for_good_has_the_answers_of_the_others(private_cluster: Cluster) -> None:
    gone, *others = private_cluster.masters()
    names = [name_on(private_cluster, master) for master in (gone, *others)]
    stores = {colour: deployed_side(private_cluster.url, colour, patience=1.0) for colour in COLOURS}
    private_cluster.replica_of(gone).kill()
    gone.kill()
    for colour, side in stores.items():
        operations = tuple(AcquireLock(name, colour, 60_000) for name in names)
        answers = batch(side, operations)
        assert isinstance(answers[0], StoreUnavailable)
        assert len(answers) == 3
        assert not any(isinstance(answer, StoreUnavailable) for answer in answers[1:])
        side.close()


def test_a_cluster_that_has_lost_most_of_its_masters_is_unavailable(private_cluster: Cluster) -> None:
    kept, *gone = private_cluster.masters()
    name = name_on(private_cluster, kept)
    stores = [deployed_side(private_cluster.url, colour, patience=1.0) for colour in COLOURS]
    for master in gone:
        private_cluster.replica_of(master).kill()
        master.kill()
    eventually(lambda: "cluster_state:fail" in kept.ask("CLUSTER", "INFO"), "the last master knows")
    for side in stores:
        with pytest.raises(StoreUnavailable, match="has no master that can do it now: The cluster is down"):
            side.execute(AcquireLock(name, "a", 60_000))
        side.close()


def test_a_subscription_moves_to_another_node(cluster: Cluster, shared_sides: tuple[Side, Side]) -> None:
    ours, theirs = shared_sides
    name = ours.name("lock")
    channel = lock_keys(name).freed
    held = theirs.lock(name, ttl=2 * LONG).acquire(timeout=0)
    lock = ours.lock(name, ttl=LONG)
    waiter = ours.start(lambda: lock.acquire(timeout=LONG))
    wait_until(partial(has_come_to_rest, ours.store, 1))

    def heard_at() -> list[Node]:
        return [node for node in cluster.nodes if node.ask("PUBSUB", "NUMSUB", channel)[1] == 1]

    (first,) = heard_at()
    first.ask("CLIENT", "KILL", "TYPE", "pubsub")
    eventually(lambda: len(heard_at()) == 1 and heard_at() != [first], "it listens elsewhere")
    began = time.monotonic()
    held.release()
    waiter.result(LONG).release()
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("deadline", [None, 0.5])
def test_without_any_node_an_operation_is_given_up_after_the_patience_or_at_its_deadline(
    private_cluster: Cluster, colour: str, deadline: float | None
) -> None:
    side = deployed_side(private_cluster.url, colour, patience=1.5)
    for node in private_cluster.nodes:
        node.kill()
    began = time.monotonic()
    if deadline is None:
        with pytest.raises(StoreUnavailable, match="did not answer"):
            side.lock("a", ttl=LONG).try_acquire()
        assert 0.5 < time.monotonic() - began < 4.0
    else:
        with pytest.raises(StoreUnavailable, match="did not answer"):
            side.lock("a", ttl=LONG).acquire(timeout=deadline)
        assert time.monotonic() - began < 1.4
    side.close()


# --- a slot moves ---


class Mover:
    """Moves one slot from a master to another, key by key, as an operator's tool does."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.source = cluster.master_of(key)
        self.target = next(master for master in cluster.masters() if master is not self.source)
        self.slot: int = self.source.ask("CLUSTER", "KEYSLOT", key)
        self._masters = cluster.masters()
        self._source_id, self._target_id = self.source.ask("CLUSTER", "MYID"), self.target.ask("CLUSTER", "MYID")

    def begin(self) -> None:
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._source_id)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self._target_id)

    def move_at_once(self) -> None:
        """Have Valkey move the slot in one step, with all that is in it."""
        self.source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", self._target_id)

    def move_keys(self) -> int:
        moved = 0
        while keys := self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            self.source.ask("MIGRATE", *self.target.address, "", 0, 5_000, "KEYS", *keys)
            moved += len(keys)
        return moved

    def end(self) -> None:
        for node in (self.target, self.source, *self._masters):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self._target_id)


@pytest.mark.parametrize("way", ["key by key", "in one step"])
def test_a_slot_that_is_moved_in_mid_use_costs_a_pause_and_no_error(
    cluster: Cluster, shared_sides: tuple[Side, Side], way: str
) -> None:
    name = shared_sides[0].name("busy")
    key = lock_keys(name).lock
    mover = Mover(cluster, key)
    stopping = threading.Event()
    tokens: list[int] = []

    def use(side: Side) -> None:
        while not stopping.is_set():
            with side.lock(name, ttl=LONG).acquire(timeout=LONG) as lease:
                tokens.append(lease.fencing_token)

    users = [side.start(partial(use, side)) for side in shared_sides]
    wait_until(lambda: len(tokens) > 20)
    if way == "key by key":
        mover.begin()
        mover.move_keys()
        mover.end()
    else:
        mover.move_at_once()
        eventually(lambda: cluster.master_of(key) is mover.target, "the slot is moved")
    after = len(tokens)
    wait_until(lambda: len(tokens) > after + 20)
    stopping.set()
    for user in users:
        user.result(LONG)
    assert tokens == sorted(set(tokens))
    assert cluster.master_of(key) is mover.target


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
        assert sold.acquire(timeout=LONG)
    mover = Mover(cluster, shard_keys(sku).meta)
    mover.begin()
    mover.move_keys()
    mover.end()
    for seller in sellers:
        seller.result(LONG)
    report = pools[1].audit()
    assert report.is_clean
    assert (report.state.available, report.state.reserved, report.state.confirmed) == (0, 0, sales)
    assert cluster.master_of(shard_keys(sku).meta) is mover.target


def test_a_batch_finds_the_slots_that_were_moved_since_the_last_look(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    ours, theirs = shared_sides
    names = [ours.name("lock") for _ in range(30)]
    held = tuple(AcquireLock(name, "a", 60_000) for name in names)
    assert all(isinstance(answer, Acquired) for answer in batch(ours, held))
    for name in names[:5]:
        mover = Mover(cluster, lock_keys(name).lock)
        mover.begin()
        mover.move_keys()
        mover.end()
    assert batch(ours, tuple(ReleaseLock(name, "a") for name in names)) == [Released()] * 30
    assert all(isinstance(answer, Acquired) for answer in batch(theirs, held))


def test_an_operation_on_a_slot_on_its_way_waits_until_it_has_arrived(
    cluster: Cluster, shared_sides: tuple[Side, Side]
) -> None:
    ours, theirs = shared_sides
    name = ours.name("lock")
    held = ours.lock(name, ttl=LONG).acquire(timeout=0)
    mover = Mover(cluster, lock_keys(name).lock)
    mover.target.ask("CONFIG", "RESETSTAT")
    mover.begin()
    assert mover.move_keys() == 2
    held.renew()  # one key: the source says where it is, once (ASK)
    asking = theirs.start(lambda: theirs.execute(AcquireLock(name, "b", 60_000)))  # several keys: later (TRYAGAIN)
    eventually(lambda: "errorstat_TRYAGAIN" in mover.target.info("errorstats"), "it was told to try again")
    assert not asking.done()
    mover.end()
    assert not isinstance(asking.result(SOON), Acquired)  # held by us, as it should be
    held.release()


# --- at the first contact ---


def sentence_of(url: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        RedisStore.from_url(url)
    return str(caught.value)


def test_one_master_that_may_evict_is_enough_to_refuse_a_cluster(cluster: Cluster) -> None:
    node = cluster.masters()[2]
    node.ask("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    try:
        found = sentence_of(cluster.url)
    finally:
        node.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    sentence = f"the server at {cluster.url} (node 127.0.0.1:{node.port}) has maxmemory-policy volatile-lru"
    assert found.startswith(sentence)


def test_a_node_of_a_cluster_given_as_a_server(cluster: Cluster) -> None:
    url = cluster.nodes[0].url
    assert sentence_of(url) == f"the server at {url} is a node of a cluster: give redis+cluster://HOST:PORT"


def test_a_server_given_as_a_cluster(single_server: Node) -> None:
    url = f"redis+cluster://127.0.0.1:{single_server.port}"
    assert sentence_of(url) == f"the server at {url} is not usable: Cluster mode is not enabled on this node"


def test_a_master_that_cannot_be_looked_at_is_enough_to_refuse_a_cluster(private_cluster: Cluster) -> None:
    gone = private_cluster.masters()[1]
    private_cluster.replica_of(gone).kill()
    gone.kill()
    sentence = sentence_of(private_cluster.url)
    assert sentence.startswith(f"no server answers at {private_cluster.url}: ")
    assert str(gone.port) in sentence


def test_one_replica_that_is_away_does_not_matter(private_cluster: Cluster) -> None:
    private_cluster.nodes[5].kill()
    with RedisStore.from_url(private_cluster.url) as store:
        store.execute(AcquireLock("a", "x", 60_000))
