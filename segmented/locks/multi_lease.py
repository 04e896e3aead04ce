"""The leases of a `MultiLock`: several names that are held, and lost, together.

Underneath, each name has a lease with its own end. A keeper renews them in one batch, since they are due together.
"""

from __future__ import annotations

import asyncio
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING

from segmented.errors import LeaseLost, PartlyReleased, SegmentedError
from segmented.locks.dropped import LapsesWhenDropped
from segmented.locks.durations import milliseconds
from segmented.locks.hints import LEASE_HINTS, Hinted
from segmented.locks.keeper import async_keeper, thread_keeper
from segmented.locks.lease_manners import CancelScope, EndsWithItsAsyncBlock, EndsWithItsBlock, StaysInItsProcess
from segmented.locks.lease_state import LeaseState
from segmented.plans import Batch, Now, Plan, perform, run_async, run_sync
from segmented.process import THIS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segmented.clock import Clock, Duration
    from segmented.locks.handle import Found
    from segmented.locks.lease_state import Renewal
    from segmented.locks.lock import LockClaim
    from segmented.models import Lost, Released
    from segmented.plans.drivers import AsyncStore, Store

ReleaseAnswers = list["Released | Lost | SegmentedError"]


class Part(LeaseState):
    """The lease of one of the names."""

    def __init__(self, claim: LockClaim, found: Found, clock: Clock) -> None:
        """Create the lease of one granted claim."""
        acquired, asked_at = found
        super().__init__(claim, acquired, asked_at, clock)
        self.fencing_token = acquired.fencing_token


class MultiLeaseState(Hinted, StaysInItsProcess):
    """The state of sync and async leases. `acquire` creates it; it is usable in the process that acquired it."""

    _hints = LEASE_HINTS

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

    def _call_when_lost(self, callback: Callable[[], None]) -> bool:
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

    def _owing(self, failure: BaseException) -> list[Part]:
        """Return the names whose release `failure` has ended, which a keeper repeats from now on."""
        return [part for part in self._parts if part.owe_release(at_once=not isinstance(failure, SegmentedError))]

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
        """Return the names and the state."""
        state = "lost" if self.is_lost else "ended" if self.has_ended else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} {state}>"


class MultiLease(EndsWithItsBlock, MultiLeaseState, LapsesWhenDropped):
    """Several names held together, for threads. A `with` statement releases them all.

    The lease is lost as soon as one of the names is.
    """

    def __init__(self, store: Store, claims: Sequence[LockClaim], found: Sequence[Found], renewal: Renewal) -> None:
        """Create the lease of claims that `store` granted."""
        self._store = store
        super().__init__(claims, found, renewal, store.clock)
        self._lost: threading.Event | None = None
        self._is_watched = False
        if renewal.is_wanted:
            self._watch()

    @property
    def lost(self) -> threading.Event:
        """Return the event that is set once one of the names is lost; reading it starts the watch."""
        if self._lost is None:
            self._lost = threading.Event()
            self.on_lost(self._lost.set)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when one of the names is lost, from the keeper, or at once if one is already lost."""
        if self._call_when_lost(callback):
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
            if self._is_watched:
                for part in self._parts:
                    if part.has_ended:
                        thread_keeper(self._store).discard(part)

    def release_later(self, failure: BaseException) -> None:
        """Let the keeper repeat a release that `failure` ended, for the names that are still held."""
        for part in self._owing(failure):
            thread_keeper(self._store).watch(part, self._store)

    def _watch(self) -> None:
        self._is_watched = True
        for part in self._parts:
            thread_keeper(self._store).watch(part, self._store)


class AsyncMultiLease(EndsWithItsAsyncBlock, MultiLeaseState, LapsesWhenDropped):
    """Several names held together, for asyncio; otherwise as `MultiLease`."""

    def __init__(
        self, store: AsyncStore, claims: Sequence[LockClaim], found: Sequence[Found], renewal: Renewal
    ) -> None:
        """Create the lease of claims that `store` granted."""
        self._store = store
        super().__init__(claims, found, renewal, store.clock)
        self._lost: asyncio.Event | None = None
        self._is_watched = False
        if renewal.is_wanted:
            self._watch()

    @property
    def lost(self) -> asyncio.Event:
        """Return the event that is set once one of the names is lost; reading it starts the watch."""
        if self._lost is None:
            self._lost = asyncio.Event()
            self.on_lost(self._lost.set)
        return self._lost

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when one of the names is lost, from the keeper, or at once if one is already lost."""
        if self._call_when_lost(callback):
            self._watch()

    def cancel_scope(self) -> CancelScope:
        """Return a scope for `async with` that cancels its body when a name is lost, and raises LeaseLost."""
        return CancelScope(self)

    async def renew(self, *, ttl: Duration | None = None) -> None:
        """Extend all names to `ttl` seconds from now (default: as acquired). Raises as `MultiLease.renew`."""
        await run_async(self._renewing(ttl), self._store)
        if self._is_watched:
            self._watch()

    async def release(self) -> None:
        """Release every name, even if one fails; calling it again does nothing, or retries those that failed.

        A release that fails, or is cancelled, is repeated in the background until the leases have ended.
        Raises as `MultiLease.release`.
        """
        try:
            await run_async(self._releasing(), self._store)
        except GeneratorExit:  # closed from outside: no task could repeat it
            raise
        except BaseException as failure:
            self.release_later(failure)
            raise
        finally:
            if self._is_watched:
                for part in self._parts:
                    if part.has_ended:
                        async_keeper(self._store).discard(part)

    def release_later(self, failure: BaseException) -> None:
        """Let the keeper repeat a release that `failure` ended, for the names that are still held."""
        for part in self._owing(failure):
            async_keeper(self._store).watch(part, self._store)

    def _watch(self) -> None:
        self._is_watched = True
        for part in self._parts:
            async_keeper(self._store).watch(part, self._store)
