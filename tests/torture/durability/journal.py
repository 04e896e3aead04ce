"""The journal of acknowledged orders: a file for each buying process, outside of the stock's server.

One line per event, appended in one write before the thread goes on. NS is the system's monotonic clock, in nanoseconds:

    ack NS THREAD ORDER UNITS   the order is sold, and the customer knows it
    noticed NS THREAD ERROR     the pool was refused because it lost changes
    failed NS THREAD ERROR MS   a call failed after so many milliseconds; the order is tried again under its id
    left NS THREAD ORDER        the outcome of an order stayed unknown; the thread goes on with another
    over NS THREAD              everything is sold, and the thread ends
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.event_log import LogTail, LogWriter


class JournalWriter:
    """Appends the events of one thread."""

    def __init__(self, log: LogWriter, thread: str) -> None:
        """Write to `log`, which threads share."""
        self._log = log
        self._thread = thread

    def note(self, kind: str, *words: object) -> None:
        """Note an event."""
        self._log.write(" ".join((kind, str(time.monotonic_ns()), self._thread, *map(str, words))))


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledged order."""

    at: float
    """Monotonic seconds."""
    order_id: str
    units: int


@dataclass(slots=True)
class Journal:
    """All journals of a trial, read together."""

    acks: list[Ack] = field(default_factory=list)
    noticed: list[float] = field(default_factory=list)
    """When a process learned that changes are lost, in monotonic seconds."""
    left: list[str] = field(default_factory=list)
    over: set[str] = field(default_factory=set)
    """Threads that have ended."""
    noticed_last: dict[str, float] = field(default_factory=dict)
    """The last such moment of each thread."""
    failures: dict[str, int] = field(default_factory=dict)
    failed_s_max: float = 0.0
    """Seconds that the longest failed call took."""

    def feed(self, lines: Iterable[str]) -> None:
        """Add lines of a journal."""
        for line in lines:
            kind, ns, thread, *words = line.split()
            at = int(ns) / 1e9
            if kind == "ack":
                self.acks.append(Ack(at, words[0], int(words[1])))
            elif kind == "noticed":
                self.noticed.append(at)
                self.noticed_last[thread] = at
            elif kind == "failed":
                self.failures[words[0]] = self.failures.get(words[0], 0) + 1
                self.failed_s_max = max(self.failed_s_max, int(words[1]) / 1_000)
            elif kind == "left":
                self.left.append(words[0])
            elif kind == "over":
                self.over.add(thread)


class JournalReader:
    """Follows the journals of all buying processes."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Follow these files, which may not exist yet."""
        self._tails = [LogTail(path) for path in paths]
        self.journal = Journal()

    def read(self) -> Journal:
        """Read the new lines, and return everything so far."""
        for tail in self._tails:
            self.journal.feed(tail.lines())
        return self.journal
