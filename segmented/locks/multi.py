"""`MultiLock`: several names at once, all or none.

The names are sorted, without repeats, and acquired in that order, as Havender proposed against deadlock ("Avoiding
deadlock in multitasking systems", 1968): a waiter for a name holds only names before it, so MultiLocks cannot wait for
each other in a circle. First one batch asks for all names; if one of them is held, the names that were acquired are
released, and only then does the lock wait for them, one by one.

While it waits for one name, it renews those that it holds every third of their time to live. If one is lost anyway (the
process was paused, or an operator revoked it), it releases all and starts over within the same deadline: waiting for a
name while holding a later one could close a circle.

Each name is its own `Lock` in its own hash slot: no script spans them, and on a cluster they may be on different
servers. `Lock` and `MultiLock` exclude each other on a name.

Guarantees: those of `Lock` for each name; nothing is held after an acquire that raised or a `try_acquire` that returned
None; no deadlock between MultiLocks. Not guaranteed: that all are taken at one instant. A failing attempt may hold a
name for a round trip, and while the lock waits for one name, it holds the earlier ones. A caller that holds a lease and
acquires another can still deadlock: put all the names into one MultiLock.
"""

from __future__ import annotations

from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from segmented.errors import (
    AcquireTimeout,
    InvalidInput,
    LeaseLost,
    LockUnreachable,
    PartlyReleased,
    SegmentedError,
    StoreBusy,
    StoreUnavailable,
)
from segmented.locks.blocks import AsyncEntered, Blocks, Entered, StaysInItsProcess
from segmented.locks.claim import new_holder_id
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_lock_name, checked_timeout, milliseconds
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, Acquiring, Found, acquire_plan
from segmented.locks.hints import Hinted
from segmented.locks.keeper import LapsesWhenDropped, async_release_later, release_later
from segmented.locks.lease import AsyncWatched, Watched
from segmented.locks.lease_state import RENEWALS_PER_TTL, RETRIES_PER_TTL, LeaseState, Renewal, trusted_until
from segmented.locks.lock import LockClaim
from segmented.locks.unreachable import waited_out, waits_out
from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.plans import Batch, Now, Park, Plan, perform, run_async, run_sync, substituted
from segmented.plans.store_kinds import checked_async, checked_sync
from segmented.plans.waiting import ATTEMPT_SECONDS, UNDO_SECONDS
from segmented.process import THIS
from segmented.protocol.lock import NEWCOMER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from segmented.clock import Clock, Duration
    from segmented.plans.drivers import AsyncStore, Store

ReleaseAnswers = list["Released | Lost | SegmentedError"]


class Part(LeaseState):
    """The lease of one of the names."""

    def __init__(self, claim: LockClaim, found: Found, clock: Clock) -> None:
        acquired, asked_at = found
        super().__init__(claim, acquired, asked_at, clock)
        self.fencing_token = acquired.fencing_token


class MultiLeaseState(Hinted, StaysInItsProcess, LapsesWhenDropped):
    """The state of sync and async leases. `acquire` creates it; it is usable in the process that acquired it."""

    def __init__(self, claims: Sequence[LockClaim], found: Sequence[Found], renewal: Renewal, clock: Clock) -> None:
        """Create the state of granted `claims`."""
        self._process_id = THIS.process_id
        self._parts = [Part(claim, one, clock) for claim, one in zip(claims, found, strict=True)]
        for part in self._parts:
            part.keep_renewed(renewal)
        self.names = tuple(part.name for part in self._parts)
        self.name = ", ".join(self.names)
        self.fencing_tokens: Mapping[str, int] = MappingProxyType(
            {part.name: part.fencing_token for part in self._parts}
        )
        """The fencing token of each name; give a resource the token of the name that protects it."""

    @property
    def holder_id(self) -> str:
        """Return the holder's id, the same for all names. Another process may adopt the leases with it."""
        (found,) = {part.holder_id for part in self._parts}
        return found

    @property
    def trusted_until(self) -> float:
        """Return the local time until which all leases may be trusted: the earliest end."""
        return min(part.trusted_until for part in self._parts)

    @property
    def has_ended(self) -> bool:
        """Return whether every name was released."""
        return all(part.has_ended for part in self._parts)

    @property
    def is_lost(self) -> bool:
        """Return whether the holder knows that it no longer holds one of the names."""
        return any(part.is_lost for part in self._parts)

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act on the lease."""
        return all(part.is_trusted for part in self._parts)

    def remaining(self) -> float:
        """Return the seconds for which all names may still be trusted, or 0 if one has ended."""
        return min(part.remaining() for part in self._parts)

    def require(self) -> None:
        """Raise LeaseLost, with the lost name, unless all may be trusted now. Call it before each protected step."""
        for part in self._parts:
            part.require()

    def _states(self) -> Sequence[LeaseState]:
        return self._parts

    def call_when_lost(self, callback: Callable[[], None]) -> bool:
        """Note a callback and return True; if one of the names is already lost, call it and return False."""
        waiting = [callback]

        def once() -> None:
            try:
                first = waiting.pop()
            except IndexError:  # already called for another name
                return
            first()

        return all(part.call_when_lost(once) for part in self._parts)

    def _renewing(self, ttl: Duration | None) -> Plan[None]:
        self.require()
        ttl_ms = self._parts[0].ttl_ms if ttl is None else milliseconds(ttl, "ttl")
        asked_at = yield from perform(Now())
        operations = tuple(part.claim.renewing(ttl_ms) for part in self._parts)
        for part in self._parts:
            part.begin_renewal(ttl_ms, asked_at)
        try:
            answers = yield from perform(Batch(operations, self.trusted_until))
        except BaseException:
            for part in self._parts:
                part.note_unanswered_renewal()
            raise
        for part, answer in zip(self._parts, answers, strict=True):
            if isinstance(answer, SegmentedError):
                part.note_unanswered_renewal()
            else:
                part.note_renewal(answer, asked_at)
        for answer in answers:
            if isinstance(answer, SegmentedError):
                raise answer
        self.require()

    def _releasing(self) -> Plan[None]:
        self._require_own_process()
        pending = [part for part in self._parts if not part.has_ended]
        if not pending:
            return
        deadline = max(part.release_deadline() for part in pending)
        for part in pending:
            part.note_release_asked()
        answers = yield from perform(Batch(tuple(part.claim.releasing() for part in pending), deadline))
        self._note_releases(pending, answers)

    def _note_releases(self, pending: Sequence[Part], answers: ReleaseAnswers) -> None:
        failures: dict[str, SegmentedError] = {}
        lost: dict[str, SegmentedError] = {}
        for part, answer in zip(pending, answers, strict=True):
            if isinstance(answer, SegmentedError):
                failures[part.name] = answer
                continue
            try:
                part.note_release(answer)
            except LeaseLost as error:
                lost[part.name] = error
        if len(failures) == len(pending):  # for example, the server is unreachable
            raise next(iter(failures.values()))
        if failures:
            raise PartlyReleased(failures | lost)
        if lost:
            raise LeaseLost(", ".join(lost), self._parts[0].claim.holder_id)

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "ended" if self.has_ended else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} {state}>"


class AsyncMultiLease(AsyncWatched, MultiLeaseState):
    """Several names held together, for asyncio. An `async with` statement releases them all.

    The lease is lost as soon as one of the names is.
    """

    def __init__(
        self, store: AsyncStore, claims: Sequence[LockClaim], found: Sequence[Found], renewal: Renewal
    ) -> None:
        """Create the lease of claims that `store` granted."""
        self._store = store
        super().__init__(claims, found, renewal, store.clock)
        if renewal.is_wanted:
            self._watch()

    async def renew(self, *, ttl: Duration | None = None) -> None:
        """Extend all names to `ttl` seconds from now (default: as acquired). Raises LeaseLost if it is too late.

        If one cannot be renewed for another reason, that error is raised, and the others are renewed.
        """
        await run_async(self._renewing(ttl), self._store)
        if self._is_watched:
            self._watch()

    async def release(self) -> None:
        """Release every name, even if one fails; calling it again does nothing, or retries those that failed.

        A release that fails, or is cancelled, is repeated in the background until the leases have ended.
        Raises LeaseLost with the names that had already ended, and PartlyReleased if some could not be released.
        """
        try:
            await run_async(self._releasing(), self._store)
        except GeneratorExit:  # asyncio only: closed from outside, and no task could repeat it
            raise
        except BaseException as failure:
            self.release_later(failure)
            raise
        finally:
            self._discard_ended()


OutcomeT = TypeVar("OutcomeT")


class _Names(Hinted):
    """The ordered names, time to live and renewal of a multi-lock."""

    def __init__(self, names: Iterable[str], *, ttl: Duration, renew: bool, renew_max: Duration) -> None:
        if isinstance(names, str):
            raise InvalidInput(f"the names of a multi-lock are several texts, not one: {names!r}")
        self.names = tuple(sorted({checked_lock_name(name) for name in names}))
        if not self.names:
            raise InvalidInput("a multi-lock needs at least one name")
        self.ttl_ms = milliseconds(ttl, "ttl")
        self._renewal = Renewal(renew, milliseconds(renew_max, "renew_max") / 1000)

    def _claims(self) -> list[LockClaim]:
        holder_id = new_holder_id()
        return [LockClaim(name, holder_id, self.ttl_ms) for name in self.names]

    def __repr__(self) -> str:
        renewed = ", renew=True" if self._renewal.is_wanted else ""
        return f"{type(self).__name__}({list(self.names)!r}, ttl={self.ttl_ms / 1000:g}{renewed})"


class AsyncMultiLock(AsyncEntered[AsyncMultiLease], _Names):
    """A lock on several names at once, for asyncio."""

    _is_exclusive = True

    def __init__(
        self,
        store: AsyncStore,
        names: Iterable[str],
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock on all `names` on `store`, given in any order; a lease lives `ttl` seconds unless renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(names, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_async(store, type(self).__name__)
        self._blocks = Blocks[AsyncMultiLease]()

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Acquiring[AsyncMultiLease]:
        """Wait up to `timeout` seconds for all names together (default: 60; None: forever) and return the lease.

        Raises AcquireTimeout, which names the one that was not free; then no name is held. Use it as
        `lease = await lock.acquire()`, or as `async with lock.acquire() as lease`.
        """
        return Acquiring(self, checked_timeout(timeout))

    async def _acquired(self, timeout: float | None) -> AsyncMultiLease:
        claims = self._claims()
        try:
            found = await run_async(multi_plan(claims, timeout), self._store)
        except LockUnreachable:
            for claim in claims:
                async_release_later(claim, self._store)
            raise
        lease = AsyncMultiLease(self._store, claims, found, self._renewal)
        lease.blocks = self._blocks
        return lease


class _Slipped(Exception):
    """Raised when a held name was lost."""


def multi_plan(claims: Sequence[LockClaim], timeout: float | None) -> Plan[list[Found]]:
    """Acquire all `claims`, in order, within `timeout` seconds in all (None: forever; 0: one try).

    Raises AcquireTimeout, which names the one that was not free; nothing is left behind. Tries again until the deadline
    while the store cannot be reached, as one lock does.
    """
    began_at = yield from perform(Now())
    try:
        return (yield from _while_reachable(claims, timeout))
    except LockUnreachable as error:
        if not waits_out(error.name, timeout):
            raise
        failed = error
    again = partial(_while_reachable, claims)
    return (yield from waited_out(again, failed, channel=claims[0].channel, began_at=began_at, timeout=timeout))


def _while_reachable(claims: Sequence[LockClaim], timeout: float | None) -> Plan[list[Found]]:
    deadline = inf if not timeout else (yield from perform(Now())) + timeout
    while True:
        found = yield from _all_at_once(claims, deadline, will_wait=timeout != 0)
        if isinstance(found, list):
            return found
        if timeout == 0:
            raise found
        try:
            return (yield from _in_order(claims, timeout, deadline))
        except _Slipped:
            continue


def _all_at_once(
    claims: Sequence[LockClaim], deadline: float, *, will_wait: bool
) -> Plan[list[Found] | AcquireTimeout]:
    """Ask for all in one batch; if one is held, release the others and return an error that names the held one.

    A caller that will wait has the turns of a newcomer, so that processes which wait for one of the names have theirs.
    """
    asked_at = yield from perform(Now())
    try:
        within = max(deadline, asked_at + ATTEMPT_SECONDS)
        answers = yield from perform(
            Batch(tuple(claim.acquiring_in_line(NEWCOMER if will_wait else "") for claim in claims), within)
        )
    except GeneratorExit:  # the process is ending and cleans nothing up
        raise
    except BaseException:
        yield from _given_back(claims, deadline)
        raise
    found = [(answer, asked_at) for answer in answers if isinstance(answer, Acquired)]
    if len(found) == len(claims):
        if (yield from perform(Now())) < min(trusted_until(asked_at, answer.ttl_ms) for answer, _ in found):
            return found
        yield from _given_back(claims, deadline)
        raise LeaseLost(claims[0].name, claims[0].holder_id)
    asked = list(zip(claims, answers, strict=True))
    yield from _given_back([claim for claim, answer in asked if not isinstance(answer, Held)], deadline)
    for claim, answer in asked:
        if isinstance(answer, StoreUnavailable) and not isinstance(answer, StoreBusy):
            raise LockUnreachable(claim.name, str(answer)) from answer
        if isinstance(answer, SegmentedError):
            raise answer
    name, held = next((claim.name, answer) for claim, answer in asked if isinstance(answer, Held))
    return AcquireTimeout(name, 0.0, is_delayed=held.is_delayed)


def _in_order(claims: Sequence[LockClaim], timeout: float | None, deadline: float) -> Plan[list[Found]]:
    """Wait for one name after the other, holding those before it."""
    held = _Held(claims[0].ttl_ms / 1000)
    try:
        for claim in claims:
            left = None if timeout is None else max(0.0, deadline - (yield from perform(Now())))
            held.add(claim, (yield from _tended(acquire_plan(claim, left, is_patient=False), held)))
        if held.renew_at <= (yield from perform(Now())):
            yield from held.tend()
    except GeneratorExit:
        raise
    except BaseException as error:
        yield from _given_back(list(held.found), deadline)
        if isinstance(error, AcquireTimeout):
            raise AcquireTimeout(error.name, timeout or 0.0, is_delayed=error.is_delayed) from None
        raise
    return list(held.found.values())


class _Held:
    """The names that a plan has acquired so far, and when they must be renewed."""

    def __init__(self, ttl: float) -> None:
        """Create an empty record of names that live `ttl` seconds."""
        self.found: dict[LockClaim, Found] = {}
        self.renew_at = inf
        self._ttl = ttl

    def add(self, claim: LockClaim, found: Found) -> None:
        """Note another acquired name."""
        self.found[claim] = found
        self.renew_at = min(self.renew_at, found[1] + self._ttl / RENEWALS_PER_TTL)

    def tend(self) -> Plan[None]:
        """Renew all. Raises _Slipped if one is lost or may no longer be trusted."""
        asked_at = yield from perform(Now())
        trusted = self._trusted_until()
        operations = tuple(claim.renewing(claim.ttl_ms) for claim in self.found)
        answers = yield from perform(Batch(operations, trusted))
        for (claim, (acquired, _)), answer in zip(list(self.found.items()), answers, strict=True):
            if isinstance(answer, Lost):
                raise _Slipped
            if isinstance(answer, Renewed):
                self.found[claim] = (acquired, asked_at)
        if self._trusted_until() <= (yield from perform(Now())):
            raise _Slipped
        is_renewed = all(isinstance(answer, Renewed) for answer in answers)
        self.renew_at = asked_at + self._ttl / (RENEWALS_PER_TTL if is_renewed else RETRIES_PER_TTL)

    def _trusted_until(self) -> float:
        return min(trusted_until(asked_at, acquired.ttl_ms) for acquired, asked_at in self.found.values())


def _tended(plan: Plan[OutcomeT], held: _Held) -> Plan[OutcomeT]:
    """Run a plan, but wake from its sleep to renew the held names when due, without leaving the queue."""
    return substituted(plan, lambda effect: _parked(effect, held) if isinstance(effect, Park) else perform(effect))


def _parked(park: Park, held: _Held) -> Plan[bool]:
    while True:
        if (yield from perform(Park(park.place, park.due, min(park.deadline, held.renew_at)))):
            return True
        if park.deadline <= (yield from perform(Now())):
            return False
        yield from held.tend()


def _given_back(claims: Sequence[LockClaim], deadline: float) -> Plan[None]:
    if claims:  # a failure is ignored: a lease that was not released expires
        soon = (yield from perform(Now())) + UNDO_SECONDS
        yield from perform(Batch(tuple(claim.releasing() for claim in claims), max(deadline, soon)))


# --- For threads: written by `make sync` from the classes above. ---


class MultiLease(Watched, MultiLeaseState):
    """Several names held together, for threads. A `with` statement releases them all.

    The lease is lost as soon as one of the names is.
    """

    def __init__(self, store: Store, claims: Sequence[LockClaim], found: Sequence[Found], renewal: Renewal) -> None:
        """Create the lease of claims that `store` granted."""
        self._store = store
        super().__init__(claims, found, renewal, store.clock)
        if renewal.is_wanted:
            self._watch()

    def renew(self, *, ttl: Duration | None = None) -> None:
        """Extend all names to `ttl` seconds from now (default: as acquired). Raises LeaseLost if it is too late.

        If one cannot be renewed for another reason, that error is raised, and the others are renewed.
        """
        run_sync(self._renewing(ttl), self._store)
        if self._is_watched:
            self._watch()

    def release(self) -> None:
        """Release every name, even if one fails; calling it again does nothing, or retries those that failed.

        A release that fails, or is cancelled, is repeated in the background until the leases have ended.
        Raises LeaseLost with the names that had already ended, and PartlyReleased if some could not be released.
        """
        try:
            run_sync(self._releasing(), self._store)
        except BaseException as failure:
            self.release_later(failure)
            raise
        finally:
            self._discard_ended()


class MultiLock(Entered[MultiLease], _Names):
    """A lock on several names at once, for threads."""

    _is_exclusive = True

    def __init__(
        self,
        store: Store,
        names: Iterable[str],
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock on all `names` on `store`, given in any order; a lease lives `ttl` seconds unless renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(names, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_sync(store, type(self).__name__)
        self._blocks = Blocks[MultiLease]()

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> MultiLease:
        """Wait up to `timeout` seconds for all names together (default: 60; None: forever) and return the lease.

        Raises AcquireTimeout, which names the one that was not free; then no name is held. Use it as
        `lease = lock.acquire()`, or as `with lock.acquire() as lease`.
        """
        return self._acquired(checked_timeout(timeout))

    def _acquired(self, timeout: float | None) -> MultiLease:
        claims = self._claims()
        try:
            found = run_sync(multi_plan(claims, timeout), self._store)
        except LockUnreachable:
            for claim in claims:
                release_later(claim, self._store)
            raise
        lease = MultiLease(self._store, claims, found, self._renewal)
        lease.blocks = self._blocks
        return lease
