"""`Lock`: SET NX PX with compare-and-delete, a fencing token, and waiting that never polls.

The algorithm is the single-instance lock of the Redis documentation ("Distributed Locks with Redis"), with a fencing
token after Kleppmann ("How to do distributed locking", 2016): `max(last + 1, server time in microseconds)`. Lock-delay
is Chubby's (Burrows, 2006, section 2.4), replica acknowledgement is the `WAIT` of Redis.

Guarantees: one living lease a name, as long as the server keeps its memory. An acquire whose reply was lost is told yes
when it is repeated; one that is cancelled leaves nothing behind. Not guaranteed: exclusion across a failover that loses
the key, and a holder that acts after its lease has lapsed; the fencing token is for those. `replicas` makes a failover
that loses the key rarer, not impossible: the replica that is promoted may be one that had not acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, Final

from segmented.errors import InvalidInput
from segmented.keys import lock_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.durations import TTL_MS_MAX, is_whole
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncFencedHandle, FencedHandle
from segmented.operations import AcquireLock, ReleaseLock, RenewLock

if TYPE_CHECKING:
    from segmented.plans.drivers import AsyncStore, Store

REPLICAS_MAX: Final = 100
DEFAULT_REPLICAS_WITHIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Safety:
    """What a lock asks for beyond its lease."""

    replicas: int = 0
    """How many replicas must acknowledge an acquire."""
    within_ms: int = 0
    """How long to wait for them."""
    delay_ms: int = 0
    """How long the name stays closed after a lease that was not released."""


@dataclass(frozen=True, slots=True)
class LockClaim(Claim):
    """A claim to a plain lock."""

    kind: ClassVar[str] = "lock"
    may_be_handed: ClassVar[bool] = True
    safety: Safety = Safety()

    @property
    def channel(self) -> str:
        """One message a release."""
        return lock_keys(self.name).freed

    def acquiring(self) -> AcquireLock:
        """Ask for the lease."""
        safety = self.safety
        ask = (safety.delay_ms, safety.replicas, safety.within_ms)
        return AcquireLock(self.name, self.holder_id, self.ttl_ms, *ask)

    def renewing(self, ttl_ms: int) -> RenewLock:
        """Ask for more time."""
        return RenewLock(self.name, self.holder_id, ttl_ms, self.safety.delay_ms)

    def releasing(self) -> ReleaseLock:
        """End the lease."""
        return ReleaseLock(self.name, self.holder_id, self.safety.delay_ms)


def checked_safety(replicas: int, replicas_within: float, lock_delay: float) -> Safety:
    """Refuse what no server can do."""
    if not is_whole(replicas) or not 0 <= replicas <= REPLICAS_MAX:
        message = f"replicas of {replicas!r} is not a number of replicas: give 0 to {REPLICAS_MAX}"
        raise InvalidInput(message)
    for what, seconds in (("replicas_within", replicas_within), ("lock_delay", lock_delay)):
        if not isfinite(seconds) or not 0 <= seconds * 1000 <= TTL_MS_MAX:
            message = f"{what} of {seconds!r} s is not a time: give 0 or more"
            raise InvalidInput(message)
    within_ms = max(1, round(replicas_within * 1000))  # the server takes 0 for "no limit"
    return Safety(replicas, within_ms, round(lock_delay * 1000))


class Lock(FencedHandle):
    """A lock by name, for threads."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
        replicas: int = 0,
        replicas_within: float = DEFAULT_REPLICAS_WITHIN,
        lock_delay: float = 0.0,
    ) -> None:
        """Lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew` it is renewed in the background every third of that, for `renew_max` seconds in all.
        With `replicas` an acquire stands only when so many replicas have acknowledged it within `replicas_within`
        seconds; else it is undone and ReplicasMissing is raised. With `lock_delay` the name stays closed for so many
        seconds after a lease that lapsed, in which its holder's late writes may still arrive; a release opens it at
        once.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._safety = checked_safety(replicas, replicas_within, lock_delay)

    def _claim(self) -> LockClaim:
        return LockClaim(self.name, new_holder_id(), self.ttl_ms, self._safety)


class AsyncLock(AsyncFencedHandle):
    """A lock by name, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        renew: bool = False,
        renew_max: float = DEFAULT_RENEW_MAX,
        replicas: int = 0,
        replicas_within: float = DEFAULT_REPLICAS_WITHIN,
        lock_delay: float = 0.0,
    ) -> None:
        """Lock `name` on `store`; a lease lives `ttl` seconds unless it is renewed. Options as those of `Lock`."""
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self._safety = checked_safety(replicas, replicas_within, lock_delay)

    def _claim(self) -> LockClaim:
        return LockClaim(self.name, new_holder_id(), self.ttl_ms, self._safety)
