"""Keepers look after leases in the background: they renew, and tell the holder of a lost one at once.

One thread, or one task, a store, however many leases; it ends when there is nothing left to look after. What to do and
when is decided by the lease (`next_look`, `tend_plan`); the two classes only sleep, each in its own way.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from segmented.locks.lease_state import tend_plan
from segmented.plans import run_async, run_sync

if TYPE_CHECKING:
    from segmented.locks.lease_state import LeaseState
    from segmented.plans.drivers import AsyncStore, Store

SLEEP_MAX: Final = 60.0


class ThreadKeeper:
    """The keeper of one store, for threads."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._changed = threading.Condition()
        self._leases: set[LeaseState] = set()
        self._thread: threading.Thread | None = None

    def watch(self, lease: LeaseState, store: Store) -> None:
        """Look after a lease until it is released or lost."""
        with self._changed:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(store,), name="segmented-keeper", daemon=True)
                self._thread.start()
            self._changed.notify()

    def look(self) -> None:
        """Notice a lease that was released."""
        with self._changed:
            self._changed.notify()

    def _run(self, store: Store) -> None:
        while due := self._due(store):
            for lease in due:
                run_sync(tend_plan(lease), store)

    def _due(self, store: Store) -> list[LeaseState]:
        """Sleep until some leases want something; none when there is nothing left to look after."""
        while True:
            with self._changed:
                leases = list(self._leases)
            over = [lease for lease in leases if lease.has_ended or lease.is_lost]  # callbacks run here, unguarded
            with self._changed:
                self._leases.difference_update(over)
                if not self._leases:
                    self._thread = None
                    return []
                now = store.clock.now()
                if due := [lease for lease in self._leases if lease.next_look() <= now]:
                    return due
                self._changed.wait(min(SLEEP_MAX, min(lease.next_look() for lease in self._leases) - now))


class AsyncKeeper:
    """The keeper of one store, for asyncio."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._changed = asyncio.Event()
        self._leases: set[LeaseState] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, lease: LeaseState, store: AsyncStore) -> None:
        """Look after a lease until it is released or lost."""
        self._leases.add(lease)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(store), name="segmented-keeper")
        self._changed.set()

    def look(self) -> None:
        """Notice a lease that was released."""
        self._changed.set()

    async def _run(self, store: AsyncStore) -> None:
        while due := await self._due(store):
            for lease in due:
                await run_async(tend_plan(lease), store)

    async def _due(self, store: AsyncStore) -> list[LeaseState]:
        """Sleep until some leases want something; none when there is nothing left to look after."""
        while True:
            self._leases = {lease for lease in self._leases if not lease.has_ended and not lease.is_lost}
            if not self._leases:
                self._task = None
                return []
            now = store.clock.now()
            if due := [lease for lease in self._leases if lease.next_look() <= now]:
                return due
            self._changed.clear()
            seconds = min(SLEEP_MAX, min(lease.next_look() for lease in self._leases) - now)
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()


_threads: WeakKeyDictionary[Store, ThreadKeeper] = WeakKeyDictionary()
_tasks: WeakKeyDictionary[AsyncStore, AsyncKeeper] = WeakKeyDictionary()
_guard = threading.Lock()


def thread_keeper(store: Store) -> ThreadKeeper:
    """Return the store's keeper."""
    with _guard:
        return _threads.setdefault(store, ThreadKeeper())


def async_keeper(store: AsyncStore) -> AsyncKeeper:
    """Return the store's keeper."""
    if store not in _tasks:
        _tasks[store] = AsyncKeeper()
    return _tasks[store]
