"""A store or publisher that its program drops without closing it leaves no thread and no connection behind."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Final

import pytest
import redis

from segmented import AcquireTimeout, AsyncRedisStore, RedisStore
from segmented.locks import AsyncLock, Lock, QuorumLock, QuorumStore
from segmented.servers import ValkeyServer
from segmented.stock import EnvelopePublisher
from tests.support.contract.parking import wait_until

SOON: Final = 120.0


def ours() -> set[threading.Thread]:
    """Return our threads. Those of earlier tests may end meanwhile."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("segmented-")}


def connections(server: ValkeyServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        return len(client.client_list()) - 1


def wait_once(url: str) -> None:
    """Wait in vain for a lock, and drop the store."""
    store = RedisStore.from_url(url)
    held = Lock(store, "door", ttl=60).acquire()
    with pytest.raises(AcquireTimeout):
        Lock(store, "door").acquire(timeout=0.02)
    held.release()


def vote_once(url: str, *others: str) -> None:
    """Wait in vain for a lock of three servers, and drop all four stores."""
    store = QuorumStore([RedisStore.from_url(each) for each in (url, *others)])
    held = QuorumLock(store, "door", ttl=60).acquire()
    with pytest.raises(AcquireTimeout):
        QuorumLock(store, "door").acquire(timeout=0.02)
    held.release()


@pytest.mark.parametrize("use", [wait_once, vote_once])
def test_a_dropped_store_that_has_waited_leaves_no_thread_and_no_connection(
    start_valkey: Callable[[], ValkeyServer], use: Callable[..., None]
) -> None:
    servers = [start_valkey() for _ in range(3)]
    before = ours()
    for _ in range(3):
        use(*[server.url for server in servers][: 3 if use is vote_once else 1])

    def is_gone() -> bool:
        gc.collect()
        return ours() <= before and [connections(server) for server in servers] == [0, 0, 0]

    wait_until(is_gone, seconds=SOON)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_dropped_asyncio_store_that_has_waited_leaves_no_task_and_no_connection(
    start_valkey: Callable[[], ValkeyServer],
) -> None:
    server = start_valkey()

    async def wait_in_vain() -> None:
        store = await AsyncRedisStore.from_url(server.url)
        held = await AsyncLock(store, "door", ttl=60).acquire()
        with pytest.raises(AcquireTimeout):
            await AsyncLock(store, "door").acquire(timeout=0.02)
        await held.release()

    async def body() -> None:
        for _ in range(3):
            await wait_in_vain()
        async with asyncio.timeout(SOON):
            while len(asyncio.all_tasks()) > 1 or connections(server):
                gc.collect()
                await asyncio.sleep(0.05)

    asyncio.run(body())


def test_a_dropped_publisher_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segmented.stock.outbox.IDLE_SECONDS", 0.05)
    before, sent = ours(), list[str]()
    publisher = EnvelopePublisher(lambda _, order_ids: sent.extend(order_ids))
    for order_id in ("o-1", "o-2"):  # the second one starts a thread again
        publisher.put("mug", [order_id])
        wait_until(lambda: ours() <= before, seconds=SOON)
    assert sent == ["o-1", "o-2"]
