"""The base classes of all locks over a store, sync and async: a handle makes claims and turns them into leases.

A handle keeps nothing about a holder but the leases of open `with lock:` blocks, each with its thread or task, so
threads and tasks may share one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from segmented.errors import (
    AcquireTimeout,
    LeaseLost,
    LockUnreachable,
    ReplicasMissing,
    SegmentedError,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from segmented.locks.blocks import AsyncEntered, Blocks, Entered, RefusesOtherWith
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_lock_name, checked_timeout, milliseconds
from segmented.locks.hints import Hinted
from segmented.locks.keeper import async_release_later, release_later
from segmented.locks.lease import AsyncHeldLease, AsyncLease, HeldLease, Lease
from segmented.locks.lease_state import Renewal, trusted_until
from segmented.locks.unreachable import waited_out, waits_out
from segmented.models import Acquired, Held, Unreplicated
from segmented.plans import Now, Offer, Plan, Try, Within, perform, run_async, run_sync, undo_after, wait_in_line
from segmented.plans.store_kinds import checked_async, checked_sync
from segmented.plans.waiting import UNDO_SECONDS
from segmented.protocol.lock import NEWCOMER

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import CoroutineType, TracebackType

    from segmented.clock import Duration
    from segmented.locks.claim import Claim
    from segmented.plans.drivers import AsyncStore, Store
    from segmented.protocol import AdoptLock, Operation

DEFAULT_TTL: Final = 30.0
DEFAULT_RENEW_MAX: Final = 3600.0

Found = tuple[Acquired, float]
"""The answer, and the local time from which the lease counts."""
LeaseT = TypeVar("LeaseT", bound=HeldLease)
AsyncLeaseT = TypeVar("AsyncLeaseT", bound=AsyncHeldLease)
EnteredT = TypeVar("EnteredT", bound="AbstractAsyncContextManager[object]")
EnteredT_co = TypeVar("EnteredT_co", bound="AbstractAsyncContextManager[object]", covariant=True)


def acquire_plan(claim: Claim, timeout: float | None, *, is_patient: bool = True) -> Plan[Found]:
    """Acquire within `timeout` seconds (None: forever; 0: one try).

    Raises AcquireTimeout if the lock was not free in time, ReplicasMissing if too few replicas acknowledged it, and
    LeaseLost if the answer took longer than the lease lasts; in all three cases nothing is left behind. Raises
    LockUnreachable if the store does not answer by the deadline, or at once if it is not patient, in a policy's block
    and with a timeout of 0; an attempt may have taken a lease, which the caller must release. Raises StoreBusy if the
    store had no free connection in time, which does not mean that its server is down.
    """
    obeying = None if timeout == 0 else claim.acquiring_in_line(NEWCOMER)
    trying = Try(obeying or claim.acquiring(), claim.channel, timeout, joins_if_heard=obeying is not None)
    failed: LockUnreachable | None = None
    answer: Acquired | Held | Unreplicated | None = None
    asked_at = answered_at = 0.0
    try:
        tried: tuple[Acquired | Held | Unreplicated, float] | None = yield trying
        if tried is not None and (timeout == 0 or not isinstance(tried[0], Held)):
            (answer, answered_at), asked_at = tried, trying.asked_at
        else:
            answer, asked_at = yield from wait_in_line(
                trying,
                is_tried=tried is not None,
                is_busy=lambda answer: isinstance(answer, Held),
                when_behind=claim.acquiring_when_behind(),
                offered=partial(_offer, claim) if claim.may_be_handed else None,
                look_seconds=claim.look_seconds,
                in_line=claim.acquiring_in_line,
                out_of_line=claim.leaving_line,
            )
            answered_at = yield Now()
    except BaseException as error:
        yield from undo_after(error, claim.releasing, trying)
        if not isinstance(error, StoreUnavailable) or isinstance(error, StoreBusy):
            raise
        failed = LockUnreachable(claim.name, str(error))
        failed.__cause__ = error
        if not (is_patient and claim.waits_out_outages and waits_out(claim.name, timeout)):
            raise failed from error
    if failed is not None:
        again = partial(acquire_plan, claim, is_patient=False)
        return (yield from waited_out(again, failed, channel=claim.channel, began_at=trying.asked_at, timeout=timeout))
    if isinstance(answer, Acquired):
        if answered_at < trusted_until(asked_at, answer.ttl_ms):
            return answer, asked_at
        yield from _given_back(claim)
        raise LeaseLost(claim.name, claim.holder_id)
    if isinstance(answer, Unreplicated):
        yield from _given_back(claim)
        raise ReplicasMissing(claim.name, answer.wanted, answer.acknowledged)
    if claim.leaves_traces and (failure := (yield from _given_back(claim))):  # it still has a place in the queue
        raise LockUnreachable(claim.name, str(failure)) from failure
    is_delayed = isinstance(answer, Held) and answer.is_delayed
    raise AcquireTimeout(claim.name, timeout or 0.0, is_delayed=is_delayed)


def _offer(claim: Claim, attempt: Operation[Acquired | Held | Unreplicated]) -> Offer:
    release = (claim.releasing(),)
    return Offer(attempt, undo=release, undo_late=release)


def _given_back(claim: Claim) -> Plan[StoreError | None]:
    soon = (yield from perform(Now())) + UNDO_SECONDS
    try:
        yield from perform(Within(claim.releasing(), soon))
    except StoreError as failure:  # the lease expires on its own
        return failure
    return None


class Handle(Hinted):
    """The name, time to live and renewal of a lock."""

    _on_lost: Callable[[], None] | None = None
    """Called once for each lease that is lost."""

    def __init__(self, name: str, *, ttl: Duration, renew: bool, renew_max: Duration) -> None:
        self.name = checked_lock_name(name)
        self.ttl_ms = milliseconds(ttl, "ttl")
        self._renewal = Renewal(renew, milliseconds(renew_max, "renew_max") / 1000)

    def __repr__(self) -> str:
        renewed = ", renew=True" if self._renewal.is_wanted else ""
        return f"{type(self).__name__}({self.name!r}, ttl={self.ttl_ms / 1000:g}{renewed}{self._described()})"

    def _described(self) -> str:
        return ""


class Acquires(Protocol[EnteredT_co]):
    """An object that can be acquired, for asyncio."""

    async def _acquired(self, timeout: float | None) -> EnteredT_co:
        """Wait up to `timeout` seconds and return the lease."""


class Acquiring(RefusesOtherWith, Coroutine[Any, Any, EnteredT]):
    """An acquire that has not begun: a coroutine for one `await` or one task, or an asynchronous context manager.

    If it is neither awaited nor entered, it acquires nothing, and Python warns that it "was never awaited".
    """

    def __init__(self, lock: Acquires[EnteredT], timeout: float | None) -> None:
        """Create an acquire of `lock` that waits up to `timeout` seconds."""
        self._lock = lock
        self._timeout = timeout
        self._is_begun = False
        self._coroutine = self._made()
        self._lease: EnteredT | None = None

    def _made(self) -> CoroutineType[Any, Any, EnteredT]:
        found = cast("CoroutineType[Any, Any, EnteredT]", self._lock._acquired(self._timeout))  # noqa: SLF001  # one object in two steps
        found.__qualname__ = f"{type(self._lock).__name__}.acquire"  # which a warning names
        return found

    def __await__(self) -> Generator[Any, Any, EnteredT]:
        """Acquire; acquire again if it was awaited or entered before."""
        found = self._made() if self._is_begun else self._coroutine
        self._is_begun = True
        return found.__await__()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401  # what an event loop sends and takes
        """Continue, for the event loop's task."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401  # what an event loop sends and takes
        """Raise an error, such as a cancellation, at the point where it waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it, without a warning if it was never awaited."""
        self._coroutine.close()

    async def __aenter__(self) -> EnteredT:
        self._lease = await self
        await self._lease.__aenter__()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, trace)


def adopt_plan(operation: AdoptLock) -> Plan[Found]:
    """Find the lease of a holder id. Raises LeaseLost if it is not held, or if the answer took longer than it lasts."""
    asked_at = yield from perform(Now())
    answer = yield from perform(operation)
    if isinstance(answer, Acquired) and (yield from perform(Now())) < trusted_until(asked_at, answer.ttl_ms):
        return answer, asked_at
    raise LeaseLost(operation.name, operation.holder_id)


class AsyncHandle(AsyncEntered[AsyncLeaseT], Handle, ABC, Generic[AsyncLeaseT]):
    """A lock for asyncio. Subclasses make the claims and the leases."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_async(store, type(self).__name__)
        self._blocks = Blocks[AsyncLeaseT]()

    @abstractmethod
    def _claim(self) -> Claim:
        """Return a new claim with its own holder id."""

    @abstractmethod
    def _lease(self, claim: Claim, found: Found) -> AsyncLeaseT:
        """Return the lease of a claim that succeeded."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Acquiring[AsyncLeaseT]:
        """Wait up to `timeout` seconds (default: 60; None: forever) and return the lease. Raises AcquireTimeout.

        Use it as `lease = await lock.acquire()`, or as `async with lock.acquire() as lease`.
        """
        return Acquiring(self, checked_timeout(timeout))

    async def _acquired(self, timeout: float | None) -> AsyncLeaseT:
        return await self._taken(self._claim(), timeout)

    async def _taken(self, claim: Claim, timeout: float | None) -> AsyncLeaseT:
        """Acquire and return the lease; a claim that an exception leaves without a holder is released."""
        try:
            lease = self._lease(claim, await run_async(acquire_plan(claim, timeout), self._store))
            lease.blocks = self._blocks
            if self._on_lost is not None:
                lease.on_lost(self._on_lost)
            return lease  # noqa: TRY300  # a signal handler may raise here as well
        except LockUnreachable:
            async_release_later(claim, self._store)
            raise
        # threads: except SegmentedError:  # the plan has left nothing behind
        # threads:     raise
        # threads: except BaseException:
        # threads:     run_sync(_given_back(claim), self._store)
        # threads:     raise


class AsyncFencedHandle(AsyncHandle[AsyncLease]):
    """A lock for asyncio whose leases carry a fencing token."""

    def _lease(self, claim: Claim, found: Found) -> AsyncLease:
        return AsyncLease(self._store, claim, self._renewal, *found)


# --- For threads: written by `make sync` from the classes above. ---


class SyncHandle(Entered[LeaseT], Handle, ABC, Generic[LeaseT]):
    """A lock for threads. Subclasses make the claims and the leases."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all.
        """
        super().__init__(name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._store = checked_sync(store, type(self).__name__)
        self._blocks = Blocks[LeaseT]()

    @abstractmethod
    def _claim(self) -> Claim:
        """Return a new claim with its own holder id."""

    @abstractmethod
    def _lease(self, claim: Claim, found: Found) -> LeaseT:
        """Return the lease of a claim that succeeded."""

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> LeaseT:
        """Wait up to `timeout` seconds (default: 60; None: forever) and return the lease. Raises AcquireTimeout.

        Use it as `lease = lock.acquire()`, or as `with lock.acquire() as lease`.
        """
        return self._acquired(checked_timeout(timeout))

    def _acquired(self, timeout: float | None) -> LeaseT:
        return self._taken(self._claim(), timeout)

    def _taken(self, claim: Claim, timeout: float | None) -> LeaseT:
        """Acquire and return the lease; a claim that an exception leaves without a holder is released."""
        try:
            lease = self._lease(claim, run_sync(acquire_plan(claim, timeout), self._store))
            lease.blocks = self._blocks
            if self._on_lost is not None:
                lease.on_lost(self._on_lost)
            return lease  # noqa: TRY300  # a signal handler may raise here as well
        except LockUnreachable:
            release_later(claim, self._store)
            raise
        except SegmentedError:  # the plan has left nothing behind
            raise
        except BaseException:
            run_sync(_given_back(claim), self._store)
            raise


class FencedHandle(SyncHandle[Lease]):
    """A lock for threads whose leases carry a fencing token."""

    def _lease(self, claim: Claim, found: Found) -> Lease:
        return Lease(self._store, claim, self._renewal, *found)
