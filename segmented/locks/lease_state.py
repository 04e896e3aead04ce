"""The state that sync and async leases share. It reads the clock that it gets and sends nothing.

A holder stops trusting its lease before the server ends it: `trusted_until` counts from before the request was sent and
is 1 % and 2 ms shorter than the server's time, for clocks that run at different rates (the allowance of the Redlock
page).
"""

from __future__ import annotations

import itertools
import logging
import threading
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from segmented import events
from segmented.errors import LeaseLost, SegmentedError, StockError, StoreUnavailable
from segmented.locks.blocks import StaysInItsProcess
from segmented.locks.hints import Hinted
from segmented.models import Acquired, Lost, Released, Renewed
from segmented.plans import Batch, Now, Plan, perform
from segmented.process import THIS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.locks.claim import LeaseClaim

DRIFT_RATE = 0.01
DRIFT_SECONDS = 0.002
RENEWALS_PER_TTL = 3
RETRIES_PER_TTL = 20
SLACK_RATE = 0.02
"""Share of the time to live by which a renewal may be early, so that it joins others in one batch."""

RELEASE_SECONDS = 1.0
"""Seconds that a release may take beyond the end of its lease."""
SURE_SECONDS = 22 * 3600.0
"""Age up to which a lease's token is certain to be kept (`FENCE_IDLE_MS`), so that its absence means lost data."""
REPEAT_SECONDS = 0.5
"""Maximum seconds between a keeper's repeats of a release that failed."""
BATCH_SECONDS = 1.0
"""Seconds that a batch of renewals may take: a hanging server must not delay the report of other leases' loss."""

_log = logging.getLogger("segmented.locks")
_numbers = itertools.count()


def trusted_until(asked_at: float, ttl_ms: int) -> float:
    """Return the local time until which a lease asked for at `asked_at` may be trusted."""
    ttl = ttl_ms / 1000
    return asked_at + ttl - ttl * DRIFT_RATE - DRIFT_SECONDS


@dataclass(frozen=True, slots=True)
class Renewal:
    """Whether a keeper renews the lease in the background, and for up to how many seconds."""

    is_wanted: bool
    seconds_max: float


class LeaseState(Hinted, StaysInItsProcess):
    """The holder, the name and the end of a lease. `acquire` creates it; it is usable in the process that acquired it.

    `name` and `holder_id` are texts. Another process needs only these two to take over the lease of a `Lock` with its
    `adopt`. Any client that knows the holder id can release the lease, so keep it secret like a session key.
    """

    has_ended = True
    """Whether the lease was released; until it is complete, there is nothing to release."""

    def __init__(self, claim: LeaseClaim, acquired: Acquired, asked_at: float, clock: Clock) -> None:
        """Create the state of a granted claim, trusted from `asked_at` on `clock`."""
        ttl_ms = acquired.ttl_ms
        self._process_id = THIS.process_id
        self.claim = claim
        self.name = claim.name
        self.ttl_ms = ttl_ms
        self.trusted_until = trusted_until(asked_at, ttl_ms)
        self.number = next(_numbers)
        """Number of the lease in this process, for its keeper."""
        self._clock = clock
        self._is_lost = False
        self._on_lost: list[Callable[[], None]] = []
        self._renew_at = inf
        self._renew_until = asked_at
        self._releases_asked = 0
        self._guard = threading.RLock()
        self._renewals = 0
        """Renewals in progress: the lease's own, and its keeper's."""
        self._soonest_end = inf
        """The soonest end of those and of all that overlapped them: the server may have applied any of them last."""
        self._was_trusted_at_release = False
        self._token = acquired.fencing_token
        self._granted_at = -inf if acquired.replay else asked_at
        """Local time of the grant; -inf for a replay, which may be of an older one."""
        self._release_at = inf
        """Local time at which a keeper repeats a release that failed; inf if none did."""
        self._is_handed_on = False
        self.has_ended = False

    @property
    def holder_id(self) -> str:
        """Return the holder's id. Another process may adopt the lease with it: a drop gives no warning any more."""
        self._is_handed_on = True
        return self.claim.holder_id

    @property
    def is_lost(self) -> bool:
        """Return whether the holder knows, from the server or its own clock, that it no longer holds the lock."""
        if not self.has_ended and not self._is_lost and self._clock.now() >= self.trusted_until:
            self._lose()
        return self._is_lost

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act on the lease; False once it has asked for the release.

        False in a forked child too: the lease stays with the process that acquired it.
        """
        return self._is_in_its_process() and not (self.has_ended or self.is_lost or self._releases_asked)

    @property
    def is_over(self) -> bool:
        """Return whether the lease is released or known to be lost, so that a keeper has nothing to do."""
        return self.has_ended or (self._is_lost and self._release_at == inf)

    def remaining(self) -> float:
        """Return the seconds for which the lease may still be trusted, or 0 if it has ended."""
        return max(0.0, self.trusted_until - self._clock.now()) if self.is_trusted else 0.0

    def require(self) -> None:
        """Raise LeaseLost unless the lease may be trusted now. Call it before each protected step."""
        self._require_own_process()
        if not self.is_trusted:
            raise LeaseLost(self.name, self.claim.holder_id, is_released=self.has_ended and not self._is_lost)

    def next_look(self) -> float:
        """Return the local time at which a keeper must check this lease."""
        return -inf if self.is_over else min(self._renew_at, self._release_at, self.trusted_until)

    def slack(self) -> float:
        """Return the seconds by which a renewal may be early."""
        return self.ttl_ms / 1000 * SLACK_RATE

    def wants_renewal(self, now: float) -> bool:
        """Return whether a renewal is due now, or soon enough to join others."""
        return self._renew_at <= now + self.slack()

    def keep_renewed(self, renewal: Renewal) -> None:
        """Ask for renewals every third of the time to live, until the release, the loss, or the limit."""
        if renewal.is_wanted:
            self._renew_until += renewal.seconds_max
            self._plan_renewal(self.trusted_until - self.ttl_ms / 1000)

    def renewing(self, ttl_ms: int) -> Plan[None]:
        """Renew now, independently of a keeper."""
        asked_at = yield from perform(Now())
        self.begin_renewal(ttl_ms, asked_at)
        try:
            answer = yield from perform(self.claim.renewing(ttl_ms))
        except BaseException:
            self.note_unanswered_renewal()
            raise
        self.note_renewal(answer, asked_at)

    def begin_renewal(self, ttl_ms: int, asked_at: float) -> None:
        """Note a renewal that is about to be sent. Call one of the `note_...renewal` methods after it."""
        with self._guard:
            self._renewals += 1
            self._soonest_end = min(self._soonest_end, trusted_until(asked_at, ttl_ms))

    def _end_renewal(self) -> float:
        with self._guard:
            soonest = self._soonest_end
            self._renewals -= 1
            assert self._renewals >= 0, "each renewal that ends has begun"
            if self._renewals == 0:
                self._soonest_end = inf
            return soonest

    def note_renewal(self, answer: Renewed | Lost, asked_at: float) -> None:
        """Note a renewal's answer. An answer that comes too late does not restore a lost lease."""
        soonest = self._end_renewal()
        if isinstance(answer, Lost):
            if not self.has_ended and not self._releases_asked:
                self._lose()
        elif not self.is_lost:
            self.ttl_ms = answer.ttl_ms
            self.trusted_until = soonest
            self._plan_renewal(asked_at)

    def note_unanswered_renewal(self) -> None:
        """Assume that a renewal without an answer was applied: the lease may end at the end it set."""
        self.trusted_until = min(self.trusted_until, self._end_renewal())

    def note_failed_renewal(self, now: float) -> None:
        """Try again soon: the lease is alive until its time is over."""
        self.note_unanswered_renewal()
        renew_at = now + self.ttl_ms / 1000 / RETRIES_PER_TTL
        self._renew_at = renew_at if renew_at <= self._renew_until else inf

    def note_release(self, answer: Released | Lost) -> None:
        """Note a release's answer. Raises LeaseLost if the lease had already ended on its own."""
        if self.has_ended:
            return
        is_lost = isinstance(answer, Lost) and not self._may_be_our_own(answer)
        self.has_ended = True
        if is_lost:
            self._lose()
            raise LeaseLost(self.name, self.claim.holder_id)

    def release_deadline(self) -> float:
        """Return the deadline of a release in local time: shortly after the lease ends on its own."""
        return max(self.trusted_until, self._clock.now()) + RELEASE_SECONDS

    def note_release_asked(self) -> float:
        """Stop renewals, and note whether the lease was still alive: a reply may be lost from now on.

        Returns the deadline of the release.
        """
        self._renew_at, self._renew_until = inf, -inf  # after a failed release the lock must not be renewed
        if self._releases_asked == 0:
            self._was_trusted_at_release = self.is_trusted
        self._releases_asked += 1
        return self.release_deadline()

    def owe_release(self, *, at_once: bool = False) -> bool:
        """Let a keeper repeat a release that failed, until the server has ended the lease on its own.

        Do so `at_once` if the store may well answer. Returns whether a keeper must watch the lease for that.
        """
        if self.has_ended or not self._is_in_its_process():
            return False
        if not self._releases_asked:  # an exception came first
            self.note_release_asked()
        at = self._clock.now() + (0 if at_once else min(REPEAT_SECONDS, self.ttl_ms / 1000 / RETRIES_PER_TTL))
        self._release_at = at if at < self.trusted_until else inf
        return True

    def owes_release(self, now: float) -> bool:
        """Return whether a failed release is to be repeated now."""
        return self._release_at <= now and not self.has_ended

    def note_repeated_release(self, answer: Released | Lost | SegmentedError) -> None:
        """Note the answer to a keeper's repeat of the release."""
        if isinstance(answer, SegmentedError) and not isinstance(answer, StockError):
            self.owe_release()
        else:  # the holder has heard of its failed release, and nothing is left to tell it
            self._release_at, self.has_ended = inf, True

    @property
    def is_owing(self) -> bool:
        """Return whether a keeper must release the lease."""
        return self._release_at < inf

    @property
    def is_release_asked(self) -> bool:
        """Return whether a release was asked for, even without an answer."""
        return self._releases_asked > 0

    def note_dropped(self) -> bool:
        """Stop renewals: the handle is gone. Return whether it still held the lease.

        The lease ends on its own. Runs in a finalizer: it calls no callback.
        """
        if self.has_ended or self._is_handed_on or not self._is_in_its_process():
            return False
        if self._is_lost or self._clock.now() >= self.trusted_until:
            return False
        self._on_lost = []
        self._renew_at, self._renew_until = inf, -inf
        return True

    def _may_be_our_own(self, answer: Lost) -> bool:
        # "Gone" after a lost reply: the lease was alive when we first asked, so our own release ended it, unless the
        # store says otherwise: it revoked our very lease, or it lost its data.
        if answer.revoked_token is not None and answer.revoked_token == self._token:
            return False
        if answer.is_forgotten and self._clock.now() < self._granted_at + SURE_SECONDS:
            return False
        return self._was_trusted_at_release and (answer.is_unsure or self._releases_asked > 1)

    def _plan_renewal(self, asked_at: float) -> None:
        renew_at = asked_at + self.ttl_ms / 1000 / RENEWALS_PER_TTL
        self._renew_at = renew_at if renew_at <= self._renew_until else inf

    def call_when_lost(self, callback: Callable[[], None]) -> bool:
        """Note a callback and return True; if the lease is already lost, call it and return False."""
        self._on_lost.append(callback)  # before checking: the keeper may find the loss at this moment
        if not self.is_lost:
            return True
        try:
            self._on_lost.remove(callback)
        except ValueError:  # the keeper has already called it
            return False
        callback()
        return False

    def _lose(self) -> None:
        if not self._is_lost:
            events.count("segmented.lease.losses", 1, (self.claim.kind,))
        self._is_lost = True
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            try:
                callback()
            except BaseException:  # noqa: BLE001  # a callback's error must not end the keeper of all other leases
                _log.exception("lease.callback_failed", extra={"lock": self.name})

    def _described(self) -> str:
        return self.claim.mode

    def __repr__(self) -> str:
        """Return the name and the state, without the holder id, since that proves ownership."""
        state = "lost" if self._is_lost else "ended" if self.has_ended else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} {self._described()} {state}>"


def owed_release(claim: LeaseClaim, clock: Clock) -> LeaseState:
    """Return a lease that a call may have taken, and that nobody uses, for the keeper that releases it.

    It does so at once, or as soon as the store answers, unless the lease has ended by then.
    """
    owed = LeaseState(claim, Acquired(0, claim.ttl_ms, replay=False), clock.now(), clock)
    owed.owe_release(at_once=True)
    return owed


def tend_plan(leases: Sequence[LeaseState]) -> Plan[None]:
    """Do a keeper's work for the leases that are due: renew them and repeat failed releases, or find losses."""
    asked_at = yield from perform(Now())
    living = [lease for lease in leases if lease.is_trusted and lease.wants_renewal(asked_at)]
    owing = [lease for lease in leases if lease.owes_release(asked_at)]
    if not living and not owing:
        return
    operations = (
        *(lease.claim.renewing(lease.ttl_ms) for lease in living),
        *(lease.claim.releasing() for lease in owing),
    )
    deadline = min([asked_at + BATCH_SECONDS, *(lease.trusted_until for lease in living)])
    for lease in living:
        lease.begin_renewal(lease.ttl_ms, asked_at)
    try:
        answers: list[Any] = yield from perform(Batch(operations, deadline))
    except Exception:  # noqa: BLE001  # a reply that nobody can read must not end the keeper of all other leases
        _log.exception("lease.reply_unreadable")
        answers = [StoreUnavailable("the reply was unreadable")] * len(operations)
    except BaseException:
        for lease in living:
            lease.note_unanswered_renewal()
        raise
    for lease, answer in zip(living, answers, strict=False):
        if isinstance(answer, SegmentedError):
            lease.note_failed_renewal(asked_at)
        else:
            lease.note_renewal(answer, asked_at)
    for lease, answer in zip(owing, answers[len(living) :], strict=True):
        lease.note_repeated_release(answer)
