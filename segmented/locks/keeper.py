"""Keepers watch leases in the background: they renew them and notify the holder of a lost lease at once.

Each store has one keeper thread or task for all its leases; it ends when no lease is left. An agenda keeps the due
times; renewals that are due close to each other are sent in one batch. The lease decides what to do (`next_look`,
`tend_plan`); the two classes only differ in how they sleep.

A keeper holds leases weakly, so that it does not renew one that its program has dropped. Only a lease that owes its
release is held until the release is answered or the lease has ended on its own.

A handle that is dropped while it holds something gives a ResourceWarning (`WarnsWhenDropped`), and its lock is free
once the lease ends. It is not released at once: Python decides when a handle is finalized, and the program may still be
at the work that the lock protects. No warning is given for a lease whose holder id the program has read, since another
process may have adopted it, for leases of a closed store, and by a forked child for its parent's leases. At the end of
the interpreter, it is given only if this module is still whole: Python clears modules one by one, and a handle may
outlive some of them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

from segmented.locks.lease_state import LeaseState, owed_release, tend_plan
from segmented.plans import run_async, run_sync
from segmented.plans.tasks import OfOneLoop, begun
from segmented.process import BeginsAnew, after_fork_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.locks.claim import LeaseClaim
    from segmented.locks.lease_state import LeaseState
    from segmented.plans.drivers import AsyncStore, Store

SLEEP_MAX: Final = 5.0
"""A sleeping thread is not woken when its last lease is released; it notices on its own."""
LINGER: Final = 2.0
"""Seconds that a thread without leases waits for the next one, so that a series of short leases neither starts a thread
each time nor wakes one."""
BATCH_MAX: Final = 500
OWED_MAX: Final = 10_000
"""Leases of a keeper beyond which it takes on no release that is owed for an attempt without an answer."""


def is_closed(store: object) -> bool:
    """Return whether the store was closed. Closing gives its leases up: they are left to expire."""
    return getattr(store, "is_closed", False) is True


class Agenda:
    """When each lease is due: a heap of times, in which outdated entries are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._leases: dict[int, tuple[float, Callable[[], LeaseState | None]]] = {}
        """Number of the lease -> its time, and a function that returns the lease, or None if it was dropped."""

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: LeaseState) -> bool:
        """Note when the lease is due next; return True if that is sooner than all others."""
        at = lease.next_look()
        soonest = self.next_time()
        self._leases[lease.number] = (at, partial(_same, lease) if lease.is_owing else ref(lease))
        heappush(self._heap, (at, lease.number))
        return at < soonest

    def discard(self, lease: LeaseState) -> None:
        """Stop watching the lease."""
        self._leases.pop(lease.number, None)
        if len(self._heap) > 2 * len(self._leases) + BATCH_MAX:
            heap = [entry for entry in self._heap if self._is_current(*entry)]
            heapify(heap)
            self._heap = heap

    def next_time(self) -> float:
        """Return the local time at which the first lease is due, or inf if there is none."""
        while self._heap and not self._is_current(*(first := self._heap[0])):
            if (popped := heappop(self._heap)) is not first:  # a signal handler has added one meanwhile
                heappush(self._heap, popped)
        return self._heap[0][0] if self._heap else inf

    def take_due(self, now: float) -> list[LeaseState]:
        """Remove and return the leases that are due now and those that may join them, up to a batch."""
        due: list[LeaseState] = []
        if self.next_time() > now:
            return due
        while len(due) < BATCH_MAX and self.next_time() < inf:
            at, number = self._heap[0]
            lease = self._leases[number][1]()
            if lease is not None and at > now + lease.slack():
                break
            heappop(self._heap)
            del self._leases[number]
            if lease is not None:
                due.append(lease)
        return due

    def _is_current(self, at: float, number: int) -> bool:
        found = self._leases.get(number)
        return found is not None and found[0] == at


def _same(lease: LeaseState) -> LeaseState:
    return lease


class ThreadKeeper(BeginsAnew):
    """The keeper of one store, for threads."""

    def __init__(self) -> None:
        self._agenda = Agenda()
        self._start_anew()

    def _start_anew(self) -> None:
        super()._start_anew()
        # Entered instead of the condition: an exception of a signal handler can leave that locked, but not this lock.
        self._guard = threading.RLock()
        self._changed = threading.Condition(self._guard)
        self._thread: threading.Thread | None = None
        self._wakes_at = -inf
        """Local time at which the thread checks its agenda again on its own."""

    def __len__(self) -> int:
        return len(self._agenda)

    def watch(self, lease: LeaseState, store: Store) -> None:
        """Watch a lease until it is released or lost."""
        self._begin_if_new()
        with self._guard:
            self._agenda.add(lease)
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, args=(store,), name="segmented-keeper", daemon=True)
                self._thread = thread
                thread.start()
            elif self._agenda.next_time() < self._wakes_at:
                self._changed.notify()

    def discard(self, lease: LeaseState) -> None:
        """Stop watching a released lease."""
        self._begin_if_new()
        with self._guard:
            self._agenda.discard(lease)

    def _run(self, store: Store) -> None:
        try:
            while due := self._next_due(store):
                self._tend(due, store)
                del due  # while it sleeps, nothing here holds a lease
        finally:  # however it ended, the next lease starts another thread
            with self._guard:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _tend(self, due: list[LeaseState], store: Store) -> None:
        run_sync(tend_plan(due), store)
        with self._guard:
            for lease in due:
                if not lease.is_over:
                    self._agenda.add(lease)

    def _next_due(self, store: Store) -> list[LeaseState]:
        """Sleep until some leases are due and return them; return none if no lease is left."""
        idle_until = inf
        with self._guard:
            while self._thread is threading.current_thread() and not is_closed(store):
                now = store.clock.now()
                if due := self._agenda.take_due(now):
                    return due
                if self._agenda:
                    idle_until = inf
                elif now >= idle_until:
                    break
                else:
                    idle_until = min(idle_until, now + LINGER)
                self._wakes_at = min(now + SLEEP_MAX, self._agenda.next_time(), idle_until)
                self._changed.wait(self._wakes_at - now)
            return []


class AsyncKeeper(OfOneLoop):
    """The keeper of one store, for asyncio."""

    def __init__(self) -> None:
        self._agenda = Agenda()
        self._start_anew()

    def _start_anew(self) -> None:
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._agenda)

    def watch(self, lease: LeaseState, store: AsyncStore) -> None:
        """Watch a lease until it is released or lost."""
        self._enter_loop()
        is_sooner = self._agenda.add(lease)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(begun(partial(self._run, store)), name="segmented-keeper")
        elif is_sooner:
            self._changed.set()

    def discard(self, lease: LeaseState) -> None:
        """Stop watching a released lease."""
        self._enter_loop()
        self._agenda.discard(lease)
        if not self._agenda:
            self._changed.set()

    async def _run(self, store: AsyncStore) -> None:
        while due := await self._next_due(store):
            await self._tend(due, store)
            del due  # while it sleeps, nothing here holds a lease

    async def _tend(self, due: list[LeaseState], store: AsyncStore) -> None:
        await run_async(tend_plan(due), store)
        for lease in due:
            if not lease.is_over:
                self._agenda.add(lease)

    async def _next_due(self, store: AsyncStore) -> list[LeaseState]:
        """Sleep until some leases are due and return them; return none if no lease is left."""
        while self._agenda and not is_closed(store):
            now = store.clock.now()
            if due := self._agenda.take_due(now):
                return due
            self._changed.clear()
            seconds = min(SLEEP_MAX, self._agenda.next_time() - now)
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                timer.cancel()
        self._task = None
        return []


_threads: WeakKeyDictionary[Store, ThreadKeeper] = WeakKeyDictionary()
_tasks: WeakKeyDictionary[AsyncStore, AsyncKeeper] = WeakKeyDictionary()
_guard = threading.RLock()


def thread_keeper(store: Store) -> ThreadKeeper:
    """Return the store's keeper."""
    found = _threads.get(store)
    if found is not None:  # one without leases counts as False
        return found
    with _guard:
        return _threads.setdefault(store, ThreadKeeper())


def async_keeper(store: AsyncStore) -> AsyncKeeper:
    """Return the store's keeper."""
    if store not in _tasks:
        _tasks[store] = AsyncKeeper()
    return _tasks[store]


def release_later(claim: LeaseClaim, store: Store) -> None:
    """Release what a call may have taken that nobody uses: at once, or as soon as the store answers.

    If the keeper watches OWED_MAX leases already, as in a long outage, this one is left to expire.
    """
    keeper = thread_keeper(store)
    if len(keeper) < OWED_MAX:
        keeper.watch(owed_release(claim, store.clock), store)


def async_release_later(claim: LeaseClaim, store: AsyncStore) -> None:
    """Do the same in the running event loop."""
    keeper = async_keeper(store)
    if len(keeper) < OWED_MAX:
        keeper.watch(owed_release(claim, store.clock), store)


def _forget_parents() -> None:
    # After a fork the keeper's thread is gone, and the parent keeps the leases.
    global _guard  # noqa: PLW0603  # the parent's thread may have held it in the moment of the fork
    _guard = threading.RLock()
    _threads.clear()
    _tasks.clear()


after_fork_in_child(_forget_parents)


def unreleased(name: str) -> str:
    """Return the warning for a lease that was not released."""
    return f"lease on {name!r} was dropped without a release: release it, or use it in a with statement"


class WarnsWhenDropped:
    """A handle that its program must end. Its finalizer may run in any thread, at any moment: it waits for nothing."""

    def _note_dropped(self) -> str | None:
        """Note that the handle is gone; return the warning, or None if the handle has ended."""
        raise NotImplementedError

    def __del__(
        self, _warn: Callable[..., None] = warnings.warn, _is_ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:
        """Give a ResourceWarning if the program has not ended the handle."""
        try:
            message = self._note_dropped()
        except (AttributeError, TypeError):  # the name of a cleared module is None
            if _is_ending():
                return
            raise
        if message is not None:
            _warn(message, ResourceWarning, stacklevel=2, source=self)


class LapsesWhenDropped(WarnsWhenDropped):
    """A lease on one name or several, which is not renewed any more if the handle is dropped."""

    name: str

    def _states(self) -> Sequence[LeaseState]:
        """Return the state of each name."""
        raise NotImplementedError

    def _note_dropped(self) -> str | None:
        held = [state for state in self._states() if state.note_dropped()]
        if not held or is_closed(vars(self).get("_store")):
            return None
        return None if any(state.is_release_asked for state in self._states()) else self._unended()

    def _unended(self) -> str:
        return unreleased(self.name)
