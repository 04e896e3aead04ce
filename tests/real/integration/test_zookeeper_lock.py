"""`ZooKeeperLock` on a real server, in both colours: exclusion, order, deadlines, bad input."""

from collections.abc import Callable
from functools import partial
from typing import Final

import pytest
from kazoo.client import KazooClient

from segmented.errors import AcquireTimeout, LeaseLost, StoreRefused
from segmented.locks import ZooKeeperLock
from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.contract.parking import wait_until
from tests.support.servers.zookeeper_sides import ZooKeeperSide, has_length, line, new_name

SOON: Final = 50.0


# --- exclusion and order ---


def test_one_holds_the_lock_at_a_time_and_tokens_grow_with_every_grant(
    kazoo_client: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    locks = [zookeeper_side.lock(one, name) for one in (kazoo_client, other_kazoo)]
    inside, tokens, at_once = [0], list[int](), list[int]()

    def work(lock: ZooKeeperLock) -> None:
        for _ in range(10):
            with lock.acquire(timeout=SOON) as lease:
                inside[0] += 1
                at_once.append(inside[0])
                tokens.append(lease.fencing_token)
                lease.require()
                inside[0] -= 1

    for done in [zookeeper_side.start(partial(work, lock)) for lock in locks * 4]:
        done.result(SOON)
    assert at_once == [1] * 80
    assert tokens == sorted(set(tokens))
    assert line(kazoo_client, name) == []


def test_the_lock_goes_to_those_who_wait_in_the_order_in_which_they_came(
    kazoo_client: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    held = zookeeper_side.lock(kazoo_client, name).acquire(timeout=SOON)
    order: list[int] = []

    def wait_for_it(number: int) -> None:
        with zookeeper_side.lock([kazoo_client, other_kazoo][number % 2], name).acquire(timeout=SOON):
            order.append(number)

    waiters = []
    for number in range(6):
        waiters.append(zookeeper_side.start(partial(wait_for_it, number)))
        wait_until(partial(has_length, kazoo_client, name, number + 2))
    held.release()
    for waiter in waiters:
        waiter.result(SOON)
    assert order == [0, 1, 2, 3, 4, 5]


def test_each_waiter_watches_the_one_ahead_and_nobody_else(
    zookeeper: ZooKeeperNode, kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    held = lock.acquire(timeout=SOON)
    waiters = [zookeeper_side.start(lambda: lock.acquire(timeout=SOON).release()) for _ in range(4)]
    wait_until(partial(has_length, kazoo_client, name, 5))
    first, *others, last = line(kazoo_client, name)

    def watched() -> set[str]:
        return {word.rpartition("/")[2] for word in zookeeper.ask("wchp").split() if f"/{name}/" in word}

    wait_until(lambda: watched() >= {first, *others})
    assert watched() == {first, *others}
    assert last not in watched()
    held.release()
    for waiter in waiters:
        waiter.result(SOON)


def test_the_operator_is_shown_the_line_in_order(kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    assert lock.contenders() == ()
    held = lock.acquire(timeout=SOON)
    waiter = zookeeper_side.start(lambda: lock.acquire(timeout=SOON))
    wait_until(lambda: len(lock.contenders()) == 2)
    first, second = lock.contenders()
    assert (first.holder_id, first.path) == (held.holder_id, held.path)
    held.release()
    assert waiter.result(SOON).holder_id == second.holder_id
    assert lock.contenders() == (second,)


# --- waiting ---


def test_a_try_and_a_wait_that_fail_leave_no_node(kazoo_client: KazooClient, zookeeper_side: ZooKeeperSide) -> None:
    name = new_name()
    lock = zookeeper_side.lock(kazoo_client, name)
    with lock.acquire(timeout=SOON) as held:
        assert lock.try_acquire() is None
        with pytest.raises(AcquireTimeout, match=rf"^lock '{name}' was not free within 0.01 s$"):
            lock.acquire(timeout=0.01)
        wait_until(partial(has_length, kazoo_client, name, 1))  # a slow server is not waited for
        assert [node.partition("-")[0] for node in line(kazoo_client, name)] == [held.holder_id]


def test_a_waiter_whose_node_is_taken_away_is_told_when_its_turn_would_come(
    kazoo_client: KazooClient, other_kazoo: KazooClient, zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    with zookeeper_side.lock(kazoo_client, name).acquire(timeout=SOON):
        waiter = zookeeper_side.start(lambda: zookeeper_side.lock(kazoo_client, name).acquire(timeout=SOON))
        wait_until(lambda: has_length(other_kazoo, name, 2))
        other_kazoo.delete(f"/segmented/locks/{name}/{line(other_kazoo, name)[1]}")
    with pytest.raises(LeaseLost):
        waiter.result(SOON)
    assert line(other_kazoo, name) == []


def test_a_client_that_is_closed_or_was_never_started_is_refused_with_one_sentence(
    zookeeper: ZooKeeperNode, zookeeper_side: ZooKeeperSide, start_kazoo: Callable[..., KazooClient]
) -> None:
    from kazoo.client import KazooClient as Client  # noqa: PLC0415  # only with ZooKeeper

    stopped = start_kazoo(zookeeper)
    stopped.stop()
    for kazoo_client in (stopped, Client(f"127.0.0.1:{zookeeper.port}")):
        lock = zookeeper_side.lock(kazoo_client, new_name())
        sentence = rf"^the ZooKeeper client for 127.0.0.1:{zookeeper.port} is closed: start it with client.start\(\)$"
        for call in (lambda lock=lock: lock.acquire(timeout=SOON), lock.try_acquire, lock.contenders):
            with pytest.raises(StoreRefused, match=sentence):
                call()
