"""Locks in ZooKeeper in both colours, behind one synchronous face, so that a test is written once."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from segmented.locks import AsyncZooKeeperLock, ZooKeeperLock
from segmented.locks.zookeeper import AsyncZooKeeperLease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kazoo.client import KazooClient

OutcomeT = TypeVar("OutcomeT")

CALL_SECONDS: Final = 60.0
THREADS_MAX: Final = 128

_names = itertools.count()


def new_name(word: str = "lock") -> str:
    """Return a name that no other test has."""
    return f"{word}-{next(_names)}"


def line(client: KazooClient, name: str) -> list[str]:
    """The nodes in a lock's line, as they are, in order."""
    path = f"/segmented/locks/{name}"
    return sorted(client.get_children(path), key=lambda node: node[-10:]) if client.exists(path) else []


def has_length(client: KazooClient, name: str, length: int) -> bool:
    """Do so many stand in line?"""
    return len(line(client, name)) == length


class ZooKeeperSide:
    """Threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="test")

    def lock(self, client: KazooClient, name: str) -> ZooKeeperLock:
        return ZooKeeperLock(client, name)

    def start(self, function: Callable[[], OutcomeT]) -> Future[OutcomeT]:
        """Begin a call that may take a while."""
        return self._threads.submit(function)

    def close(self) -> None:
        self._threads.shutdown()


class AsyncZooKeeperSide(ZooKeeperSide):
    """asyncio, with an event loop in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def lock(self, client: KazooClient, name: str) -> ZooKeeperLock:
        return cast("ZooKeeperLock", Blocking(AsyncZooKeeperLock(client, name), self))

    def wait(self, coroutine: Coroutine[Any, Any, OutcomeT]) -> OutcomeT:
        """Run it in the loop; block this thread until it has ended."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_SECONDS)

    def close(self) -> None:
        super().close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()


class Blocking:
    """An asyncio lock, lease or event with the face of its twin for threads."""

    def __init__(self, target: object, side: AsyncZooKeeperSide) -> None:
        self._target, self._side = target, side

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # stands for the attributes of several classes
        found = self._side.wait(self._attribute(name))
        return self._call_of(found) if callable(found) else self._wrapped(found)

    def __enter__(self) -> Any:  # noqa: ANN401  # the entered object's own type
        self._call_of(self._target.__aenter__)()  # type: ignore[attr-defined]  # it is a lease
        return self

    def __exit__(self, *error: object) -> None:
        self._call_of(self._target.__aexit__)(*error)  # type: ignore[attr-defined]  # it is a lease

    def __repr__(self) -> str:
        return repr(self._target)

    def wait(self, seconds: float) -> bool:
        """Wait for an event as threads do."""

        async def waited() -> bool:
            try:
                async with asyncio.timeout(seconds):
                    await self._target.wait()  # type: ignore[attr-defined]  # it is an event
            except TimeoutError:
                return False
            return True

        return self._side.wait(waited())

    def _call_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401  # as above
            found = function(*arguments, **options)
            return self._wrapped(await found if inspect.isawaitable(found) else found)

        return lambda *arguments, **options: self._side.wait(called(arguments, options))

    def _wrapped(self, found: Any) -> Any:  # noqa: ANN401  # as above
        return Blocking(found, self._side) if isinstance(found, AsyncZooKeeperLease | asyncio.Event) else found

    async def _attribute(self, name: str) -> Any:  # noqa: ANN401  # as above
        return getattr(self._target, name)
