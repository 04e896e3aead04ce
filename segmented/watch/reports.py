"""Reports of this process to the stock server, for `segmented watch`: refused orders, and the tasks of a worker."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import SegmentedError
from segmented.masking import masked
from segmented.process import Guard
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from segmented.events.hub import Labels

__all__ = ["ReportSink"]

EVERY_SECONDS: Final = 2.0
CLOSE_SECONDS_MAX: Final = 10.0
REFUSALS_MAX: Final = 100
"""Pairs of a pool and a reason that a report names, the most frequent ones."""
DOING_MAX: Final = 3
"""Tasks that a report names."""


class ReportSink:
    """Reports the refusals of this process to the stock server, in a short message every two seconds."""

    def __init__(self, url: str) -> None:
        """Report to the server of this URL, by a connection of its own. While it is away, nothing is reported."""
        self._url = url
        self._guard = Guard()
        self._refused: Counter[tuple[str, str]] = Counter()
        self._running: dict[str, str] = {}
        self._is_worker, self._taken, self._taken_at = False, 0, 0.0
        self._is_closed = threading.Event()
        self._start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start)

    def __repr__(self) -> str:
        return f"<ReportSink to {masked(self._url)}>"

    def close(self) -> None:
        """Report no more: a report on its way ends first. The server forgets the last one after a few seconds."""
        self._is_closed.set()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _start(self) -> None:
        self._refused.clear()  # in a child: what was counted before is its parent's
        self._thread = threading.Thread(target=self._run, name="segmented-reports", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        store: RedisStore | None = None
        while not self._is_closed.is_set():
            with suppress(SegmentedError):  # the server is away: the next report says it all
                store = store or RedisStore.from_url(self._url)
                store.execute(op.ReportProcess(self.report()))
            self._is_closed.wait(EVERY_SECONDS)
        if store is not None:
            store.close()

    def count(self, name: str, amount: float, labels: Labels) -> None:
        """Count refused orders; all else is for other sinks."""
        if name == "segmented.order.answers" and labels[1] == "refused":
            with self._guard.lock:
                self._refused[labels[0], labels[2]] += int(amount)

    def observe(self, name: str, seconds: float, labels: Labels) -> None:
        """Ignore a duration."""

    def work(self) -> None:
        """Report that this process runs tasks, also while it has none."""
        self._is_worker = True

    def begin(self, task_id: str, text: str) -> None:
        """Note that a message was taken, and that its task runs."""
        with self._guard.lock:
            self._running[task_id] = text
            self._taken, self._taken_at = self._taken + 1, monotonic()

    def end(self, task_id: str) -> None:
        """Note that a task has ended."""
        with self._guard.lock:
            self._running.pop(task_id, None)

    def report(self) -> op.ProcessReport:
        """Return what is reported now."""
        refused: dict[str, dict[str, int]] = {}
        with self._guard.lock:
            for (sku, reason), number in self._refused.most_common(REFUSALS_MAX):
                refused.setdefault(sku, {})[reason] = number
            doing = tuple(list(self._running.values())[:DOING_MAX])
            ago_ms = int(1_000 * (monotonic() - self._taken_at)) if self._taken else None
            process = f"{socket.gethostname()}:{os.getpid()}"
            return op.ProcessReport(process, refused, self._is_worker, doing, self._taken, ago_ms)
