"""Leases in ZooKeeper on a real server, in both colours: what they know, how they end, their tokens."""

import gc
import inspect
import threading
from typing import Final

import pytest
from kazoo.client import KazooClient

from segmented.errors import LeaseLost, SegmentedError, StoreRefused
from segmented.locks import AsyncZooKeeperLock, ZooKeeperLock
from tests.support.servers.zookeeper_sides import ZooKeeperSide, line, new_name

SOON: Final = 50.0


def test_a8_the_bodys_own_error_is_not_hidden_by_a_release_that_fails(
    kazoo_client: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lease = zookeeper_side.lock(kazoo_client, name).acquire(timeout=SOON)
    other_kazoo.delete(lease.path)
    with pytest.raises(ZeroDivisionError) as caught, lease:
        1 / 0  # noqa: B018  # the body's own error
    assert caught.value.__notes__ == [f"and afterwards: lease on {name!r} is lost: it lapsed or was taken away"]


def test_c3_a10_the_holder_hears_of_its_removed_node_and_the_next_keeps_the_lock(
    kazoo_client: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    lease = lock.acquire(timeout=SOON)
    told = threading.Event()
    lease.on_lost(told.set)
    other_kazoo.delete(lease.path)
    successor = zookeeper_side.lock(other_kazoo, name).acquire(timeout=SOON)
    assert lease.lost.wait(SOON)
    assert told.wait(SOON)
    assert (lease.is_lost, lease.is_trusted) == (True, False)
    late = threading.Event()
    lease.on_lost(late.set)
    assert late.is_set()
    with pytest.raises(LeaseLost):
        lease.require()
    with pytest.raises(LeaseLost):
        lease.release()
    lease.release()
    assert successor.is_trusted
    assert successor.fencing_token > lease.fencing_token
    successor.release()
    assert line(other_kazoo, name) == []


def test_tokens_grow_also_when_the_parent_was_deleted_between(
    kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    tokens, sequences = [], []
    for _ in range(3):
        with lock.acquire(timeout=SOON) as lease:
            tokens.append(lease.fencing_token)
            sequences.append(lease.path[-10:])
        kazoo_client.delete(f"/segmented/locks/{name}")
    assert sequences == ["0000000000"] * 3
    assert tokens == sorted(set(tokens))


def test_a_refusal_by_the_server_is_one_sentence_and_leaves_nothing(
    kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    from kazoo.security import make_acl  # noqa: PLC0415  # only with ZooKeeper

    name = new_name()
    kazoo_client.ensure_path("/segmented/locks")
    kazoo_client.create(f"/segmented/locks/{name}", acl=[make_acl("world", "anyone", read=True)])
    with pytest.raises(StoreRefused, match=r"^ZooKeeper at 127\.0\.0\.1:\d+ refused the operation: .*NoAuth") as caught:
        zookeeper_side.lock(kazoo_client, name).acquire(timeout=SOON)
    assert isinstance(caught.value, SegmentedError)
    assert line(kazoo_client, name) == []


@pytest.mark.parametrize("kind", [ZooKeeperLock, AsyncZooKeeperLock])
def test_a_wait_without_a_word_about_it_ends_after_a_minute(kind: type[ZooKeeperLock]) -> None:
    assert inspect.signature(kind.acquire).parameters["timeout"].default == 60.0


@pytest.mark.usefixtures("watched_drops")
def test_a_lease_that_is_dropped_warns_and_its_node_stays_until_the_session_ends(
    kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)

    def drop() -> None:
        lock.acquire(timeout=SOON)
        gc.collect()  # in asyncio the handle may go a moment later

    with pytest.warns(ResourceWarning, match=f"^lease on {name!r} was dropped without a release: release it"):
        drop()
    assert len(line(kazoo_client, name)) == 1
