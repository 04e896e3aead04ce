"""A store for asyncio works in the next event loop as in the first one, as Celery tasks with `asyncio.run` need it."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from redis.asyncio.sentinel import Sentinel

from segmented import AsyncMemoryStore, AsyncRedisStore, InvalidInput
from segmented.locks import AsyncLease, AsyncLock, AsyncQuorumLock, AsyncQuorumStore
from tests.support.contract.parking import parked
from tests.support.servers.deployments import SERVICE

SOON: Final = 120.0
LONG: Final = 600.0


def memory(_: pytest.FixtureRequest) -> AsyncMemoryStore:
    return AsyncMemoryStore()


def single(request: pytest.FixtureRequest) -> AsyncRedisStore:
    return AsyncRedisStore(request.getfixturevalue("valkey_url"))


def sentinels(request: pytest.FixtureRequest) -> AsyncRedisStore:
    return AsyncRedisStore(request.getfixturevalue("sentinels").url)


def own_sentinels(request: pytest.FixtureRequest) -> AsyncRedisStore:
    hosts = [node.address for node in request.getfixturevalue("sentinels").sentinels]
    return AsyncRedisStore(Sentinel(hosts).master_for(SERVICE))


def cluster(request: pytest.FixtureRequest) -> AsyncRedisStore:
    return AsyncRedisStore(request.getfixturevalue("cluster").url)


def quorum(request: pytest.FixtureRequest) -> AsyncQuorumStore:
    start = request.getfixturevalue("start_valkey")
    return AsyncQuorumStore([AsyncRedisStore(start().url) for _ in range(3)], answer_timeout=10)


def by_run(first: Coroutine[Any, Any, None]) -> None:
    asyncio.run(first)


def by_close(first: Coroutine[Any, Any, None]) -> None:
    """Close the loop under its tasks, as a thread does that just ends."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(first)
    loop.close()


def by_stop(first: Coroutine[Any, Any, None]) -> None:
    """Leave a loop that could run again."""
    asyncio.new_event_loop().run_until_complete(first)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("make", "ending"),
    [
        *((single, ending) for ending in (by_run, by_close, by_stop)),
        (memory, by_run),
        (sentinels, by_close),
        (own_sentinels, by_stop),
        (cluster, by_close),
        (quorum, by_run),
    ],
)
def test_a_store_serves_the_next_event_loop_as_it_did_the_first(
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[pytest.FixtureRequest], Any],
    ending: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    caplog.set_level("CRITICAL", "asyncio")  # which tells of the tasks that were left
    serve(make(request), AsyncQuorumLock if make is quorum else AsyncLock, ending)
    gc.collect()  # while the warnings of what was left are ignored


def serve(store: Any, kind: Any, ending: Callable[[Coroutine[Any, Any, None]], None]) -> None:  # noqa: ANN401  # any of these
    """Leave a lease and a waiter in one loop, wait for the lease in the next, and close the store in a third."""
    lock = kind(store, "door", ttl=LONG, renew=True)
    held: list[AsyncLease] = []
    left: list[object] = []

    async def leave() -> None:
        held.append(await lock.acquire(timeout=SOON))
        left.append(asyncio.create_task(lock.acquire(timeout=LONG)))
        await parked(store, 1)

    async def go_on() -> None:
        waiting = asyncio.create_task(lock.acquire(timeout=LONG))
        await parked(store, 1)
        await held.pop().release()
        async with asyncio.timeout(SOON):
            lease = await waiting
        await asyncio.gather(*(kind(store, f"door-{number}", ttl=LONG).try_acquire() for number in range(9)))
        await lease.release()

    async def close() -> None:
        await store.close()

    ending(leave())
    ending(go_on())
    asyncio.run(close())


def test_a_store_of_which_the_loops_end_in_order_leaves_nothing_open(valkey_url: str) -> None:
    async def use(store: AsyncRedisStore) -> int:
        async with AsyncLock(store, "door", ttl=LONG) as held:
            waiting = asyncio.create_task(AsyncLock(store, "door", ttl=LONG).acquire(timeout=LONG))
            await parked(store, 1)
            await held.release()
            await (await waiting).release()
        return len(await asyncio.gather(*(AsyncLock(store, f"{number}").try_acquire() for number in range(5))))

    store = AsyncRedisStore(valkey_url)
    counts = [asyncio.run(use(store)) for _ in range(3)]
    del store  # each warning of something unclosed is an error here
    gc.collect()
    assert counts == [5, 5, 5]


def test_a_store_that_two_running_event_loops_use_says_so(valkey_url: str) -> None:
    is_used, may_end = threading.Event(), threading.Event()
    store = AsyncRedisStore(valkey_url)

    async def use() -> None:
        await (await AsyncLock(store, "one", ttl=LONG).acquire()).release()
        is_used.set()
        await asyncio.to_thread(may_end.wait, SOON)
        await store.close()

    async def intrude() -> None:
        await AsyncLock(store, "two", ttl=LONG).acquire()

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    try:
        assert is_used.wait(SOON)
        with pytest.raises(InvalidInput, match=r"^the store is in use by another event loop, .* make a store for each"):
            asyncio.run(intrude())
    finally:
        may_end.set()
        thread.join(SOON)
