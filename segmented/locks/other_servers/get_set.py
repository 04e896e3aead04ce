"""`GetSetLock`: the historical lock of SETNX, GET and GETSET. It is for study and measurement, not for use.

The algorithm is the one in the Redis documentation of SETNX before `SET NX PX` (Redis 2.6.12, 2013): the key's value is
the time at which the lock expires, by the client's wall clock, and the key itself never expires.

1. SETNX key, now + ttl. If it was written, the lock is ours.
2. Otherwise GET key. If its time has not come, the lock is held: wait a little and begin again.
3. Otherwise GETSET key, now + ttl. If the returned time has expired too, the lock is ours; if not, another client won.
4. To release: if our own time has not come, DEL key.

Guarantees: exclusion among clients whose wall clocks agree and are not set, that never pause between two steps, and
whose replies are not lost. Its faults, each shown by a test:

- a client whose clock is ahead takes a held lock: two holders at once;
- a client that loses in step 3 has overwritten the winner's time with its own, later one;
- an owner that is paused between reading its clock and the DEL deletes its successor's lock;
- a SETNX that is sent again after a lost reply finds its own value: the client is locked out until that expires.

It has no fencing token, no holder id, no renewal and no lost signal, so its leases have no such attributes, and it
polls, since no message wakes it. A dead holder's key stays until another GetSetLock takes it over, so no other kind of
lock ever gets such a name.
"""

from __future__ import annotations

import random
import re
from math import inf
from typing import TYPE_CHECKING, Final

from segmented.clock import Clock, Duration, WallClock
from segmented.errors import AcquireTimeout, LeaseLost, WrongKind
from segmented.keys import polling_channel
from segmented.locks.blocks import EndsWithItsAsyncBlock, EndsWithItsBlock, StaysInItsProcess
from segmented.locks.durations import DEFAULT_TIMEOUT, checked_lock_name, checked_timeout, milliseconds
from segmented.locks.handle import DEFAULT_TTL, Acquiring
from segmented.locks.hints import Hinted
from segmented.plans import Now, Plan, Within, pause, perform, run_async, run_sync
from segmented.plans.store_kinds import checked_async, checked_sync
from segmented.process import THIS
from segmented.protocol.get_set import DeleteValue, GetSet, GetValue, SetNx

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.plans.drivers import AsyncStore, Store

POLL_SECONDS_MIN: Final = 0.05
POLL_SECONDS_MAX: Final = 0.15
STAMP: Final = re.compile(r"[0-9]{1,15}\.[0-9]{6}")
"""Seconds since 1970. The holder ids of other kinds contain no decimal point."""
LABEL: Final = "historical, unsafe under clock skew"


def get_set_plan(
    name: str, ttl: float, *, timeout: float | None, wall_clock: Clock, chance: Callable[[], float] = random.random
) -> Plan[float]:
    """Acquire within `timeout` seconds (None: forever; 0: one try); return the wall clock's time at which it expires.

    Unlike all other plans it reads a clock itself, because the algorithm depends on it. Raises AcquireTimeout.
    """
    deadline = inf if not timeout else (yield from perform(Now())) + timeout
    while True:
        expires_at = yield from _tried(name, ttl, deadline, wall_clock)
        if expires_at is not None:
            return expires_at
        if timeout == 0:
            raise AcquireTimeout(name, 0.0)
        patience = POLL_SECONDS_MIN + (POLL_SECONDS_MAX - POLL_SECONDS_MIN) * chance()
        until = (yield from perform(Now())) + patience
        is_last = until + POLL_SECONDS_MIN >= deadline  # a try is several commands, which must fit in
        yield from pause(polling_channel(name), deadline if is_last else until)
        if is_last:
            raise AcquireTimeout(name, timeout or 0.0)


def _tried(name: str, ttl: float, deadline: float, wall_clock: Clock) -> Plan[float | None]:
    value = _stamp(wall_clock.now() + ttl)
    if (yield from perform(Within(SetNx(name, value), deadline))):
        return float(value)
    seen = yield from perform(Within(GetValue(name), deadline))
    if not seen or not _has_expired(name, seen, wall_clock):
        return None
    value = _stamp(wall_clock.now() + ttl)
    before = yield from perform(Within(GetSet(name, value), deadline))
    return float(value) if not before or _has_expired(name, before, wall_clock) else None


def give_back_plan(name: str, expires_at: float, *, wall_clock: Clock) -> Plan[bool]:
    """Delete the key, whichever client wrote it, unless it has expired by `wall_clock`; return False if it has."""
    if wall_clock.now() >= expires_at:
        return False
    return (yield from perform(DeleteValue(name)))


def _stamp(seconds: float) -> str:
    return f"{seconds:.6f}"


def _has_expired(name: str, value: str, wall_clock: Clock) -> bool:
    if STAMP.fullmatch(value) is None:
        raise WrongKind(f"the key of {name!r} has no expiry time: another kind of lock has the name")
    return float(value) <= wall_clock.now()


class _LeaseState(Hinted, StaysInItsProcess):
    """The state that the sync and async leases share: a time on the client's own wall clock."""

    def __init__(self, name: str, expires_at: float, wall_clock: Clock) -> None:
        """Create the state of a lease that expires at `expires_at` by `wall_clock`."""
        self._process_id = THIS.process_id
        self.name = name
        self.expires_at = expires_at
        """Seconds since 1970, by this client's clock."""
        self.has_ended = False
        """Whether the lease was released."""
        self._wall_clock = wall_clock
        self._is_lost = False

    @property
    def is_lost(self) -> bool:
        """Return whether it expired, by the client's own clock, before it was released."""
        if not self.has_ended and self._wall_clock.now() >= self.expires_at:
            self._is_lost = True
        return self._is_lost

    @property
    def is_trusted(self) -> bool:
        """Return whether the holder may still act, by its own clock. This may be wrong: see the module."""
        return self._is_in_its_process() and not self.has_ended and not self.is_lost

    def remaining(self) -> float:
        """Return the seconds until it expires, by the client's own clock, or 0 if it has ended."""
        return max(0.0, self.expires_at - self._wall_clock.now()) if self.is_trusted else 0.0

    def require(self) -> None:
        """Raise LeaseLost if it has expired."""
        self._require_own_process()
        if not self.is_trusted:
            raise self._lost()

    def _releasing(self) -> Plan[None]:
        if self.has_ended:
            return
        self._require_own_process()
        was_in_time = yield from give_back_plan(self.name, self.expires_at, wall_clock=self._wall_clock)
        self.has_ended = True
        if not was_in_time:
            self._is_lost = True
            raise self._lost()

    def _lost(self) -> LeaseLost:
        return LeaseLost(self.name, _stamp(self.expires_at))

    def __repr__(self) -> str:
        state = "lost" if self.is_lost else "ended" if self.has_ended else f"{self.remaining():.3f} s left"
        return f"<{type(self).__name__} {self.name!r} {state} ({LABEL})>"


class _Handle(Hinted):
    """The name, time to live and wall clock of a lock."""

    def __init__(self, name: str, *, ttl: Duration, wall_clock: Clock | None) -> None:
        self.name = checked_lock_name(name)
        self.ttl_ms = milliseconds(ttl, "ttl")
        self._wall_clock = wall_clock or WallClock()

    def _plan(self, timeout: float | None) -> Plan[float]:
        return get_set_plan(self.name, self.ttl_ms / 1000, timeout=timeout, wall_clock=self._wall_clock)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, ttl={self.ttl_ms / 1000:g}) ({LABEL})"


class AsyncGetSetLease(EndsWithItsAsyncBlock, _LeaseState):
    """A held historical lock, for asyncio: no fencing token, no holder id, no renewal, no lost signal."""

    def __init__(self, store: AsyncStore, name: str, expires_at: float, wall_clock: Clock) -> None:
        """Create the lease of a lock on `store` that expires at `expires_at` by `wall_clock`."""
        super().__init__(name, expires_at, wall_clock)
        self._store = store

    async def release(self) -> None:
        """Delete the key, whichever client wrote it. Raises LeaseLost if our own time has come."""
        await run_async(self._releasing(), self._store)


class AsyncGetSetLock(_Handle):
    """The historical lock of SETNX, GET and GETSET, for asyncio: for study and measurement, unsafe under clock skew."""

    def __init__(
        self, store: AsyncStore, name: str, *, ttl: Duration = DEFAULT_TTL, wall_clock: Clock | None = None
    ) -> None:
        """Create a lock `name` on `store` that expires after `ttl` seconds by `wall_clock` (default: the machine's)."""
        super().__init__(name, ttl=ttl, wall_clock=wall_clock)
        self._store = checked_async(store, type(self).__name__)

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> Acquiring[AsyncGetSetLease]:
        """Poll for up to `timeout` seconds (default: 60; None: forever) and return the lease. Raises AcquireTimeout.

        If acquire raises another error, the key may stay until it expires.
        """
        return Acquiring(self, checked_timeout(timeout))

    async def try_acquire(self) -> AsyncGetSetLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return await self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    async def _acquired(self, timeout: float | None) -> AsyncGetSetLease:
        expires_at = await run_async(self._plan(timeout), self._store)
        return AsyncGetSetLease(self._store, self.name, expires_at, self._wall_clock)


# --- For threads: written by `make sync` from the classes above. ---


class GetSetLease(EndsWithItsBlock, _LeaseState):
    """A held historical lock, for threads: no fencing token, no holder id, no renewal, no lost signal."""

    def __init__(self, store: Store, name: str, expires_at: float, wall_clock: Clock) -> None:
        """Create the lease of a lock on `store` that expires at `expires_at` by `wall_clock`."""
        super().__init__(name, expires_at, wall_clock)
        self._store = store

    def release(self) -> None:
        """Delete the key, whichever client wrote it. Raises LeaseLost if our own time has come."""
        run_sync(self._releasing(), self._store)


class GetSetLock(_Handle):
    """The historical lock of SETNX, GET and GETSET, for threads: for study and measurement, unsafe under clock skew."""

    def __init__(
        self, store: Store, name: str, *, ttl: Duration = DEFAULT_TTL, wall_clock: Clock | None = None
    ) -> None:
        """Create a lock `name` on `store` that expires after `ttl` seconds by `wall_clock` (default: the machine's)."""
        super().__init__(name, ttl=ttl, wall_clock=wall_clock)
        self._store = checked_sync(store, type(self).__name__)

    def acquire(self, timeout: Duration | None = DEFAULT_TIMEOUT) -> GetSetLease:
        """Poll for up to `timeout` seconds (default: 60; None: forever) and return the lease. Raises AcquireTimeout.

        If acquire raises another error, the key may stay until it expires.
        """
        return self._acquired(checked_timeout(timeout))

    def try_acquire(self) -> GetSetLease | None:
        """Return the lease if the lock is free now, otherwise None."""
        try:
            return self.acquire(timeout=0)
        except AcquireTimeout:
            return None

    def _acquired(self, timeout: float | None) -> GetSetLease:
        expires_at = run_sync(self._plan(timeout), self._store)
        return GetSetLease(self._store, self.name, expires_at, self._wall_clock)
