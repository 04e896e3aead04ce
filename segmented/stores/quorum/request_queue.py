"""The pending requests to one server, in order. Pure: the lanes, sync and async, only send what it returns.

One request is in progress at a time. It carries everything queued in the meantime and ends before the next begins. So
no answer overtakes another, and a release is sent after the acquire that it undoes was answered or has failed.

Failed requests need care. An unanswered request may sit in the server's buffer, or on a connection that recovers, and
be performed later, after the release. So the queue has two limited duties. It repeats a failed release until it is
answered. After a failed acquire it sends the release a few more times, with growing pauses. A vote that appears even
after that expires with its time to live. It is a vote of one server only, so it does not make a majority.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import StoreUnavailable
from segmented.protocol import AcquireVote, Operation, ReleaseVote, RenewVote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.stores.quorum.tally import Poll

BATCH_MAX: Final = 500
QUEUE_MAX: Final = 10_000
LEFTOVERS_MAX: Final = 10_000
"""Maximum number of releases to repeat and of holders in doubt; beyond it the oldest are left to expire."""
CLEANUP_SECONDS: Final = 60.0
"""Seconds for which a failed release is repeated."""
PAUSE_MAX: Final = 1.0
LOOKS: Final = 5
"""How often a release is repeated if it was answered but its acquire was not."""

Key = tuple[str, str]
"""Lock and holder."""


@dataclass(slots=True, eq=False)
class Errand:
    """One operation for the server, and where its answer goes."""

    operation: Operation[Any]
    send_by: float = inf
    """Local time after which it is useless."""
    poll: Poll | None = None
    """The poll that waits for the answer; None for a duty."""
    index: int = 0


@dataclass(slots=True)
class _Leftover:
    operation: ReleaseVote
    due: float
    pause: float
    given_up_at: float
    looks: int = 1
    """How many answers are still needed."""


class RequestQueue:
    """The pending requests to one server. Not thread-safe."""

    def __init__(self, pause: float) -> None:
        """Create an empty queue that repeats failed requests after `pause` seconds, then with growing pauses."""
        self._pause = pause
        self._queue: deque[Errand] = deque()
        self._leftovers: dict[Key, _Leftover] = {}
        self._doubtful: dict[Key, None] = {}
        self._next_leftover = inf

    def __len__(self) -> int:
        return len(self._queue) + len(self._leftovers)

    def add(self, errands: Sequence[Errand]) -> Sequence[Errand]:
        """Add errands; return those for which there is no room."""
        room = QUEUE_MAX - len(self._queue)
        self._queue.extend(errands[:room])
        return errands[room:]

    def next_time(self) -> float:
        """Return the local time of the next request to send; inf if there is none."""
        return -inf if self._queue else self._next_leftover

    def take(self, now: float) -> tuple[list[Errand], list[Errand]]:
        """Return a batch to send now, and the errands that are too late to send.

        A batch has at most one errand per holder, because a store may perform a batch in any order.
        """
        batch: list[Errand] = []
        late: list[Errand] = []
        keys: set[Key | None] = set()
        while self._queue and len(batch) < BATCH_MAX:
            errand = self._queue[0]
            if (key := _key_of(errand)) in keys:
                return batch, late
            self._queue.popleft()
            if errand.send_by > now:
                batch.append(errand)
                keys.add(key)
            else:
                late.append(errand)
        if now >= self._next_leftover and not self._queue:
            batch += self._due(now, keys, BATCH_MAX - len(batch))
        return batch, late

    def _due(self, now: float, taken: set[Key | None], most: int) -> list[Errand]:
        due = [one for key, one in self._leftovers.items() if one.due <= now and key not in taken][:most]
        for leftover in due:
            leftover.due = inf  # until `settle` is called
        self._next_leftover = min((leftover.due for leftover in self._leftovers.values()), default=inf)
        return [Errand(leftover.operation) for leftover in due]

    def take_all(self) -> tuple[list[Errand], list[Errand]]:
        """Return the last release of each holder, to be sent one last time, and the errands that are dropped."""
        everything = [*(Errand(leftover.operation) for leftover in self._leftovers.values()), *self._queue]
        last = {_key_of(errand): errand for errand in everything if isinstance(errand.operation, ReleaseVote)}
        self._queue.clear()
        self._leftovers.clear()
        self._next_leftover = inf
        taken = {id(errand) for errand in last.values()}
        return list(last.values()), [errand for errand in everything if id(errand) not in taken]

    def settle(self, errand: Errand, vote: object, now: float) -> None:
        """Record the result of a sent errand."""
        match errand.operation:
            case AcquireVote() | RenewVote(reestablish=True) as operation if isinstance(vote, StoreUnavailable):
                _bounded(self._doubtful)
                self._doubtful[operation.name, operation.holder_id] = None
            case ReleaseVote() as operation:
                self._settle_release(operation, vote, now, is_duty=errand.poll is None)

    def _settle_release(self, operation: ReleaseVote, vote: object, now: float, *, is_duty: bool) -> None:
        key = operation.name, operation.holder_id
        is_answered = not isinstance(vote, StoreUnavailable)
        leftover = self._leftovers.get(key)
        if leftover is None:
            leftover = _Leftover(operation, inf, self._pause, now + CLEANUP_SECONDS, looks=int(not is_answered))
        elif leftover.operation.round < operation.round:
            leftover.operation = operation  # which includes the earlier one
        elif is_duty and leftover.operation.round == operation.round:
            leftover.looks -= is_answered
        if key in self._doubtful:
            del self._doubtful[key]
            leftover.looks = LOOKS
        self._keep(key, leftover, now)

    def _keep(self, key: Key, leftover: _Leftover, now: float) -> None:
        if leftover.looks <= 0 or now >= leftover.given_up_at:
            self._leftovers.pop(key, None)
            return
        if leftover.due == inf:  # it was in progress, or is new
            leftover.due = now + leftover.pause
            leftover.pause = min(2 * leftover.pause, PAUSE_MAX)
        if key not in self._leftovers:
            _bounded(self._leftovers)
            self._leftovers[key] = leftover
        self._next_leftover = min(self._next_leftover, leftover.due)


def _key_of(errand: Errand) -> Key | None:
    match errand.operation:
        case AcquireVote(name, holder_id) | RenewVote(name, holder_id) | ReleaseVote(name, holder_id):
            return name, holder_id
    return None


def _bounded(kept: dict[Key, Any]) -> None:
    while len(kept) >= LEFTOVERS_MAX:
        del kept[next(iter(kept))]
