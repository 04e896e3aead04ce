"""The queue between what happens and the sinks. A caller only appends; one thread counts, and calls the sinks.

So a sink that is slow, fails or hangs delays no order. What cannot be kept, because a sink hangs, is dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.events.table import Labels

EVERY_SECONDS: Final = 0.5
"""Interval at which sinks are called."""
WAITING_MAX: Final = 200_000
"""Events that wait for the sinks; the oldest are dropped first."""
FORK_SECONDS: Final = 1.0
"""Maximum time for which a fork waits for the sinks, whose locks its child would inherit."""
END_SECONDS: Final = 1.0
"""Maximum time for which a program's end waits for the sinks."""

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where events go. One thread of each process calls it, every half second, with what has happened since."""

    def count(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter of `METRICS`; `labels` are the values of its labels, in their order."""

    def observe(self, name: str, seconds: float, labels: Labels) -> None:
        """Note one duration of `METRICS`."""


class Hub:
    """The events of this process."""

    def __init__(self) -> None:
        """Create a hub without sinks, which drops every event."""
        self.sinks: tuple[Sink, ...] = ()
        self.append: Callable[[tuple[Any, ...]], None] = _drop
        """Take one event: a function, and its arguments. The function is called later."""
        self._queue: deque[tuple[Any, ...]] = deque(maxlen=WAITING_MAX)
        self._counts: dict[tuple[str, Labels], float] = {}
        self._durations: list[tuple[str, float, Labels]] = []
        self._failed: set[int] = set()
        self._delivering = threading.Lock()
        self._is_held_for_fork = False
        self._ends = threading.Event()
        self._thread = threading.Thread()

    def install(self, sinks: tuple[Sink, ...]) -> None:
        """Deliver what has happened to the sinks before, and everything later to these."""
        if self.sinks:
            self.flush()
            self._ends.set()
        self.sinks = sinks
        self._queue.clear()
        self.append = self._queue.append if sinks else _drop
        if sinks:
            self._start()

    def _start(self) -> None:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ends,), name="segmented-events", daemon=True)
        self._thread.start()

    def _run(self, ends: threading.Event) -> None:
        while not ends.wait(EVERY_SECONDS):
            self.flush()
        self.flush()

    def count(self, name: str, amount: float, labels: Labels) -> None:
        """Add to a counter, in an event of the queue."""
        key = name, labels
        self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, seconds: float, labels: Labels) -> None:
        """Note a duration, in an event of the queue."""
        self._durations.append((name, seconds, labels))

    def flush(self) -> None:
        """Deliver what has happened until now."""
        with self._delivering:
            with suppress(IndexError):
                while True:
                    happened, *arguments = self._queue.popleft()
                    try:
                        happened(*arguments)
                    except Exception:
                        log.exception("an event was not counted")
            counts, self._counts = self._counts, {}
            durations, self._durations = self._durations, []
            for sink in self.sinks:
                try:
                    for (name, labels), amount in counts.items():
                        sink.count(name, amount, labels)
                    for name, seconds, labels in durations:
                        sink.observe(name, seconds, labels)
                except Exception as error:  # noqa: BLE001  # of a user's sink: the others, and the sale, go on
                    self._report(sink, error)

    def _report(self, sink: Sink, error: Exception) -> None:
        if id(sink) not in self._failed:
            self._failed.add(id(sink))
            log.error("%s failed, and further failures of it are not logged", type(sink).__name__, exc_info=error)

    def before_fork(self) -> None:
        """Wait until no sink is called, for a child would inherit its locks."""
        self._is_held_for_fork = self._delivering.acquire(timeout=FORK_SECONDS)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._is_held_for_fork:  # otherwise a sink hangs, and the lock is its caller's
            self._delivering.release()

    def after_fork_in_child(self) -> None:
        """Begin with nothing: what waits here is the parent's to deliver."""
        self._delivering = threading.Lock()
        self._queue.clear()
        self._counts, self._durations = {}, []
        if self.sinks:
            self._start()

    def end(self) -> None:
        """Deliver what is left when the program ends, unless a sink hangs."""
        if self.sinks:
            self._ends.set()
            self._thread.join(END_SECONDS)


def _drop(_: tuple[Any, ...]) -> None:
    pass


HUB: Final = Hub()
atexit.register(HUB.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=HUB.before_fork, after_in_parent=HUB.after_fork_in_parent, after_in_child=HUB.after_fork_in_child
    )
