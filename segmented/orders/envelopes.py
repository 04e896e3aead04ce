"""Process an envelope of submitted orders: units under one segment's lock, one transaction, one confirmation.

Every step can be repeated and interrupted: the orders stay in the outbox until they are decided, and another worker
takes over once a worker's time is over. A failing order does not affect the others.

One thread a store renews the work of its envelopes in progress. It starts with the first and ends when none has been in
progress for a while. It is a daemon, so it does not delay the interpreter's exit. A forked child begins without it: the
parent goes on renewing its own envelopes.
"""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Self
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

from segmented import protocol as op
from segmented.clock import SystemClock, in_seconds
from segmented.errors import (
    AssignedElsewhere,
    DatabaseUnavailable,
    EpochEnded,
    InvalidInput,
    OrderMismatch,
    OrderQueued,
    OrderUnknown,
    PoolDiverged,
    PoolFrozen,
    PoolGated,
    PoolNotGated,
    PoolUnverified,
    SegmentedError,
    StoreError,
    StoreUnavailable,
)
from segmented.keys import shard_keys
from segmented.locks.call_keys import name_of, shape_of
from segmented.locks.durations import checked_timeout, milliseconds
from segmented.locks.keeper import LINGER
from segmented.models import UNASSIGNED, Assignment, Busy, Settled, checked_id, shortened
from segmented.models.submitted import BegunOrder, Dead, TakenOrders, TooManyOthers, one_line
from segmented.orders import answers
from segmented.orders.deciding import claim_of
from segmented.orders.forgetting import end_unknown, may_have_forgotten
from segmented.orders.sale import REBUILDS_MAX, lower_changed, settle_due, tell_pool
from segmented.orders.verifying import freeze_if_behind, when_verified
from segmented.plans import run_sync
from segmented.process import BeginsAnew, Guard
from segmented.stock.outbox import BEGUN_MAX, PUBLISH_AFTER, checked_begun_max
from segmented.stock.plans import take_plan
from segmented.stock.settings import DEFAULT_HOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from segmented.clock import Duration
    from segmented.orders.confirming import StoreWith
    from segmented.orders.database import OrderDatabase
    from segmented.plans.drivers import Store
    from segmented.stock import Pool

ENVELOPE_TTL: Final = 5.0
LATER: Final = 2.0
"""Seconds until the next try of an order that could not be tried: a server was unavailable, no segment was free."""


class TryLater(SegmentedError):
    """A step cannot work now, through no fault of the order: it does not count towards the dead-letter set."""

    def __init__(self, reason: str, seconds: float = LATER) -> None:
        """Create with the reason and the time to wait. Raises InvalidInput for an invalid time."""
        milliseconds(seconds, "seconds")
        super().__init__(reason)
        self.seconds = seconds


class Decline(SegmentedError):
    """A step refuses an order for good, such as for a card that the bank refused: its units are free at once."""

    def __init__(self, reason: str) -> None:
        """Create with the reason, which the report and the worker's log have."""
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class WorkTerms:
    """How a worker takes envelopes. Times are in seconds."""

    ttl: Duration = ENVELOPE_TTL
    """Lifetime of the segment's lease."""
    hold: Duration = DEFAULT_HOLD
    """How long units stay reserved for an order that is in no outbox, or dead; at least `work`, so that nobody else
    gets them.
    """
    work: Duration = PUBLISH_AFTER
    """How long orders belong to this worker; extended while a step or the database works."""
    begun_max: int = BEGUN_MAX
    """An order that was begun this often and not finished goes to the dead-letter set."""
    segment_timeout: Duration = 5.0
    """How long to wait for a free segment."""
    assignment: Assignment = UNASSIGNED
    """Queue of this worker, and name of its step: a pool that names others leaves its orders to other workers."""
    ttl_ms: int = field(init=False, repr=False, compare=False)
    hold_ms: int = field(init=False, repr=False, compare=False)
    work_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise InvalidInput for invalid settings."""
        for name in ("ttl", "hold", "work"):
            object.__setattr__(self, f"{name}_ms", milliseconds(getattr(self, name), name))
        checked_timeout(self.segment_timeout)
        if self.hold_ms < max(self.ttl_ms, self.work_ms):
            hold, ttl, work = (ms / 1000 for ms in (self.hold_ms, self.ttl_ms, self.work_ms))
            raise InvalidInput(f"hold={hold:g} s is shorter than ttl={ttl:g} s or work={work:g} s")
        checked_begun_max(self.begun_max)


DEFAULT_TERMS: Final = WorkTerms()


def checked_step(step: Callable[..., object] | None) -> None:
    """Raise InvalidInput for a step whose call would only create a coroutine or a generator and do nothing."""
    if step is not None and (shape := shape_of(step)) != "function":
        raise InvalidInput(f"the step {name_of(step)} is a {shape}, and calling it would run nothing")


def checked_ids(order_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of an envelope, each once. Raises InvalidInput."""
    if isinstance(order_ids, str):
        raise InvalidInput(f"{shortened(order_ids)} is a single order id; give an envelope's order ids as a list")
    ids = tuple(dict.fromkeys(checked_id(order_id, "order id") for order_id in order_ids))
    if not 1 <= len(ids) <= op.BATCH_MAX:
        raise InvalidInput(f"an envelope has 1 to {op.BATCH_MAX:,} orders, not {len(ids):,}")
    return ids


def told(error: BaseException) -> str:
    """Describe an order's failure in one line; a user's exception may fail to describe itself."""
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001  # no error may affect the envelope
        return type(error).__name__


def declined_for(declined: Decline) -> str:
    """Return the reason of a decline."""
    return told(declined).partition(": ")[2]


@dataclass(slots=True)
class EnvelopeReport:
    """The outcomes of the orders of one envelope."""

    settled: list[Settled] = field(default_factory=list)
    """Decided, now or before."""
    in_hand: list[str] = field(default_factory=list)
    """Orders that another worker is processing."""
    put_off: dict[str, str] = field(default_factory=dict)
    """Order id -> why it is tried again later."""
    declined: dict[str, str] = field(default_factory=dict)
    """Order id -> why its step declined it. It is settled, too: cancelled."""
    dead: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    """Begun before and not finished: published again in smaller envelopes."""
    unknown: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the number of orders of each kind, without empty kinds."""
        return {name: len(found) for name in KINDS if (found := getattr(self, name))}

    def summary(self) -> str:
        """Return the counts as text, such as "98 settled, 2 put_off": a task's result, which Celery writes in its log.

        Celery takes five times as long to write an object.
        """
        return ", ".join([f"{len(found)} {name}" for name in KINDS if (found := getattr(self, name))])


KINDS: Final = tuple(one.name for one in fields(EnvelopeReport))
"""Names of the kinds, in the order of the fields."""


log = logging.getLogger(__name__)


class Renewal:
    """Calls `renew` every `every` seconds in the store's thread, until the `with` statement ends."""

    def __init__(self, renew: Callable[[], None], store: Store, *, every: float) -> None:
        """Create a renewal; it starts with the `with` statement. `every` is in seconds."""
        self.renew = renew
        self.every = every
        self._timer = _timer_of(store)

    def __enter__(self) -> Self:
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


RETRY_FIRST: Final = 1.0
RETRY_MOST: Final = 60.0
"""Maximum seconds until a failed order is tried again; the delay doubles with each failure."""
POOLS_TROUBLE: Final = (AssignedElsewhere, EpochEnded, PoolDiverged, PoolFrozen, PoolUnverified)
"""Failures of the pool as a whole, such as a loss or a rebuild: an order in hand meanwhile has not failed."""
GATED: Final = "the pool is gated, and this worker has no order database"
TRUSTED: Final = 2 / 3
"""Part of the work time after which a worker that could not renew checks that it still owns an order before a step."""

_DECIDING: Final[WeakSet[Pool]] = WeakSet()
"""Pools whose last orders were decided in the worker, as the next ones most likely are: the script that confirms orders
decided at acceptance would be wasted. A wrong guess costs one such script.
"""


def take_envelope(
    pool: Pool,
    order_ids: Iterable[str],
    *,
    gate: OrderDatabase | None = None,
    step: Callable[[BegunOrder], None] | None = None,
    store_with: StoreWith | None = None,
    terms: WorkTerms | None = None,
) -> EnvelopeReport:
    """Finish submitted orders that share a message; safe to repeat, also concurrently.

    `step` is called with each order whose units are taken. It runs again if a worker dies in it, so it must be
    idempotent. If it raises, the order is tried again later, and moved to the dead-letter set after `begun_max` times;
    after Decline it is cancelled at once, and TryLater does not count. With a `gate` the order database decides, and
    `store_with(connection, orders)` stores rows of your own in the transaction that stores the orders. Raises
    AssignedElsewhere for a pool that names another queue or step than the `terms` do, PoolNotGated for a gate over a
    pool without one, and InvalidInput for a step whose call would run nothing; StoreUnavailable or DatabaseUnavailable
    only if the orders could not be put off.
    """
    envelope = _Envelope(pool, gate, store_with, terms or DEFAULT_TERMS)
    ids = checked_ids(order_ids)
    checked_step(step)
    checked_step(store_with)
    if store_with is not None and gate is None:
        raise InvalidInput(f"store_with needs the gate of pool {pool.sku!r}: without one nothing is stored")
    if pool.is_gated() != envelope.has_gate and pool.is_gated(again=True) != envelope.has_gate:
        return envelope.refuse_gate(ids)
    try:
        envelope.work(ids, step)
    except (StoreUnavailable, DatabaseUnavailable) as error:  # either may be back, and the orders did not fail
        envelope.give_up(ids, error)
    except POOLS_TROUBLE as error:
        if not envelope.has_begun(ids):
            raise
        envelope.give_up(ids, error)
    envelope.put_off()
    return envelope.report


class _Envelope:
    """The processing of one envelope."""

    def __init__(self, pool: Pool, gate: OrderDatabase | None, store_with: StoreWith | None, terms: WorkTerms) -> None:
        self._pool = pool
        self._gate = gate
        self._store_with = store_with
        self.has_gate = gate is not None
        self._terms = terms
        self.begun: dict[str, BegunOrder] = {}
        self._failed: dict[str, tuple[str, bool, float]] = {}
        """Order id -> why it failed, whether that counts, and seconds until the next try."""
        self._sequence = 0
        """The pool's highest change that the database knew of when it confirmed the orders."""
        self._left: tuple[str, ...] = ()
        """Orders whose step failed; kept until they are put off, or another worker would count them again."""
        self._until = 0.0
        """Local time until which the orders are certainly this worker's."""
        self._lost: frozenset[str] = frozenset()
        """Orders that no longer belonged to this worker at the last check."""
        self._stepless: frozenset[str] = frozenset()
        """Orders that the database has decided: no step is called with them."""
        self.report = EnvelopeReport()

    @cached_property
    def _holder_id(self) -> str:
        """Return this worker's id for this message; most orders are confirmed without it."""
        return uuid4().hex

    def refuse_gate(self, ids: Sequence[str]) -> EnvelopeReport:
        """Put off orders that this worker cannot decide; those that are others' to decide are left alone."""
        if self._gate is not None:
            raise PoolNotGated(self._pool.sku)
        self._pool.store.execute(op.CheckAssignment(self._pool.sku, self._terms.assignment))
        self._put_off_reopened(ids)
        self.put_off()
        return self.report

    def _put_off_reopened(self, ids: Iterable[str]) -> None:
        """Put off orders of a pool that was opened again, with a gate or without one; the next call asks which."""
        self._pool.is_gated(again=True)
        reason = "the pool has no gate any more" if self.has_gate else GATED
        for order_id in tuple(ids):
            self.begun.pop(order_id, None)
            self._failed[order_id] = (reason, False, LATER)

    def work(self, ids: tuple[str, ...], step: Callable[[BegunOrder], None] | None) -> None:
        """Process the orders as far as possible. Raises StoreUnavailable."""
        if self._gate is None and step is None and self._pool not in _DECIDING:
            ids = self.confirm_at_once(ids)
        if ids:
            self.take(ids, asks=step is not None)
        if self.begun:
            every = min(self._terms.work_ms, self._terms.ttl_ms) / 3_000  # a step or the database may take long
            is_long = step is not None or self._gate is not None
            with Renewal(self._renew, self._pool.store, every=every) if is_long else nullcontext():
                self.run(step)
                self.finish()

    def give_up(self, ids: Iterable[str], error: SegmentedError) -> None:
        """Put off undecided orders; a lost answer may have begun them."""
        done = {one.order_id for one in self.report.settled}
        for order_id in ids:
            if order_id not in done:
                self._failed.setdefault(order_id, (told(error), False, LATER))
        self.begun.clear()

    def has_begun(self, ids: tuple[str, ...]) -> bool:
        """Return whether work on any order was begun: a large envelope is taken in steps, and the last one may fail."""
        with suppress(SegmentedError):
            return bool(self.begun or self._renewed(ids))
        return False

    def confirm_at_once(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Confirm orders whose units were taken at acceptance, in one script. Returns those that need more work."""
        left = []
        for order_id, answer in zip(ids, self._settle("confirmed", ids, holder_id=None, idle=True), strict=True):
            if isinstance(answer, Settled):
                self.report.settled.append(answer)
            elif isinstance(answer, OrderUnknown):
                self.report.unknown.append(order_id)
            elif isinstance(answer, OrderQueued):
                left.append(order_id)
            elif answer is None:
                self.report.in_hand.append(order_id)
            elif isinstance(answer, PoolGated):
                self._put_off_reopened([order_id])
            else:
                self._failed[order_id] = (str(answer), True, RETRY_FIRST)
        if len(left) == len(ids):
            _DECIDING.add(self._pool)
        return tuple(left)

    def take(self, ids: tuple[str, ...], *, asks: bool) -> None:
        """Begin work, under one segment's lock if an order needs one, on orders that no earlier epoch sold.

        With `asks` the database is asked first, so that no step is called with an order that it has decided.
        """
        for _ in range(REBUILDS_MAX):
            ids = self._undecided(ids, asks=asks)
            if not ids:
                return
            try:
                self._take(ids)
            except EpochEnded as ended:  # the pool was rebuilt since this process asked for its epoch
                self._pool.epoch(at_least=ended.epoch)
            else:
                return

    def _undecided(self, ids: tuple[str, ...], *, asks: bool) -> tuple[str, ...]:
        """Return the orders that no earlier epoch sold and the pool has not forgotten; the others are settled."""
        if self._gate is None:
            return ids
        decided, self._stepless = end_unknown(self._pool, self._gate, ids, asks=asks)
        self.report.settled += decided.values()
        return tuple(order_id for order_id in ids if order_id not in decided)

    def _take(self, ids: tuple[str, ...]) -> None:
        if self._gate is not None:
            settle_due(self._pool, self._gate)  # before: a refusal of a submitted order is final
        terms = self._terms
        times = (terms.ttl_ms, terms.hold_ms, terms.work_ms, terms.begun_max)
        since = (self._pool.tokens_above, None if self._gate is None else self._pool.epoch())
        operation = op.TakeOrders(self._pool.sku, ids, self._holder_id, *times, *since, assignment=terms.assignment)
        channel, store = shard_keys(self._pool.sku).freed, self._pool.store
        plan = partial(take_plan, operation, channel, in_seconds(terms.segment_timeout))
        taken, asked_at = when_verified(self._pool, self._gate, lambda: run_sync(plan(), store))
        self._until = asked_at + terms.work_ms / 1000 * TRUSTED
        if taken is None:
            waiting = tuple(Busy(order_id, 0, None) for order_id in ids)
            taken = TakenOrders(waiting, None, self._pool.epoch(), is_gated=self.has_gate)
        for order_id, answer in zip(ids, taken.orders, strict=True):
            self._note(order_id, answer)
        if taken.is_gated != self.has_gate:
            self._put_off_reopened(self.begun)

    def _note(self, order_id: str, answer: object) -> None:
        match answer:
            case BegunOrder():
                self.begun[order_id] = answer
                if answer.fencing_token is None:
                    _DECIDING.discard(self._pool)
            case Settled():
                self.report.settled.append(answer)
            case Busy(is_in_hand=True):
                self.report.in_hand.append(order_id)
            case Busy():
                self._failed[order_id] = ("no segment was free", False, LATER)
            case TooManyOthers():
                self.report.alone.append(order_id)
            case Dead():
                self.report.dead.append(order_id)
            case OrderUnknown():
                self.report.unknown.append(order_id)
            case _:
                self._failed[order_id] = (str(answer), True, RETRY_FIRST)

    def run(self, step: Callable[[BegunOrder], None] | None) -> None:
        """Call the step with each order; skips orders that failed or now belong to another worker."""
        if step is None:
            return
        for order in [one for order_id, one in self.begun.items() if order_id not in self._stepless]:
            if not self._is_own(order.order.order_id):
                self.report.in_hand.append(order.order.order_id)
                del self.begun[order.order.order_id]
                continue
            try:
                step(order)
            except Decline as declined:
                self._decline(order, declined)
            except Exception as error:  # noqa: BLE001  # an error of a user's step must not affect the envelope
                self._left += (order.order.order_id,)
                self._fail(order, error)

    def _decline(self, order: BegunOrder, declined: Decline) -> None:
        """End the order that its step declined: void in the database first, so that no other worker sells it."""
        order_id, gate = order.order.order_id, self._gate
        if not self._is_own(order_id, asks=True):
            self.report.in_hand.append(order_id)
            del self.begun[order_id]
            return
        try:
            if gate is not None:
                claim = claim_of(self._pool.sku, order)
                taken, asked, why = claim.order.quantity, claim.asked, declined_for(declined)
                voided = gate.void(order_id=order_id, sku=self._pool.sku, quantity=taken, asked=asked, reason=why)
                if isinstance(voided, answers.AlreadyConfirmed):  # by an earlier attempt, which the step outlived
                    self._tell(gate, order, answers.Confirmed(replay=True))
                    return
            settled = self._cancelled(order)
            self.report.settled.append(settled)
            if settled.state == "cancelled":
                self.report.declined[order_id] = declined_for(declined)
            del self.begun[order_id]
        except SegmentedError as error:
            self._left += (order_id,)
            self._fail(order, error)

    def _is_own(self, order_id: str, *, asks: bool = False) -> bool:
        """Return whether the order is still this worker's; an earlier step may have outlasted the work time.

        With `asks`, the pool is asked even if the time is not over by this process's clock.
        """
        if asks or self._pool.store.clock.now() >= self._until:
            try:
                self._renew()
            except StoreUnavailable:
                return False
        return order_id not in self._lost

    def _renew(self) -> None:
        """Extend the time for which the orders are this worker's."""
        asked_at, terms = self._pool.store.clock.now(), self._terms
        ids = tuple(dict.fromkeys((*self.begun, *self._left)))
        if ids:
            self._lost = frozenset(ids) - frozenset(self._renewed(ids))
            self._until = asked_at + terms.work_ms / 1000 * TRUSTED

    def _renewed(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        times = (self._terms.ttl_ms, self._terms.hold_ms, self._terms.work_ms)
        return self._pool.store.execute(op.RenewWork(self._pool.sku, ids, self._holder_id, *times))

    def finish(self) -> None:
        """Store the orders in one transaction, and confirm them in one script."""
        try:
            confirmed = self._stored() if self._gate is not None else tuple(self.begun)
        except StoreError as error:  # it concerns all of them, so no order failed
            self.give_up(tuple(self.begun), error)
            return
        if not confirmed:
            return
        try:
            answers_now = self._settle("confirmed", confirmed, self._holder_id, decided=self._gate is not None)
        except StoreError as error:  # it may have succeeded: then there is nothing to put off
            for order_id in confirmed:
                self._fail(self.begun[order_id], error)
            return
        freeze_if_behind(self._pool, self.begun[confirmed[0]].epoch, self._sequence, answers_now)
        for order_id, answer in zip(confirmed, answers_now, strict=True):
            if isinstance(answer, EpochEnded) and self._gate is not None:
                self._tell(self._gate, self.begun[order_id], answers.Confirmed(replay=True))
                continue
            order = self.begun.pop(order_id)
            if isinstance(answer, Settled):
                self.report.settled.append(answer)
            else:
                self._fail(order, answer or StoreUnavailable("it was not confirmed"))

    def _stored(self) -> tuple[str, ...]:
        """Return the orders that the database has confirmed; other answers are passed to the pool one by one."""
        gate, sku = self._gate, self._pool.sku
        assert gate is not None  # for the type checker
        begun = list(self.begun.values())
        confirmed = []
        claims = [claim_of(sku, order) for order in begun]
        for order, answer in zip(begun, gate.confirm_many(claims, store_with=self._store_with), strict=True):
            if isinstance(answer, answers.Confirmed) and not (answer.replay and self._may_be_decided(order)):
                confirmed.append(order.order.order_id)
                self._sequence = max(self._sequence, answer.sequence)
            else:
                self._tell(gate, order, answer)
        return tuple(confirmed)

    def _may_be_decided(self, order: BegunOrder) -> bool:
        """Return whether the database may have sold the order before its units were taken."""
        return order.epoch > 1 or may_have_forgotten(self._pool)

    def _tell(self, gate: OrderDatabase, order: BegunOrder, answer: answers.ConfirmAnswer | SegmentedError) -> None:
        order_id = order.order.order_id
        if isinstance(answer, answers.Superseded):
            self._pool.note_token(answer.fence)
            self._fail(order, TryLater("a later holder of its segment reached the database first", seconds=RETRY_FIRST))
            return
        try:
            if isinstance(answer, answers.SoldOut) and lower_changed(self._pool, gate, order.epoch):
                self._fail(order, TryLater("another order had units that it has given back", seconds=RETRY_FIRST))
                return
            if isinstance(answer, OrderMismatch):  # it can never be stored with the pool's content
                self.report.settled.append(self._cancelled(order))
            elif isinstance(answer, SegmentedError):
                raise answer
            else:
                told = tell_pool(self._pool, gate, order.order, answer, epoch=order.epoch, holder_id=self._holder_id)
                self.report.settled.append(told)
            del self.begun[order_id]
        except SegmentedError as error:
            self._fail(order, error)

    def _cancelled(self, order: BegunOrder) -> Settled:
        holder_id = None if order.fencing_token is None else self._holder_id  # taken at acceptance: it has no holder
        is_decided = self._gate is not None
        (answer,) = self._settle("cancelled", (order.order.order_id,), holder_id, decided=is_decided)
        if isinstance(answer, Settled):
            return answer
        raise answer or StoreUnavailable("another worker has it")

    def _fail(self, order: BegunOrder, error: BaseException) -> None:
        order_id = order.order.order_id
        self.begun.pop(order_id, None)
        reason = told(error)
        if isinstance(error, PoolGated):
            self._put_off_reopened([order_id])
        elif isinstance(error, TryLater):
            self._failed[order_id] = (reason.partition(": ")[2], False, error.seconds)
        elif isinstance(error, (StoreUnavailable, DatabaseUnavailable, *POOLS_TROUBLE)):
            self._failed[order_id] = (reason, False, LATER)
        else:
            self._failed[order_id] = (reason, True, min(RETRY_MOST, RETRY_FIRST * 2 ** (order.begun - 1)))

    def put_off(self) -> None:
        """Put off unfinished orders, those with the same reason in one step."""
        groups: dict[tuple[str, bool, float], list[str]] = {}
        for order_id, why in self._failed.items():
            groups.setdefault(why, []).append(order_id)
        for (reason, counts, seconds), ids in groups.items():
            delay_ms, terms = milliseconds(seconds, "seconds"), self._terms
            head = (self._pool.sku, tuple(ids), self._holder_id, delay_ms)
            operation = op.PutOff(*head, counts, terms.begun_max, reason, terms.hold_ms)
            self._pool.store.execute(operation)
            self.report.put_off |= dict.fromkeys(ids, reason)

    def _settle(
        self,
        state: Literal["confirmed", "cancelled"],
        ids: Sequence[str],
        holder_id: str | None,
        *,
        decided: bool = False,
        idle: bool = False,
    ) -> list[Settled | SegmentedError | None]:
        epoch = next((order.epoch for order in self.begun.values()), None) if decided else None
        sku, worker = self._pool.sku, self._terms.assignment
        operation = op.SettleMany(sku, state, tuple(ids), decided, holder_id, idle, epoch=epoch, assignment=worker)
        return list(when_verified(self._pool, self._gate, lambda: self._pool.store.execute(operation)))
