"""Submitting orders: one step writes the record and the outbox entry, then a message notifies a worker.

The message is only a hint. If it is lost, the order is still in the outbox, and a sweep publishes it again.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, Self, get_args

from segmented import protocol as op
from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.events.traces import CURRENT
from segmented.locks.durations import milliseconds
from segmented.models.orders import Reserved
from segmented.models.pools import UNASSIGNED, Assignment
from segmented.models.submitted import Accepted, DeadOrder, Deciding, Queued, Submitted, SweepSuperseded, Swept
from segmented.plans import Now, Plan, Within, pause, perform
from segmented.plans.waiting import ATTEMPT_SECONDS, TRY_SECONDS
from segmented.process import BeginsAnew
from segmented.stock.sold_out_mark import SoldOutMark, reserve_many_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from segmented.clock import Clock, Duration

ENVELOPE_MAX: Final = 100
"""Maximum number of orders in one message."""
WITH_OTHERS: Final = (ENVELOPE_MAX, 10)
"""Maximum number of orders in an envelope, by how often one was begun and not finished; beyond the list it is alone."""
BEGUN_MAX: Final = 5
BEGUN_MAX_MOST: Final = 1_000
PUBLISH_AFTER: Final = 5.0
PUBLISH_AFTER_MOST: Final = 60.0
NOTED_SECONDS: Final = 1.0
"""Less than the time after which workers look once more at a pool that had nothing due (`AGAIN_MS`)."""
COVERED_SECONDS: Final = 60.0
"""A process registers its holds at least this often: a server that was emptied, or a replica, does not know of it."""
SWEEP_PAGE: Final = 1_000
SWEEP_PAGES_MAX: Final = 100
LOOK_FIRST: Final = 0.001
LOOK_LAST: Final = 0.25
LOOK_GROWTH: Final = 1.5
"""Factor by which the interval between two reads of an order's state grows."""


class Sender(Protocol):
    """Publishes envelopes, as a sweep needs it."""

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish one envelope before returning. Raises StoreUnavailable when the broker is unavailable."""

    def room(self) -> int | None:
        """Return how many more envelopes the broker should get now, or None for no limit.

        Raises StoreUnavailable when the broker is unavailable.
        """


class Publisher(Sender, Protocol):
    """Notifies workers of orders."""

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        """Queue these orders for publication and return at once. Raises nothing if the broker is unavailable.

        `segment` is the one that all their units are from; orders of different segments should not share an envelope,
        because its transaction locks the rows of all its segments. None: no units are taken yet.
        """


@dataclass(frozen=True, slots=True)
class Outbox:
    """How a pool submits orders. Times are in seconds."""

    publisher: Publisher | None = None
    """Notifies workers at once; without one, the sweep does so after `publish_after`."""
    decides: Deciding = "at acceptance"
    """When units are taken: at submission, or by a worker, under the lock of a segment."""
    publish_after: Duration = PUBLISH_AFTER
    """Age after which the sweep publishes unfinished orders."""

    def __post_init__(self) -> None:
        if self.decides not in get_args(Deciding):
            raise InvalidInput(f"decides={self.decides!r} is not one of {', '.join(map(repr, get_args(Deciding)))}")
        milliseconds(self.publish_after, "publish_after")

    @classmethod
    def under_lock(cls, publisher: Publisher | None = None, *, publish_after: Duration = PUBLISH_AFTER) -> Outbox:
        """Create an outbox whose orders a worker takes from the stock under the lock of a segment.

        Short for `Outbox(publisher, decides="in the worker")`. By default units are taken when an order is submitted,
        and the worker that confirms the order holds no lock.
        """
        return cls(publisher, "in the worker", publish_after)

    @property
    def publish_after_ms(self) -> int:
        """`publish_after` in milliseconds."""
        return milliseconds(self.publish_after, "publish_after")


UNASKED: Final = Outbox()
"""The outbox of a pool that was created without one: it submits no orders."""


@dataclass(frozen=True, slots=True)
class SweepTerms:
    """Settings of a sweep. Times are in seconds."""

    base: float = PUBLISH_AFTER
    most: float = PUBLISH_AFTER_MOST
    """The time until an order is published again doubles from `base` to `most`."""
    hold: Duration = 600.0
    """How long the units of an order in the dead-letter set stay reserved."""
    begun_max: int = BEGUN_MAX
    """An order that was begun this often and not finished goes to the dead-letter set."""
    assignment: Assignment = UNASSIGNED
    """Queue that the messages go to, and step of its workers: a pool that names others is left to its own sweep."""

    def __post_init__(self) -> None:
        for name in ("base", "most", "hold"):
            milliseconds(getattr(self, name), name)
        if self.most < self.base:
            message = f"most of {self.most:g} s is shorter than base of {self.base:g} s, from which it doubles"
            raise InvalidInput(message)
        checked_begun_max(self.begun_max)


def checked_begun_max(begun_max: int) -> int:
    """Return how often an order may be begun. Raises InvalidInput."""
    if type(begun_max) is not int or not 1 <= begun_max <= BEGUN_MAX_MOST:
        raise InvalidInput(f"begun_max={begun_max!r} must be a whole number between 1 and {BEGUN_MAX_MOST:,}")
    return begun_max


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The result of a sweep."""

    published: int
    envelopes: int
    buried: tuple[str, ...]
    is_more_due: bool
    is_superseded: bool = False
    failure: str = ""
    """Why publishing ended early; the orders stay in the outbox."""


# --- submitting ---


class Noted:
    """Remembers when the pool was last registered with the sweep; re-registers periodically in case that was lost.

    For holds it remembers the next look that workers are registered to make: a hold that ends later is seen then.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -inf
        self._look_at, self._covers_until = inf, -inf
        self._is_open = False

    @property
    def is_fresh(self) -> bool:
        """Return whether the pool was registered a short time ago."""
        return self._clock.now() < self._until

    def note(self) -> None:
        """Remember that the pool was registered now."""
        self._until = self._clock.now() + NOTED_SECONDS

    def covers(self, hold_ms: int) -> bool:
        """Return whether workers will look at the pool between now and the end of a hold that begins now."""
        now = self._clock.now()
        return now < self._covers_until and self._look_at <= now + hold_ms / 1_000

    def hold_plan(self, name: str, hold_ms: int) -> Plan[None]:
        """Register the end of a hold that is about to begin. A failure is not raised: its turn comes at last."""
        now, seconds = self._clock.now(), hold_ms / 1_000
        soon = min(NOTED_SECONDS, seconds / 2)
        self._look_at, self._covers_until = now + seconds, now + soon
        with suppress(SegmentedError):
            if not self._is_open:  # a name that is not open is none of the pools that workers look at
                yield from perform(op.ReadNextDue(name))
                self._is_open = True
            yield from perform(op.NotePool(name, expire_ms=hold_ms))
            self._covers_until = now + min(seconds, COVERED_SECONDS) - soon


def submit_plan(
    mark: SoldOutMark, outbox: Outbox, operation: op.ReserveMany, *, noted: Noted
) -> Plan[list[Accepted | SegmentedError]]:
    """Accept orders, up to 1,000 in a step, after registering the pool with the sweep."""
    if not noted.is_fresh:
        yield from perform(op.NotePool(operation.sku, sweep_ms=outbox.publish_after_ms, submits=True))
        noted.note()
    answers: list[Accepted | SegmentedError] = []
    if outbox.decides == "at acceptance":
        answers += yield from reserve_many_marked(mark, operation)
    else:
        for first in range(0, len(operation.orders), op.BATCH_MAX):
            page = operation.orders[first : first + op.BATCH_MAX]
            answers += yield from perform(op.QueueOrders(operation.sku, page, outbox.publish_after_ms))
    if trace := CURRENT.traces.context():
        yield from _traced(operation.sku, answers, trace)
    return answers


def _traced(sku: str, answers: Iterable[Accepted | SegmentedError], trace: str) -> Plan[None]:
    """Keep the trace in which orders were accepted, for a sweep. They are accepted: a failure only loses the trace."""
    ids = [order_id for each in to_publish(answers).values() for order_id in each]
    for first in range(0, len(ids), op.BATCH_MAX):
        with suppress(SegmentedError):
            yield from perform(op.NoteTraces(sku, tuple(ids[first : first + op.BATCH_MAX]), trace))


def to_publish(answers: Iterable[Accepted | SegmentedError]) -> dict[int | None, list[str]]:
    """Return the ids to publish now, by segment; repeats were published before, or the sweep will do it."""
    found: dict[int | None, list[str]] = {}
    for answer in answers:
        if isinstance(answer, Queued | Reserved) and not answer.replay:
            found.setdefault(answer.segment if isinstance(answer, Reserved) else None, []).append(answer.order_id)
    return found


def outcome_plan(sku: str, order_id: str, timeout: float | None) -> Plan[Submitted]:
    """Read an order's state until it is final or `timeout` seconds have passed (None: forever).

    If the server hangs at the end of the timeout, the last answer is returned, if there has been one.
    """
    now = yield from perform(Now())
    deadline = inf if timeout is None else now + timeout
    look, found, patience = op.ReadSubmitted(sku, (order_id,)), None, TRY_SECONDS
    between = LOOK_FIRST
    while True:
        try:
            (found,) = yield from perform(look if deadline == inf else Within(look, max(deadline, now + patience)))
        except StoreUnavailable:
            now = yield from perform(Now())
            if found is None or now < deadline:
                raise
        now, patience = (yield from perform(Now())), ATTEMPT_SECONDS
        left = min(between, deadline - now)
        if found.state not in {"queued", "reserved"} or left <= 0:
            return found
        yield from pause(f"seg:outcome:{order_id}", now + left)
        between = min(between * LOOK_GROWTH, LOOK_LAST)


# --- sweeping ---


def sweep_operation(sku: str, terms: SweepTerms, limit: int, fencing_token: int | None) -> op.SweepOutbox:
    """Build one step of a sweep."""
    return op.SweepOutbox(
        sku,
        limit,
        fencing_token,
        milliseconds(terms.base, "base"),
        milliseconds(terms.most, "most"),
        milliseconds(terms.hold, "hold"),
        terms.begun_max,
        terms.assignment,
    )


def envelopes_of(due: Sequence[tuple[str, int]], envelope_max: int = ENVELOPE_MAX) -> list[tuple[str, ...]]:
    """Group orders into envelopes: the more often an order was begun and not finished, the fewer others are with it."""
    sizes = [min(size, envelope_max) for size in (*WITH_OTHERS, 1)]
    groups: list[list[str]] = [[] for _ in sizes]
    for order_id, begun in due:
        groups[min(begun, len(sizes) - 1)].append(order_id)
    return [
        tuple(group[first : first + size])
        for group, size in zip(groups, sizes, strict=True)
        for first in range(0, len(group), size)
    ]


def sweep(
    execute: Callable[[op.SweepOutbox], Swept | SweepSuperseded],
    sku: str,
    sender: Sender,
    *,
    terms: SweepTerms,
    fencing_token: int | None = None,
) -> SweepReport:
    """Publish due orders again, at most as many as the broker has room for. Concurrent sweeps cost duplicates.

    Ends when nothing is due, when the broker is unavailable, or when a sweep with a later fencing token has been seen.
    """
    published = sent = 0
    buried: list[str] = []
    is_more_due = True
    try:
        room = sender.room()
    except StoreUnavailable as error:
        return SweepReport(published, sent, tuple(buried), is_more_due=True, failure=str(error))
    for _ in range(SWEEP_PAGES_MAX):
        limit = SWEEP_PAGE if room is None else min(SWEEP_PAGE, (room - sent) * ENVELOPE_MAX)
        if limit < 1:
            break
        answer = execute(sweep_operation(sku, terms, limit, fencing_token))
        if isinstance(answer, SweepSuperseded):
            return SweepReport(published, sent, tuple(buried), is_more_due=True, is_superseded=True)
        buried += answer.buried
        CURRENT.traces.restore(sku, answer.traces)
        for envelope in envelopes_of(answer.due):
            try:
                sender.send(sku, envelope)
            except StoreUnavailable as error:
                return SweepReport(published, sent, tuple(buried), is_more_due=True, failure=str(error))
            published, sent = published + len(envelope), sent + 1
        is_more_due = answer.is_more_due
        if not is_more_due:
            break
    return SweepReport(published, sent, tuple(buried), is_more_due)


# --- the dead-letter set ---


def dead_plan(sku: str) -> Plan[list[DeadOrder]]:
    """Read the entire dead-letter set, oldest first."""
    found: dict[str, DeadOrder] = {}
    cursor = -1
    while cursor != 0:
        cursor, page = yield from perform(op.ListDead(sku, max(cursor, 0)))
        found |= {one.order_id: one for one in page}
    return sorted(found.values(), key=lambda one: (one.at_ms, one.order_id))


# --- publishing in the background: single orders at once when idle, larger envelopes under load ---

LINGER_FIRST: Final = 0.001
LINGER_MOST: Final = 0.02
"""Maximum seconds that an envelope waits for more orders; the wait doubles with each envelope while more orders come.
"""
WAITING_MAX: Final = 100_000
"""Maximum number of orders that wait to be published; further ones are left to the sweep."""
CLOSE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 10.0
"""Seconds after which a thread without orders ends."""
log = logging.getLogger(__name__)


class EnvelopePublisher(BeginsAnew):
    """Publishes in the background, for threads and for event loops; the caller's thread sends nothing.

    An unavailable broker only costs time: an order that cannot be sent is dropped here and stays in the outbox. After a
    fork the child's copy starts empty; the parent sends the orders that waited in the parent.
    """

    def __init__(
        self,
        send: Callable[[str, Sequence[str]], None],
        *,
        room: Callable[[], int | None] = lambda: None,
        envelope_max: int = ENVELOPE_MAX,
    ) -> None:
        """Publish by `send`, which gets a sku and up to `envelope_max` order ids, and raises StoreUnavailable."""
        if type(envelope_max) is not int or not 1 <= envelope_max <= ENVELOPE_MAX:
            raise InvalidInput(f"envelope_max={envelope_max!r} must be a whole number between 1 and {ENVELOPE_MAX}")
        self._send = send
        self._room = room
        self._envelope_max = envelope_max
        self._is_closed = False
        self.dropped_count = 0
        """Number of orders left to the sweep."""
        self._start_anew()

    def __repr__(self) -> str:
        """Return the class and the numbers of orders that wait and that were dropped."""
        self._begin_if_new()
        return f"<EnvelopePublisher: {self._count} waiting, {self.dropped_count} dropped>"

    def _start_anew(self) -> None:
        super()._start_anew()
        self._waiting: dict[tuple[str, int | None], list[str]] = defaultdict(list)
        """Orders to send, by sku and segment."""
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, sku: str, order_ids: Sequence[str], segment: int | None = None) -> None:
        """Queue these orders for publication and return at once. Orders of different segments share no envelope."""
        if not order_ids:
            return
        self._begin_if_new()
        CURRENT.traces.note(sku, order_ids)
        with self._changed:
            if self._is_closed or self._count + len(order_ids) > WAITING_MAX or not self._has_thread():
                self.dropped_count += len(order_ids)
                return
            self._waiting[sku, segment] += order_ids
            self._count += len(order_ids)
            self._changed.notify()

    def _has_thread(self) -> bool:
        if self._thread is None:
            thread = self._thread = threading.Thread(target=self._publish, name="segmented-publisher", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started, as at the interpreter's exit
                self._thread = None
                return False
        return True

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish before returning, in as many envelopes as needed. Raises StoreUnavailable without a broker."""
        for first in range(0, len(order_ids), self._envelope_max):
            self._send(sku, order_ids[first : first + self._envelope_max])

    def room(self) -> int | None:
        """Return how many more envelopes the broker should get now, or None for no limit."""
        return self._room()

    def close(self) -> None:
        """Send waiting orders, for a bounded time, and end."""
        self._begin_if_new()
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _publish(self) -> None:
        linger = 0.0
        while True:
            with self._changed:
                while not self._count and not self._is_closed:
                    linger = 0.0  # idle: the next order goes at once
                    if not self._changed.wait(IDLE_SECONDS) and not self._count:  # perhaps nobody has it any more
                        self._thread = None
                        return
                if self._count < self._envelope_max and linger and not self._is_closed:
                    self._changed.wait_for(lambda: self._count >= self._envelope_max or self._is_closed, linger)
                if not self._count:
                    return
                sku, envelope = self._next()
            self._try(sku, envelope)
            with self._changed:
                is_loaded = self._count > 0
            linger = min(LINGER_MOST, linger * 2 or LINGER_FIRST) if is_loaded else 0.0

    def _next(self) -> tuple[str, list[str]]:
        """Take the next envelope, of the sku and segment that have waited longest."""
        kind = next(iter(self._waiting))
        waiting = self._waiting.pop(kind)
        envelope, rest = waiting[: self._envelope_max], waiting[self._envelope_max :]
        if rest:
            self._waiting[kind] = rest  # behind the others
        self._count -= len(envelope)
        return kind[0], envelope

    def _try(self, sku: str, envelope: list[str]) -> None:
        try:
            self._send(sku, envelope)
        except StoreUnavailable as error:
            self.dropped_count += len(envelope)
            log.warning("%d orders of %r are left to the sweep: %s", len(envelope), sku, error)
        except Exception:
            self.dropped_count += len(envelope)
            log.exception("%d orders of %r are left to the sweep", len(envelope), sku)
