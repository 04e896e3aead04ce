"""Locks in ZooKeeper and the threads that wait for them. Those for asyncio: `test_zookeeper_cancellation`."""

import itertools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from kazoo.client import KazooClient

from segmented.locks import ZooKeeperLock

OutcomeT = TypeVar("OutcomeT")

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
    """Locks, and threads that wait for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="test")

    def lock(self, client: KazooClient, name: str) -> ZooKeeperLock:
        return ZooKeeperLock(client, name)

    def start(self, function: Callable[[], OutcomeT]) -> Future[OutcomeT]:
        """Begin a call that may take a while."""
        return self._threads.submit(function)

    def close(self) -> None:
        self._threads.shutdown()
