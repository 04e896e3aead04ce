"""Requests of FastAPI take a lock in turn by each kind of dependency, although pools' threads enter and leave it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from fastapi import Depends, FastAPI

from segmented import AsyncRedisStore, Lock, RedisStore
from segmented.locks import AsyncLease, AsyncLock, Lease

SOON: Final = 120.0
REQUESTS: Final = 5


def by_with(url: str) -> Callable[[], Generator[Lease, None, None]]:
    lock = Lock(RedisStore.from_url(url), "report", ttl=600)

    def report() -> Generator[Lease, None, None]:
        with lock as lease:
            yield lease

    return report


def by_stack(url: str) -> Callable[[], Generator[Lease, None, None]]:
    lock = Lock(RedisStore.from_url(url), "report", ttl=600)

    def report() -> Generator[Lease, None, None]:
        with ExitStack() as stack:
            yield stack.enter_context(lock)

    return report


def by_async_with(url: str) -> Callable[[], AsyncGenerator[AsyncLease, None]]:
    lock = AsyncLock(AsyncRedisStore(url), "report", ttl=600)

    async def report() -> AsyncGenerator[AsyncLease, None]:
        async with lock as lease:
            yield lease

    return report


async def status_of(app: FastAPI) -> int:
    """Send a GET to the app and return the status of its answer."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:  # noqa: ANN401  # a message of ASGI
        said.append(message)

    await app({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}, receive, send)
    status: int = said[0]["status"]
    return status


@pytest.mark.parametrize("dependency", [by_with, by_stack, by_async_with])
def test_requests_whose_dependency_is_a_lock_are_served_in_turn(valkey_url: str, dependency: Any) -> None:  # noqa: ANN401  # of this file
    app = FastAPI()
    inside: list[object] = []
    counts: list[int] = []

    @app.get("/")
    async def serve(lease: Any = Depends(dependency(valkey_url))) -> None:  # noqa: ANN401, B008, FAST002  # as users write it
        inside.append(lease)
        await asyncio.sleep(0.05)  # others could enter
        counts.append(len(inside))
        inside.remove(lease)

    async def run() -> list[int]:
        async with asyncio.timeout(SOON):
            return await asyncio.gather(*(status_of(app) for _ in range(REQUESTS)))

    assert (asyncio.run(run()), counts) == ([200] * REQUESTS, [1] * REQUESTS)
