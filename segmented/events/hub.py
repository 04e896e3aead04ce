"""The metrics, and the queue between what happens and the sinks: a caller only appends, one thread calls the sinks.

The exporters and the page of metrics are made from `METRICS`: what each counts, its unit and its labels. A sink that is
slow, fails or hangs delays no order. What cannot be kept, because a sink hangs, is dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from segmented.models.shards import SHARD_MARK

if TYPE_CHECKING:
    from collections.abc import Callable


Labels = tuple[str, ...]
VALUES_MAX: Final = 100
"""Values of a label that come from outside, such as skus; further ones count as `OTHER`."""
OTHER: Final = "(other)"
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the buckets of a duration."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter, or a histogram of durations in seconds."""

    kind: Literal["counter", "histogram"]
    unit: str
    """By the conventions of OpenTelemetry: `s`, or what is counted in braces."""
    text: str
    labels: Labels = ()


def _counter(what: str, text: str, *labels: str) -> Metric:
    return Metric("counter", f"{{{what}}}", text, labels)


def _histogram(text: str, *labels: str) -> Metric:
    return Metric("histogram", "s", text, labels)


METRICS: Final = {
    "segmented.order.answers": _counter(
        "order",
        "Answers to orders, by outcome; a refused or failed one has a reason, and a repeat changed nothing.",
        "sku",
        "outcome",
        "reason",
    ),
    "segmented.order.units": _counter("unit", "Units of the orders that changed, by outcome.", "sku", "outcome"),
    "segmented.lock.acquisitions": _counter("lease", "Leases of locks and segments that were acquired.", "kind"),
    "segmented.lock.wait.duration": _histogram(
        "Time that a caller waited for a lock or a segment that was not free at once.", "kind", "outcome"
    ),
    "segmented.lock.held": Metric(
        "counter",
        "s",
        "Time for which this process has held leases, from grant to release; by the second: how many.",
        ("kind",),
    ),
    "segmented.lease.losses": _counter("lease", "Leases that ended before their holder released them.", "kind"),
    "segmented.outbox.swept": _counter(
        "order", "Orders that a sweep found in the outbox: republished, or buried as dead letters.", "sku", "finding"
    ),
    "segmented.outbox.put_off": _counter("order", "Orders that a worker put off, to try again later.", "sku"),
    "segmented.dead_letters": _counter("letter", "Orders and messages that were given up.", "kind"),
    "segmented.pool.freezes": _counter("pool", "Pools that this process found to have lost changes.", "sku"),
    "segmented.pool.differences": _counter("difference", "Differences that audits of workers found.", "sku"),
    "segmented.once.messages": _counter(
        "message", "Messages of deduplicated tasks and calls, by what was decided about them.", "task", "decision"
    ),
    "segmented.store.connections": _counter("connection", "Connections to the stock server that were opened."),
    "segmented.store.retries": _counter("attempt", "Requests that were sent again after a connection failed."),
    "segmented.store.failures": _counter("operation", "Operations that failed, by the name of the error.", "error"),
}
"""Each metric by its OpenTelemetry name. Prometheus has underscores for the dots, and its own suffixes."""


def prometheus_name(name: str) -> str:
    """Return the name under which Prometheus shows a metric: with its unit, and `_total` for a counter."""
    metric = METRICS[name]
    unit, kind = "_seconds" * (metric.unit == "s"), "_total" * (metric.kind == "counter")
    return name.replace(".", "_") + unit + kind


class Bounded(dict[str, str]):
    """The values of a label that come from outside: up to `VALUES_MAX` are themselves, further ones are `OTHER`."""

    def __missing__(self, value: str) -> str:
        """Accept one more value, or return `OTHER`."""
        if len(self) >= VALUES_MAX:
            return OTHER
        self[value] = value
        return value


SKUS: Final = Bounded()
TASKS: Final = Bounded()


def sku_label(sku: str) -> str:
    """Return the label of a pool, which its shards share."""
    return SKUS[sku.partition(SHARD_MARK)[0]]


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
