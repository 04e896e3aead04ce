"""Renews the work of envelopes in progress: one thread a store, however many envelopes it has.

The thread starts with the first envelope and ends when none has been in progress for a while. It is a daemon, so it
does not delay the interpreter's exit. A forked child begins without it: the parent goes on renewing its own envelopes.
"""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from segmented.clock import SystemClock
from segmented.errors import SegmentedError
from segmented.locks.keeper import LINGER
from segmented.process import BeginsAnew, Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.drivers import Store

log = logging.getLogger(__name__)


class Renewal:
    """Calls `renew` every `every` seconds in the store's thread, until the `with` statement ends."""

    def __init__(self, renew: Callable[[], None], store: Store, *, every: float) -> None:
        """Create a renewal; it starts with the `with` statement. `every` is in seconds."""
        self.renew = renew
        self.every = every
        self._timer = _timer_of(store)

    def __enter__(self) -> Self:
        """Begin."""
        self._timer.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End, waiting for a renewal in progress for at most one interval."""
        self._timer.discard(self)


class RenewalTimer(BeginsAnew):
    """The renewals of one store, and the thread that runs them when they are due."""

    def __init__(self) -> None:
        """Create a timer without renewals; its thread has not started."""
        self._start_anew()

    def _start_anew(self) -> None:
        """Drop all renewals and the thread, as in a forked child, which has neither."""
        super()._start_anew()
        self._now = SystemClock().now
        self._changed = threading.Condition()
        self._due: dict[Renewal, float] = {}
        """When each renewal is due next."""
        self._running: Renewal | None = None
        self._thread: threading.Thread | None = None
        self._wakes_at = inf
        """When the thread checks again on its own."""

    def add(self, renewal: Renewal) -> None:
        """Run the renewal once in each of its intervals."""
        self._begin_if_new()
        with self._changed:
            at = self._now() + renewal.every
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="segmented-renewal", daemon=True)
                thread.start()
                self._thread = thread
            elif at < self._wakes_at:
                self._changed.notify_all()
            self._due[renewal] = at

    def discard(self, renewal: Renewal) -> None:
        """Stop running the renewal; if it is running, wait for its end for at most one interval."""
        self._begin_if_new()
        with self._changed:
            self._due.pop(renewal, None)
            self._changed.wait_for(lambda: self._running is not renewal, renewal.every)

    def _run(self) -> None:
        try:
            while (renewal := self._next()) is not None:
                self._renew(renewal)
                del renewal  # while the thread sleeps, it holds no envelope
        finally:  # however it ended, the next renewal starts another thread
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _next(self) -> Renewal | None:
        """Sleep until a renewal is due, and return it; None if there has been none for a while."""
        idle_until = inf
        with self._changed:
            while True:
                now = self._now()
                first = min(self._due, key=self._due.__getitem__, default=None)
                if first is not None and self._due[first] <= now:
                    self._running = first
                    return first
                if first is None and now >= idle_until:
                    self._thread = None
                    return None
                idle_until = inf if first is not None else min(idle_until, now + LINGER)
                self._wakes_at = self._due[first] if first is not None else idle_until
                first = None
                self._changed.wait(self._wakes_at - now)

    def _renew(self, renewal: Renewal) -> None:
        try:
            renewal.renew()
        except SegmentedError as error:  # the next one may reach the server
            log.warning("work was not renewed: %s", error)
        except Exception:  # an error in one envelope must not end the renewals of the others
            log.exception("work was not renewed")
        with self._changed:
            self._running = None
            if renewal in self._due:
                self._due[renewal] = self._now() + renewal.every
            self._changed.notify_all()


_timers: WeakKeyDictionary[Store, RenewalTimer] = WeakKeyDictionary()
_guard = Guard()


def _timer_of(store: Store) -> RenewalTimer:
    with _guard.lock:
        found = _timers.get(store)
        if found is None:
            found = _timers[store] = RenewalTimer()
        return found
