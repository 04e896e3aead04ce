"""Tracks messages, from the logs of publishers and workers. It decides nothing about orders."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from segmented.errors import SegmentedError

MOST: Final = 255


@dataclass(slots=True)
class _Message:
    orders: "array[int]"
    published_ns: int = 0
    taken_ns: int = 0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the death of a worker that held an order to the end of that order."""

    orders: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    orders_of_several: int = 0
    """Orders held by two or more killed workers: their seconds count from the last kill."""
    first_max_s: float = 0.0
    """The longest of all, counted from the first kill."""
    of_one_max_s: float = 0.0
    """The longest of the orders hit by exactly one kill."""


@dataclass(slots=True)
class WorkerState:
    """Messages that one worker has received and not finished."""

    is_ready: bool = False
    taken: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)


class MessageTracker:
    """Tracks every message. Lines of one process come in order; processes come in any order."""

    def __init__(self, order_count: int) -> None:
        """Create a tracker for that many orders."""
        self._messages: dict[str, _Message] = {}
        self._kills_ns: list[int] = []
        size = order_count + 1
        self._delivered = bytearray(size)
        self._worked = bytearray(size)
        self._first_ns = array("q", bytes(8 * size))
        self._last_ns = array("q", bytes(8 * size))
        self._hits = bytearray(size)
        self.workers: dict[int, WorkerState] = {}
        """By process number."""
        self.published = 0
        self.published_again = 0
        """Orders in messages published by a sweep."""
        self.deliveries_repeated = 0
        self.works_repeated = 0
        self.worked = 0

    def feed(self, process: int, lines: Iterable[str]) -> None:
        """Record lines of one process; 0 is the submitter."""
        worker = self.workers.setdefault(process, WorkerState())
        for line in lines:
            kind, *words = line.split(" ")
            match kind:
                case "p":
                    self._note_published(words, is_again=process != 0)
                case "w":
                    worker.is_ready = True
                case "r":
                    worker.taken.add(words[1])
                    self._of(words[1]).taken_ns = int(words[0])
                case "b":
                    worker.begun.add(words[1])
                    self._note_begun(words)
                case "s":
                    self._note_worked(int(words[0]))
                case "d":
                    worker.taken.discard(words[1])
                    worker.begun.discard(words[1])
                case _:
                    raise SegmentedError(f"the log of process {process} cannot be read: {line!r}")

    def kill(self, process: int, at_ns: int) -> None:
        """Record the kill of a process, after all its lines: its unfinished orders must be recovered."""
        worker = self.workers.pop(process)
        self._kills_ns.append(at_ns)
        for name in worker.taken | worker.begun:
            for number in self._of(name).orders:
                self._hit(number, at_ns)

    def lost(self, left: Iterable[str]) -> int:
        """Count the messages that no worker took and that are not `left` at the broker; their orders were hit, too.

        A worker lost such a message when it was killed between the broker's pop and its own log line. The queue is
        served in order, so it was the first kill after every earlier message had been taken.
        """
        there = set(left)
        count = 0
        reached_ns = 0
        for name, message in sorted(self._messages.items(), key=lambda one: one[1].published_ns):
            if message.taken_ns:
                reached_ns = max(reached_ns, message.taken_ns)
            elif name not in there and message.published_ns:
                count += 1
                index = bisect_left(self._kills_ns, max(reached_ns, message.published_ns))
                if index < len(self._kills_ns):
                    for number in message.orders:
                        self._hit(number, self._kills_ns[index])
        return count

    @property
    def duplicates_absorbed(self) -> int:
        """Orders delivered to a worker again, for which the step did not run again."""
        return max(0, self.deliveries_repeated - self.works_repeated)

    def recovery(self, decided_us: Sequence[int], offset_us: int) -> Recovery:
        """Compare kills with the ends of orders; `offset_us` is the server's clock minus the monotonic clock."""
        seconds, several, first_max, of_one_max = array("d"), 0, 0.0, 0.0
        for number, hits in enumerate(self._hits):
            if not hits:
                continue
            decided = decided_us[number] - offset_us
            since_last = (decided - self._last_ns[number] / 1_000) / 1e6
            if since_last <= 0:  # its effect existed before the worker died
                continue
            seconds.append(since_last)
            several += hits > 1
            of_one_max = max(of_one_max, since_last if hits == 1 else 0.0)
            first_max = max(first_max, (decided - self._first_ns[number] / 1_000) / 1e6)
        if not seconds:
            return Recovery()
        ordered = sorted(seconds)
        return Recovery(
            len(ordered), _share(ordered, 0.5), _share(ordered, 0.99), ordered[-1], several, first_max, of_one_max
        )

    def _of(self, name: str) -> _Message:
        return self._messages.setdefault(name, _Message(array("l")))

    def _note_published(self, words: Sequence[str], *, is_again: bool) -> None:
        message = self._of(words[1])
        message.published_ns = int(words[0])
        message.orders = array("l", map(int, words[2:]))
        self.published += 1
        self.published_again += len(message.orders) if is_again else 0

    def _note_begun(self, words: Sequence[str]) -> None:
        message = self._of(words[1])
        message.taken_ns = message.taken_ns or int(words[0])
        if not message.orders:
            message.orders = array("l", map(int, words[2:]))
        for number in message.orders:
            self.deliveries_repeated += self._delivered[number] > 0
            self._delivered[number] = 1

    def _note_worked(self, number: int) -> None:
        self.worked += 1
        self.works_repeated += self._worked[number] > 0
        self._worked[number] = 1

    def _hit(self, number: int, at_ns: int) -> None:
        self._hits[number] = min(MOST, self._hits[number] + 1)
        first = self._first_ns[number]
        self._first_ns[number] = at_ns if not first else min(first, at_ns)
        self._last_ns[number] = max(self._last_ns[number], at_ns)


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
