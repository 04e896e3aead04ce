"""`ZooKeeperLock` when replies are lost, connections go, sessions end, servers and holders die."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from kazoo.client import KazooClient

from segmented.errors import AcquireTimeout, LeaseLost, StoreUnavailable
from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.contract.parking import wait_until
from tests.support.proxy import LOOPBACK, Proxy, zookeeper_request
from tests.support.servers.zookeeper_sides import ZooKeeperSide, line, new_name

SOON: Final = 50.0
LAPSING: Final = 5.0
"""Seconds that a session lasts which is to end by itself."""
LASTING: Final = 60.0
"""The same of a session that is not to end in its test: two fifths of it are longer than a process stands still."""


@pytest.fixture
def proxy(zookeeper: ZooKeeperNode) -> Iterator[Proxy]:
    with Proxy((LOOPBACK, zookeeper.port)) as found:
        yield found


@pytest.fixture
def wired(proxy: Proxy, start_kazoo: Callable[..., KazooClient]) -> KazooClient:
    """A client behind the proxy."""
    return start_kazoo(proxy.port, timeout=LASTING)


@pytest.fixture
def doomed(proxy: Proxy, start_kazoo: Callable[..., KazooClient]) -> KazooClient:
    """The same, with a session that is to end by itself."""
    return start_kazoo(proxy.port, timeout=LAPSING)


def end_session(client: KazooClient) -> None:
    """End a client's session as the server would: by closing it from elsewhere."""
    session_id, password = client.client_id
    from kazoo.client import KazooClient as Client  # noqa: PLC0415  # only with ZooKeeper

    host, port = client.hosts[0]
    second = Client(f"{host}:{port}", client_id=(session_id, password), timeout=LASTING)
    second.start(timeout=SOON)
    second.stop()
    second.close()


# --- lost replies ---


def test_e1_a_create_whose_reply_was_lost_is_found_again_and_is_one_contender(
    proxy: Proxy, wired: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    zookeeper_side.lock(other_kazoo, name).acquire(timeout=SOON).release()
    proxy.swallow_replies(1, to=zookeeper_request("create", name))
    lease = zookeeper_side.lock(wired, name).acquire(timeout=SOON)
    assert proxy.lost.is_set()
    assert line(other_kazoo, name) == [lease.path.rpartition("/")[2]]
    assert lease.fencing_token == other_kazoo.get(lease.path)[1].czxid
    lease.release()
    assert line(other_kazoo, name) == []


def test_a7_a_release_whose_reply_was_lost_is_a_release(
    proxy: Proxy, wired: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lease = zookeeper_side.lock(wired, name).acquire(timeout=SOON)
    proxy.swallow_replies(1, to=zookeeper_request("delete", name))
    lease.release()
    assert proxy.lost.is_set()
    assert (lease.has_ended, lease.is_lost, line(other_kazoo, name)) == (True, False, [])


def test_a6_a_release_that_could_not_be_sent_is_done_later_and_may_be_repeated(
    proxy: Proxy,
    wired: KazooClient,
    other_kazoo: KazooClient,
    zookeeper_side: ZooKeeperSide,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("segmented.locks.other_servers.zookeeper_session.ONE_TRY_SECONDS", 0.3)
    name = new_name()
    lease = zookeeper_side.lock(wired, name).acquire(timeout=SOON)
    proxy.vanish()
    with pytest.raises(StoreUnavailable, match=f"^whether lock '{name}' is released is unknown"):
        lease.release()
    assert (lease.is_trusted, lease.is_lost) == (False, False)
    proxy.come_back()
    wait_until(lambda: line(other_kazoo, name) == [])
    wait_until(lambda: bool(wired.connected))
    lease.release()
    assert (lease.has_ended, lease.is_lost) == (True, False)


def test_a_create_that_is_done_after_its_caller_gave_up_leaves_no_contender(
    proxy: Proxy, wired: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(wired, name)
    lock.acquire(timeout=SOON).release()
    proxy.hold_next(zookeeper_request("create", name))
    with pytest.raises(AcquireTimeout):
        lock.acquire(timeout=2.0)
    assert proxy.holding.is_set()
    proxy.let_go()
    wait_until(lambda: other_kazoo.get(f"/segmented/locks/{name}")[1].cversion == 4)  # created, and deleted, twice
    assert line(other_kazoo, name) == []


# --- the connection ---


def test_a_lease_is_in_doubt_while_disconnected_and_good_if_the_connection_returns(
    proxy: Proxy, wired: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    """The connection returns before the session ends."""
    name = new_name()
    with zookeeper_side.lock(wired, name).acquire(timeout=SOON) as lease:
        proxy.vanish()
        wait_until(lambda: not lease.is_trusted, seconds=SOON)
        assert (lease.is_lost, lease.remaining()) == (False, 0.0)
        assert repr(lease).endswith(" in doubt>")
        with pytest.raises(
            StoreUnavailable, match=f"^the lease on '{name}' is in doubt until ZooKeeper at .* confirms"
        ):
            lease.require()
        proxy.come_back()
        wait_until(lambda: lease.is_trusted)
        lease.require()
        assert not lease.lost.is_set()


def test_a_holder_that_the_network_cut_off_is_told_before_another_gets_the_lock(
    proxy: Proxy, doomed: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lease = zookeeper_side.lock(doomed, name).acquire(timeout=SOON)
    told = threading.Event()
    lease.on_lost(told.set)
    waiter = zookeeper_side.start(lambda: zookeeper_side.lock(other_kazoo, name).acquire(timeout=SOON))
    wait_until(lambda: len(line(other_kazoo, name)) == 2)
    proxy.freeze()
    cut_at = time.monotonic()
    assert lease.trusted_until <= cut_at + 0.4 * LAPSING
    wait_until(lambda: not lease.is_trusted)
    successor = waiter.result(SOON)
    assert lease.is_lost  # by its own clock, whatever the machine does at the moment
    assert lease.lost.wait(SOON)
    assert told.wait(SOON)
    assert successor.fencing_token > lease.fencing_token
    proxy.thaw()
    with pytest.raises(LeaseLost):
        lease.release()
    assert line(other_kazoo, name) == [successor.path.rpartition("/")[2]]
    successor.release()


# --- threads ---


def test_an_acquire_whose_lease_no_thread_can_watch_fails_and_leaves_no_contender(
    kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start_one)
        with pytest.raises(RuntimeError):
            lock.acquire(timeout=SOON)
    assert line(kazoo_client, name) == []
    lock.acquire(timeout=SOON).release()


# --- sessions ---


def test_a_session_that_ends_is_told_to_its_holder_at_once(
    wired: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(wired, name)
    lease = lock.acquire(timeout=SOON)
    told = threading.Event()
    lease.on_lost(told.set)
    end_session(wired)
    assert told.wait(SOON)  # by its own clock alone the session would have lasted longer
    assert lease.lost.wait(SOON)
    assert (lease.is_lost, lease.is_trusted) == (True, False)
    with pytest.raises(LeaseLost):
        lease.require()
    with pytest.raises(LeaseLost):
        lease.release()
    lease.release()
    with lock.acquire(timeout=SOON) as successor:  # in the client's next session
        assert successor.fencing_token > lease.fencing_token
        assert line(other_kazoo, name) == [successor.path.rpartition("/")[2]]


def test_e4_a_wait_fails_with_its_session_and_nothing_of_it_is_left(
    wired: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    with zookeeper_side.lock(other_kazoo, name).acquire(timeout=SOON):
        waiter = zookeeper_side.start(lambda: zookeeper_side.lock(wired, name).acquire(timeout=SOON))
        wait_until(lambda: len(line(other_kazoo, name)) == 2)
        end_session(wired)
        with pytest.raises(StoreUnavailable, match=r"^the session with ZooKeeper at .* ended"):
            waiter.result(SOON)
        wait_until(lambda: len(line(other_kazoo, name)) == 1)


def test_kazoo_482_a_client_that_is_closed_ends_the_waits_and_tells_the_holders(
    zookeeper: ZooKeeperNode,
    other_kazoo: KazooClient,
    start_kazoo: Callable[..., KazooClient],
    zookeeper_side: ZooKeeperSide,
) -> None:
    client = start_kazoo(zookeeper)
    name, held_name = new_name(), new_name()
    lease = zookeeper_side.lock(client, held_name).acquire(timeout=SOON)
    with zookeeper_side.lock(other_kazoo, name).acquire(timeout=SOON):
        waiter = zookeeper_side.start(lambda: zookeeper_side.lock(client, name).acquire(timeout=None))
        wait_until(lambda: len(line(other_kazoo, name)) == 2)
        client.stop()
        with pytest.raises(StoreUnavailable):
            waiter.result(SOON)
        assert len(line(other_kazoo, name)) == 1
    assert lease.lost.wait(SOON)
    assert line(other_kazoo, held_name) == []


# --- servers ---
