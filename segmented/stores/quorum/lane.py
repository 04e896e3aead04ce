"""The lane to one server, for asyncio and for threads: it sends the requests of its queue, one after the other.

A thread starts with the first errand and ends when it had nothing to do for a while, a task ends when there is nothing
to do. So a store that is never closed does not leave one behind.

One request is in progress at a time. It carries everything queued in the meantime and ends before the next begins. So
no answer overtakes another, and a release is sent after the acquire that it undoes was answered or has failed.

Failed requests need care. An unanswered request may sit in the server's buffer, or on a connection that recovers, and
be performed later, after the release. So the queue has two limited duties. It repeats a failed release until it is
answered. After a failed acquire it sends the release a few more times, with growing pauses. A vote that appears even
after that expires with its time to live. It is a vote of one server only, so it does not make a majority.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import SegmentedError, StoreUnavailable
from segmented.plans.tasks import OfOneLoop, begun
from segmented.protocol import AcquireVote, Operation, ReleaseVote, RenewVote
from segmented.stores.quorum.voting import NotAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.stores.quorum.voting import Poll

    Tell = Callable[[int, "Errand", object], None]
    """Called with the server, the errand, and the answer or error."""


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


PATIENCE: Final = 1.0
"""Seconds until an unanswered request counts as failed. No caller waits that long. But a late answer tells whether the
request was performed, and a failure does not."""
IDLE_SECONDS: Final = 10.0


class AsyncLane(OfOneLoop):
    """Sends requests to one server, for asyncio."""

    def __init__(self, server: int, store: AsyncStore, clock: Clock, *, pause: float, tell: Tell) -> None:
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.RLock()
        self._changed = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        # threads: self._chores: deque[Callable[[], None]] = deque()

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        self._enter_loop()  # asyncio only
        with self._guard:
            refused = errands if self._is_closing else self._queue.add(errands)
            self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    # threads: def call(self, chore: Callable[[], None]) -> None:
    # threads:     """Queue another call for the lane's thread; the call must not raise."""
    # threads:     with self._guard:
    # threads:         self._chores.append(chore)
    # threads:         self._wake()

    async def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        self._enter_loop()  # asyncio only
        with self._guard:
            self._is_closing = True
            if len(self._queue):
                self._wake()
            self._changed.set()
            runner = self._runner
        if runner is not None:
            _, late = await asyncio.wait([runner], timeout=seconds)  # asyncio only
            for task in late:  # asyncio only
                task.cancel()
            self._runner = None  # asyncio only
            # threads: runner.join(seconds)

    def _wake(self) -> None:
        if self._runner is None or self._runner.done():  # asyncio only
            self._runner = asyncio.create_task(begun(self._run), name=f"segmented-quorum-{self._server}")
        # threads: if self._runner is None:
        # threads:     name = f"segmented-quorum-{self._server}"
        # threads:     self._runner = threading.Thread(target=self._run, name=name, daemon=True)
        # threads:     self._runner.start()
        self._changed.set()

    # --- the lane's task or thread ---

    async def _run(self) -> None:
        while await self._is_busy():
            # threads: while self._chores:
            # threads:     self._chores.popleft()()
            with self._guard:
                batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                await self._send(batch)

    async def _is_busy(self) -> bool:
        """Sleep until there is work; return False if there is none, and the task or thread ends."""
        # threads: was_woken = True
        while True:
            with self._guard:
                seconds = self._queue.next_time() - self._clock.now()
                if seconds <= 0 or (self._is_closing and len(self._queue)):
                    return True
                is_over = not len(self._queue)  # asyncio only
                # threads: if self._chores:
                # threads:     return True
                # threads: is_over = (self._is_closing or not was_woken) and not len(self._queue)
                if is_over:
                    self._runner = None
                    return False
                self._changed.clear()
            timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)  # asyncio only
            try:  # asyncio only
                await self._changed.wait()
            finally:
                timer.cancel()
            # threads: was_woken = self._changed.wait(min(seconds, IDLE_SECONDS))

    async def _send(self, batch: Sequence[Errand]) -> None:
        votes = await self._asked(batch)
        now = self._clock.now()
        with self._guard:
            for errand, vote in zip(batch, votes, strict=True):
                if not self._is_closing:
                    self._queue.settle(errand, vote, now)
        for errand, vote in zip(batch, votes, strict=True):
            self._tell(self._server, errand, vote)

    async def _asked(self, batch: Sequence[Errand]) -> Sequence[Any]:
        operations = [errand.operation for errand in batch]
        try:
            return await self.store.execute_many(operations, deadline=self.store.clock.now() + PATIENCE)
        except SegmentedError as error:
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001  # the lane continues, and the waiting caller gets the error
            return [unexpected(error)] * len(batch)

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")


def unexpected(error: Exception) -> StoreUnavailable:
    """Translate any error into StoreUnavailable: it is unknown whether the operation ran."""
    failure = StoreUnavailable(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


# --- For threads: written by `make sync` from the classes above. ---


class ThreadLane:
    """Sends requests to one server, for threads."""

    def __init__(self, server: int, store: Store, clock: Clock, *, pause: float, tell: Tell) -> None:
        self.store = store
        self._server = server
        self._clock = clock
        self._tell = tell
        self._queue = RequestQueue(pause)
        self._is_closing = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._guard = threading.RLock()
        self._changed = threading.Event()
        self._runner: threading.Thread | None = None
        self._chores: deque[Callable[[], None]] = deque()

    def submit(self, errands: Sequence[Errand]) -> None:
        """Queue errands behind the earlier ones."""
        with self._guard:
            refused = errands if self._is_closing else self._queue.add(errands)
            self._wake()
        for errand in refused:
            self._tell(self._server, errand, self._not_sent())

    def call(self, chore: Callable[[], None]) -> None:
        """Queue another call for the lane's thread; the call must not raise."""
        with self._guard:
            self._chores.append(chore)
            self._wake()

    def close(self, seconds: float) -> None:
        """Send the remaining errands, and failed ones once more, and end; within `seconds` if the server answers."""
        with self._guard:
            self._is_closing = True
            if len(self._queue):
                self._wake()
            self._changed.set()
            runner = self._runner
        if runner is not None:
            runner.join(seconds)

    def _wake(self) -> None:
        if self._runner is None:
            name = f"segmented-quorum-{self._server}"
            self._runner = threading.Thread(target=self._run, name=name, daemon=True)
            self._runner.start()
        self._changed.set()

    # --- the lane's task or thread ---

    def _run(self) -> None:
        while self._is_busy():
            while self._chores:
                self._chores.popleft()()
            with self._guard:
                batch, late = self._queue.take_all() if self._is_closing else self._queue.take(self._clock.now())
            for errand in late:
                self._tell(self._server, errand, self._not_sent())
            if batch:
                self._send(batch)

    def _is_busy(self) -> bool:
        """Sleep until there is work; return False if there is none, and the task or thread ends."""
        was_woken = True
        while True:
            with self._guard:
                seconds = self._queue.next_time() - self._clock.now()
                if seconds <= 0 or (self._is_closing and len(self._queue)):
                    return True
                if self._chores:
                    return True
                is_over = (self._is_closing or not was_woken) and not len(self._queue)
                if is_over:
                    self._runner = None
                    return False
                self._changed.clear()
            was_woken = self._changed.wait(min(seconds, IDLE_SECONDS))

    def _send(self, batch: Sequence[Errand]) -> None:
        votes = self._asked(batch)
        now = self._clock.now()
        with self._guard:
            for errand, vote in zip(batch, votes, strict=True):
                if not self._is_closing:
                    self._queue.settle(errand, vote, now)
        for errand, vote in zip(batch, votes, strict=True):
            self._tell(self._server, errand, vote)

    def _asked(self, batch: Sequence[Errand]) -> Sequence[Any]:
        operations = [errand.operation for errand in batch]
        try:
            return self.store.execute_many(operations, deadline=self.store.clock.now() + PATIENCE)
        except SegmentedError as error:
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001  # the lane continues, and the waiting caller gets the error
            return [unexpected(error)] * len(batch)

    def _not_sent(self) -> NotAsked:
        return NotAsked(f"{self.store!r} was not asked in time")
