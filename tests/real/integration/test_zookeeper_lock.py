"""`ZooKeeperLock` on a real server, in both colours: exclusion, order, deadlines, bad input."""

import asyncio
import gc
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from segmented.errors import AcquireTimeout, LeaseLost, SegmentedError, StoreRefused
from segmented.locks import AsyncZooKeeperLock, ZooKeeperLock
from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.contract.parking import wait_until
from tests.support.paths import ROOT
from tests.support.proxy import LOOPBACK, Proxy, zookeeper_request
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


# Leases in ZooKeeper on a real server, in both colours: what they know, how they end, their tokens.


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


# Asyncio cancels at any await, event loops are left, processes are killed: no contender may stay in line.


RUN_SECONDS: Final = 120.0
SESSION: Final = 8.0
"""Seconds that the session of a holder lasts which is killed, or frozen until it has ended."""


@pytest.fixture
def proxy(zookeeper: ZooKeeperNode) -> Iterator[Proxy]:
    with Proxy((LOOPBACK, zookeeper.port)) as found:
        yield found


async def in_line(kazoo_client: KazooClient, name: str, count: int) -> None:
    """Wait, without keeping the loop, until so many stand in line."""
    await asyncio.to_thread(wait_until, lambda: len(line(kazoo_client, name)) == count)


def run(body: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(RUN_SECONDS):
            await body

    asyncio.run(bounded())


# --- tasks ---
@pytest.mark.parametrize(("request_kind", "times"), [("create", 3), ("list", 1), ("read", 1)])
def test_d11_an_acquire_cancelled_while_a_request_is_in_flight_leaves_no_contender(
    proxy: Proxy,
    other_kazoo: KazooClient,
    start_kazoo: Callable[..., KazooClient],
    request_kind: str,
    times: int,
) -> None:
    name = new_name()
    wired = start_kazoo(proxy.port)

    async def body() -> None:
        async with AsyncZooKeeperLock(other_kazoo, name).acquire(timeout=SOON):
            proxy.hold_next(zookeeper_request(request_kind, name))
            task = asyncio.ensure_future(AsyncZooKeeperLock(wired, name).acquire(timeout=SOON))
            assert await asyncio.to_thread(proxy.holding.wait, SOON)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            proxy.let_go()
            with pytest.raises(asyncio.CancelledError):
                await task
            await in_line(other_kazoo, name, 1)

    run(body())


def test_d12_a_cancelled_waiter_vanishes_and_the_rest_advance_in_order(
    kazoo_client: KazooClient, other_kazoo: KazooClient
) -> None:
    name = new_name()
    order: list[int] = []

    async def body() -> None:
        lock = AsyncZooKeeperLock(kazoo_client, name)

        async def wait_for_it(number: int) -> None:
            async with lock.acquire(timeout=SOON):
                order.append(number)

        held = await lock.acquire(timeout=SOON)
        waiters = []
        for number in range(5):
            waiters.append(asyncio.ensure_future(wait_for_it(number)))
            await in_line(other_kazoo, name, number + 2)
        for number in (1, 3):
            waiters[number].cancel()
        await asyncio.wait([waiters[1], waiters[3]])
        await in_line(other_kazoo, name, 4)  # a slow server is not waited for: the caretaker deletes a little later
        await held.release()
        await asyncio.gather(*waiters, return_exceptions=True)

    run(body())
    assert order == [0, 2, 4]


def test_the_loss_of_the_lease_cancels_the_work_in_its_scope(
    kazoo_client: KazooClient, other_kazoo: KazooClient
) -> None:
    async def body() -> None:
        lease = await AsyncZooKeeperLock(kazoo_client, new_name()).acquire(timeout=SOON)
        await asyncio.to_thread(other_kazoo.delete, lease.path)
        with pytest.raises(LeaseLost):
            async with lease.cancel_scope():
                await asyncio.sleep(SOON)

    run(body())


# --- processes ---
@contextmanager
def holder(server: ZooKeeperNode, name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that acquires the lock, says so, and answers each line with what it believes."""
    argv = [sys.executable, "-m", "tests.real.integration.zookeeper_holder", str(server.port), name, str(SESSION)]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Read what the process says next."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_c7_a_holder_that_overslept_its_session_knows_as_soon_as_it_wakes(
    zookeeper: ZooKeeperNode, other_kazoo: KazooClient
) -> None:
    name = new_name()
    with holder(zookeeper, name) as process:
        assert said(process) == "holding"
        process.send_signal(signal.SIGSTOP)
        assert process.stdin is not None
        process.stdin.write("\n")  # the question is there when it wakes
        process.stdin.flush()
        with ZooKeeperLock(other_kazoo, name).acquire(timeout=SOON):
            process.send_signal(signal.SIGCONT)
            assert said(process) == "trusted=False lost=True"


# `ZooKeeperLock` on an ensemble of three servers, whose leader dies.


def leads(node: ZooKeeperNode) -> bool:
    try:
        return "Mode: leader" in node.ask("srvr")
    except OSError:  # it is electing, or dead
        return False


@pytest.mark.long
def test_a_lock_outlives_the_leader_of_its_ensemble_and_its_next_token_is_greater(
    ensemble: list[ZooKeeperNode], start_kazoo: Callable[..., KazooClient], zookeeper_side: ZooKeeperSide
) -> None:
    name = new_name()
    holder, other = (start_kazoo(ensemble, timeout=60.0) for _ in range(2))
    lease = zookeeper_side.lock(holder, name).acquire(timeout=SOON)
    (leader,) = [node for node in ensemble if leads(node)]
    leader.kill()
    living = [node for node in ensemble if node is not leader]
    wait_until(lambda: sum(leads(node) for node in living) == 1, seconds=SOON)
    wait_until(lambda: lease.is_trusted, seconds=SOON)
    assert zookeeper_side.lock(other, name).try_acquire() is None
    lease.release()
    with zookeeper_side.lock(other, name).acquire(timeout=SOON) as successor:
        assert successor.fencing_token > lease.fencing_token
