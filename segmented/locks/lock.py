"""`Lock`: SET NX PX with compare-and-delete, a fencing token, and waiting that never polls.

The algorithm is the single-instance lock of the Redis documentation ("Distributed Locks with Redis"), with a fencing
token after Kleppmann ("How to do distributed locking", 2016): `max(last + 1, server time in microseconds)`. Lock-delay
is Chubby's (Burrows, 2006, section 2.4), replica acknowledgement is the `WAIT` of Redis.

Guarantees: at most one live lease per name, as long as the server keeps its memory. An acquire that is repeated after a
lost reply succeeds; a cancelled one leaves nothing behind. Not guaranteed: exclusion across a failover that loses the
key, or against a holder that acts after its lease has expired; use the fencing token for those. `replicas` makes a
failover that loses the key rarer, not impossible: the promoted replica may be one that had not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from segmented.errors import InvalidInput
from segmented.keys import lock_keys, named_lock_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.durations import checked_name, is_whole, milliseconds_or_none
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncFencedHandle, FencedHandle, adopt_plan
from segmented.locks.lease import AsyncLease, Lease
from segmented.locks.lease_state import Renewal
from segmented.plans import run_async, run_sync
from segmented.plans.waiting import GONE_SECONDS
from segmented.protocol import AcquireLock, AdoptLock, LeaveLine, ReleaseLock, RenewLock, ShowLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.clock import Duration
    from segmented.plans.drivers import AsyncStore, Store

REPLICAS_MAX: Final = 100
DEFAULT_REPLICAS_TIMEOUT: Final = 1.0
UNRENEWED: Final = Renewal(is_wanted=False, seconds_max=0.0)


@dataclass(frozen=True, slots=True)
class Safety:
    """Safety options of a lock, beyond its lease."""

    replicas: int = 0
    """Number of replicas that must acknowledge an acquire."""
    within_ms: int = 0
    """Maximum wait for them."""
    delay_ms: int = 0
    """Time for which the name stays closed after a lease that was not released."""


@dataclass(frozen=True, slots=True)
class LockClaim(Claim):
    """A claim to a plain lock."""

    kind: ClassVar[str] = "lock"
    may_be_handed: ClassVar[bool] = True
    look_seconds: ClassVar[float | None] = GONE_SECONDS
    safety: Safety = Safety()
    is_key: bool = False
    """Whether the name is the key itself, as for redis-py's own lock."""

    @property
    def channel(self) -> str:
        """The channel to which each release sends one message."""
        return (named_lock_keys if self.is_key else lock_keys)(self.name).freed

    def acquiring(self) -> AcquireLock:
        """Return the operation that takes the lease."""
        return self.acquiring_in_line("")

    def acquiring_in_line(self, party: str) -> AcquireLock:
        """Return the operation that takes the lease, or keeps the place of a process that waits."""
        safety = self.safety
        ask = (safety.delay_ms, safety.replicas, safety.within_ms)
        return AcquireLock(self.name, self.holder_id, self.ttl_ms, *ask, is_key=self.is_key, party=party)

    def leaving_line(self, party: str) -> LeaveLine:
        """Return the operation that takes the process out of the line."""
        return LeaveLine(self.name, party, self.is_key)

    def adopting(self) -> AdoptLock:
        """Return the operation that reads the fencing token and the time to live."""
        return AdoptLock(self.name, self.holder_id, self.ttl_ms, self.safety.delay_ms, self.is_key)

    def renewing(self, ttl_ms: int) -> RenewLock:
        """Return the operation that renews the lease."""
        return RenewLock(self.name, self.holder_id, ttl_ms, self.safety.delay_ms, self.is_key)

    def releasing(self) -> ReleaseLock:
        """Return the operation that ends the lease."""
        return ReleaseLock(self.name, self.holder_id, self.safety.delay_ms, self.is_key)


def checked_safety(replicas: int, replicas_timeout: Duration, lock_delay: Duration) -> Safety:
    """Return the options. Raises InvalidInput for those that no server can fulfil."""
    if not is_whole(replicas) or not 0 <= replicas <= REPLICAS_MAX:
        raise InvalidInput(f"replicas of {replicas!r} is not a number of replicas: give 0 to {REPLICAS_MAX}")
    within_ms = max(1, milliseconds_or_none(replicas_timeout, "replicas_timeout"))  # 0: without a limit
    return Safety(int(replicas), within_ms, milliseconds_or_none(lock_delay, "lock_delay"))


class AsyncLock(AsyncFencedHandle):
    """A lock by name, for asyncio."""

    _is_exclusive = True

    def __init__(  # noqa: PLR0913  # options of one lock, given by name
        self,
        store: AsyncStore,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
        replicas: int = 0,
        replicas_timeout: Duration = DEFAULT_REPLICAS_TIMEOUT,
        lock_delay: Duration = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Create a lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all. With
        `replicas`, an acquire succeeds only if that number of replicas acknowledges it within `replicas_timeout`
        seconds; otherwise it is undone and ReplicasMissing is raised. With `lock_delay`, the name stays closed for that
        number of seconds after a lease expires, while its holder's late writes may still arrive; a release opens it at
        once. `on_lost` is called once for each lease that is lost; see `AsyncLease.on_lost`.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._safety = checked_safety(replicas, replicas_timeout, lock_delay)
        self._on_lost = on_lost

    def _claim(self, holder_id: str | None = None) -> LockClaim:
        return LockClaim(self.name, new_holder_id() if holder_id is None else holder_id, self.ttl_ms, self._safety)

    async def is_locked(self) -> bool:
        """Return whether the name is held, or closed by a lock-delay. The answer may already be outdated."""
        return await self._store.execute(ShowLock(self.name, 1)) is not None

    async def adopt(self, holder_id: str) -> AsyncLease:
        """Return the lease that `holder_id` has on this name, to continue it here. Raises LeaseLost if there is none.

        Use it for a lease that one process acquires and another uses and releases: the other needs only `lease.name`
        and `lease.holder_id`. The lease keeps its end; `renew()`, and the handle's `renew=True`, extend it. Create the
        handle with the same options as the one that acquired.
        """
        claim = self._claim(checked_name(holder_id, "a holder"))
        found = await run_async(adopt_plan(claim.adopting()), self._store)
        lease = AsyncLease(self._store, claim, UNRENEWED, *found)
        lease.ttl_ms = self.ttl_ms
        lease.look_after(self._renewal)
        if self._on_lost is not None:
            lease.on_lost(self._on_lost)
        return lease


# --- For threads: written by `make sync` from the classes above. ---


class Lock(FencedHandle):
    """A lock by name, for threads."""

    _is_exclusive = True

    def __init__(  # noqa: PLR0913  # options of one lock, given by name
        self,
        store: Store,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
        replicas: int = 0,
        replicas_timeout: Duration = DEFAULT_REPLICAS_TIMEOUT,
        lock_delay: Duration = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """Create a lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all. With
        `replicas`, an acquire succeeds only if that number of replicas acknowledges it within `replicas_timeout`
        seconds; otherwise it is undone and ReplicasMissing is raised. With `lock_delay`, the name stays closed for that
        number of seconds after a lease expires, while its holder's late writes may still arrive; a release opens it at
        once. `on_lost` is called once for each lease that is lost; see `Lease.on_lost`.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._safety = checked_safety(replicas, replicas_timeout, lock_delay)
        self._on_lost = on_lost

    def _claim(self, holder_id: str | None = None) -> LockClaim:
        return LockClaim(self.name, new_holder_id() if holder_id is None else holder_id, self.ttl_ms, self._safety)

    def is_locked(self) -> bool:
        """Return whether the name is held, or closed by a lock-delay. The answer may already be outdated."""
        return self._store.execute(ShowLock(self.name, 1)) is not None

    def adopt(self, holder_id: str) -> Lease:
        """Return the lease that `holder_id` has on this name, to continue it here. Raises LeaseLost if there is none.

        Use it for a lease that one process acquires and another uses and releases: the other needs only `lease.name`
        and `lease.holder_id`. The lease keeps its end; `renew()`, and the handle's `renew=True`, extend it. Create the
        handle with the same options as the one that acquired.
        """
        claim = self._claim(checked_name(holder_id, "a holder"))
        found = run_sync(adopt_plan(claim.adopting()), self._store)
        lease = Lease(self._store, claim, UNRENEWED, *found)
        lease.ttl_ms = self.ttl_ms
        lease.look_after(self._renewal)
        if self._on_lost is not None:
            lease.on_lost(self._on_lost)
        return lease
