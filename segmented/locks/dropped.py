"""A lease whose handle is dropped without a release: a ResourceWarning, and the release in the background.

A keeper holds the leases that it renews weakly, so a program that forgets a lease does not keep its lock. Python then
finalizes the handle in any thread, with or without an event loop, perhaps while that thread holds a lock. So the
finalizer takes no lock and waits for nothing: it notes the drop and leaves the release to an errand, which runs in a
thread of its own or in the lease's event loop, and gives the lease to its store's keeper. Until the release is answered
or the lease has ended on its own, the keeper holds it.

Not released, but left to expire: a lease whose holder id the program has read, since another process may have adopted
it; a lease of a closed store or event loop; and all leases at the end of the interpreter. A forked child does nothing
with its parent's leases.
"""

from __future__ import annotations

import _thread
import logging
import threading
import warnings
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from segmented.locks.keeper import async_keeper, is_closed, thread_keeper
from segmented.process import after_fork_in_child

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from segmented.locks.lease_state import LeaseState
    from segmented.plans.drivers import AsyncStore, Store

_log = logging.getLogger("segmented.locks")


class Dropped(NamedTuple):
    """A handle that was dropped while it held something."""

    warning: str | None
    """The warning; None if the program has asked for the release before."""
    errand: Callable[[], object] | None = None
    """Begins the release; None if what it holds ends on its own."""


def unreleased(name: str) -> str:
    """Return the warning for a lease that was not released."""
    return f"lease on {name!r} was dropped without a release: release it, or use it in a with statement"


class WarnsWhenDropped:
    """A handle that its program must end. Its finalizer may run in any thread, at any moment."""

    def _note_dropped(self) -> Dropped | None:
        """Note that the handle is gone and return what is to be done, or None if it has ended."""
        raise NotImplementedError

    def _send(self, errand: Callable[[], object]) -> None:
        errands.add(errand)

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        """Release in the background, with a ResourceWarning, if the program has not released it."""
        dropped = self._note_dropped()
        if dropped is None:
            return
        if dropped.errand is not None:
            self._send(dropped.errand)
        if dropped.warning is not None:
            _warn(dropped.warning, ResourceWarning, stacklevel=2, source=self)


class _ReleasedWhenDropped(WarnsWhenDropped):
    """A lease on one name or several, which a keeper releases if the handle is dropped."""

    name: str
    _store: Store | AsyncStore

    def _states(self) -> Sequence[LeaseState]:
        """Return the state of each name."""
        raise NotImplementedError

    def _keep(self, owing: Sequence[LeaseState]) -> None:
        """Give dropped leases, which owe their release, to the store's keeper."""
        raise NotImplementedError

    def _note_dropped(self) -> Dropped | None:
        if is_closed(self._store):
            return None
        was_asked = any(state.is_release_asked for state in self._states())
        held = [state for state in self._states() if state.note_dropped()]
        if not held:
            return None
        owing = [state for state in held if state.is_owing]
        return Dropped(None if was_asked else self._unended(), partial(self._keep, owing) if owing else None)

    def _unended(self) -> str:
        return unreleased(self.name)


class ReleasedWhenDropped(_ReleasedWhenDropped):
    """A lease that its keeper releases if the handle is dropped, for threads."""

    _store: Store

    def _keep(self, owing: Sequence[LeaseState]) -> None:
        for state in owing:
            thread_keeper(self._store).watch(state, self._store)


class AsyncReleasedWhenDropped(_ReleasedWhenDropped):
    """A lease that its keeper releases if the handle is dropped, for asyncio."""

    _store: AsyncStore
    _loop: asyncio.AbstractEventLoop

    def _send(self, errand: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and the lease expires
            self._loop.call_soon_threadsafe(errand)

    def _keep(self, owing: Sequence[LeaseState]) -> None:
        for state in owing:
            async_keeper(self._store).watch(state, self._store)


class Errands:
    """Functions to be called soon in another thread, which ends when there are none. A finalizer may add them."""

    def __init__(self) -> None:
        """Create an empty list without a thread."""
        self._pending: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._running = threading.Lock()

    def forget_parents(self) -> None:
        """Begin again in a forked child: the parent's thread is gone, and its leases stay its own."""
        self._pending, self._running = SimpleQueue(), threading.Lock()

    def add(self, errand: Callable[[], object]) -> None:
        """Call `errand` soon. Nothing here waits for a lock."""
        self._pending.put(errand)
        if self._running.acquire(blocking=False):
            try:
                _thread.start_new_thread(self._run, ())  # threading's own start waits for the thread, under a lock
            except RuntimeError:  # the interpreter ends, or the system has no thread left: the lease expires
                self._running.release()

    def _run(self) -> None:
        while True:
            try:
                while True:
                    _perform(self._pending.get_nowait())
            except Empty:
                self._running.release()
            if self._pending.empty() or not self._running.acquire(blocking=False):
                return


def _perform(errand: Callable[[], object]) -> None:
    try:
        errand()
    except Exception:  # noqa: BLE001  # the other leases must be released all the same
        _log.exception("lease.drop_failed")


errands = Errands()
after_fork_in_child(errands.forget_parents)
