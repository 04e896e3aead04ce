"""`Semaphore`: up to N holders of one name at a time, each with a permit that expires by the server's clock.

Permits are kept in a sorted set, holder -> end (the counting semaphore of Carlson, "Redis in Action", 2013, section
6.3, which orders holders by their clients' clocks; here only the server's clock counts). A dead holder's permit is
free again at its end, and every release wakes one waiter.

The number of permits belongs to the name while any permit is held: a handle with another number raises
PermitsMismatch, which names both. When no permit is held, the next caller sets the number, so you can change it once
all permits are back.

Guarantees: never more than N live permits, as long as the server keeps its memory. Not guaranteed: the order of arrival
among waiters; processes take turns. And a permit is not exclusive: its fencing token is higher than that of every
earlier permit, which orders permits, but a resource that accepts only the newest token would serve one holder of N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from segmented.errors import InvalidInput
from segmented.keys import lock_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.durations import is_whole
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncFencedHandle, FencedHandle
from segmented.protocol.semaphore import AcquirePermit, ReleasePermit, RenewPermit

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.plans.drivers import AsyncStore, Store

PERMITS_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PermitClaim(Claim):
    """A claim to one permit of `permits`."""

    kind: ClassVar[str] = "semaphore"
    mode: ClassVar[str] = "shared"
    permits: int = 1

    @property
    def channel(self) -> str:
        """Return the channel: one message per release; an entering waiter notifies the next if permits remain."""
        return lock_keys(self.name).freed

    def acquiring(self) -> AcquirePermit:
        """Return the operation that takes a permit."""
        return AcquirePermit(self.name, self.holder_id, self.ttl_ms, self.permits)

    def acquiring_in_line(self, party: str) -> AcquirePermit:
        """Return the attempt of a process that waits, or would."""
        return replace(self.acquiring(), party=party)

    def renewing(self, ttl_ms: int) -> RenewPermit:
        """Return the operation that renews the permit."""
        return RenewPermit(self.name, self.holder_id, ttl_ms)

    def releasing(self) -> ReleasePermit:
        """Return the operation that ends the permit."""
        return ReleasePermit(self.name, self.holder_id)


def checked_permits(permits: int) -> int:
    """Return the number of permits. Raises InvalidInput for an invalid one."""
    if not is_whole(permits) or not 1 <= permits <= PERMITS_MAX:
        raise InvalidInput(f"permits of {permits!r} is not a number of permits: give 1 to {PERMITS_MAX:,}")
    return int(permits)  # of an enumeration's member, the value


class AsyncSemaphore(AsyncFencedHandle):
    """A semaphore by name, for asyncio."""

    def __init__(
        self,
        store: AsyncStore,
        name: str,
        *,
        permits: int,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a semaphore `name` on `store` with `permits` permits; each lives `ttl` seconds unless it is renewed.

        With `renew`, a permit is renewed in the background every third of `ttl`, for `renew_max` seconds in all. While
        permits of a semaphore with another number are held, acquiring raises PermitsMismatch.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self.permits = checked_permits(permits)

    def _described(self) -> str:
        return f", permits={self.permits}"

    def _claim(self) -> PermitClaim:
        return PermitClaim(self.name, new_holder_id(), self.ttl_ms, self.permits)


# --- For threads: written by `make sync` from the classes above. ---


class Semaphore(FencedHandle):
    """A semaphore by name, for threads."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        permits: int,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
    ) -> None:
        """Create a semaphore `name` on `store` with `permits` permits; each lives `ttl` seconds unless it is renewed.

        With `renew`, a permit is renewed in the background every third of `ttl`, for `renew_max` seconds in all. While
        permits of a semaphore with another number are held, acquiring raises PermitsMismatch.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        self.permits = checked_permits(permits)

    def _described(self) -> str:
        return f", permits={self.permits}"

    def _claim(self) -> PermitClaim:
        return PermitClaim(self.name, new_holder_id(), self.ttl_ms, self.permits)
