"""Asyncio cancels at any await, event loops are left, processes are killed: no contender may stay in line."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from segmented.errors import LeaseLost
from segmented.locks import AsyncZooKeeperLock, ZooKeeperLock
from tests.fixtures.zookeeper import ZooKeeperNode
from tests.support.contract.parking import wait_until
from tests.support.paths import ROOT
from tests.support.proxy import LOOPBACK, Proxy, zookeeper_request
from tests.support.servers.zookeeper_sides import line, new_name

SOON: Final = 50.0
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
