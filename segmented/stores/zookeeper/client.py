"""The session object of a kazoo client: one per client in this process, with its caretaker and its stores."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from segmented.clock import Clock, SystemClock
from segmented.errors import InvalidInput
from segmented.process import Guard
from segmented.stores.zookeeper.caretaker import Caretaker
from segmented.stores.zookeeper.session import Session
from segmented.stores.zookeeper.store import AsyncZooKeeperStore, ZooKeeperStore, post

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class ZooKeeperSession(Session):
    """A session with all that locks ask of it."""

    caretaker: Caretaker

    def __init__(self, client: KazooClient, clock: Clock) -> None:
        """Listen to the client; the caller starts and stops it."""
        super().__init__(client, clock, Caretaker)

    def sync_store(self) -> ZooKeeperStore:
        """Create a store for one plan, in this thread."""
        return ZooKeeperStore(self)

    def async_store(self) -> AsyncZooKeeperStore:
        """Create a store for one plan, in the running event loop."""
        return AsyncZooKeeperStore(self)

    def post(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        """Run a callback in an event loop, from any thread."""
        post(loop, callback)


_sessions: weakref.WeakKeyDictionary[Any, weakref.ref[ZooKeeperSession]] = weakref.WeakKeyDictionary()
"""Client -> session. The client's listener keeps the session alive; both can be garbage-collected together."""
_guard = Guard()


def session_of(client: object) -> ZooKeeperSession:
    """Return the client's session; raises InvalidInput for anything that is not a KazooClient."""
    if not isinstance(client, KazooClient):
        raise InvalidInput(f"client is a kazoo.client.KazooClient, not {type(client).__name__}: {client!r}")
    with _guard.lock:
        found = _sessions.get(client)
        session = found() if found is not None else None
        if session is None:
            session = ZooKeeperSession(client, SystemClock())
            _sessions[client] = weakref.ref(session)
        return session
