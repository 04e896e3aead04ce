"""`QuorumLock`: a lock kept by a majority of independent servers, so that it survives the loss of a minority.

The algorithm is Redlock, from the Redis documentation ("Distributed Locks with Redis"): all servers get `SET NX PX` at
the same time, with a short time-out; the lock is held if a majority agrees, for its time to live minus the time that
asking took and an allowance for clocks that run at different rates; the release goes to all servers, also to those that
seemed to fail. An attempt without a majority is undone everywhere and repeated after a random pause.

Guarantees, as long as clocks run at nearly the same rate and servers keep their memory: at most one live lease per
name, even with a minority of the servers gone or unreachable; and once a lease has ended, nothing is left on any server
that answers. A vote that could not be removed is removed later, within a minute, or expires.

Not guaranteed, after Kleppmann ("How to do distributed locking", 2016) and the reply by the algorithm's author ("Is
Redlock safe?", 2016):

- A holder that is paused past the end of its lease acts at the same time as its successor. No fencing token can stop
  it, because no single server orders the grants, so the lease's type has none: if a mistake costs more than work done
  twice, use `Lock` and check its token, or a server that agrees by consensus.
- A server that restarts empty has forgotten its votes. If a lease had the votes of two servers out of three, one such
  restart lets a second holder in. Keep a crashed server down for at least the longest time to live, or let it write
  every command to disk (`appendfsync always`). `reestablish` shortens the danger but does not remove it.
- The wall clock does not matter; but a server whose expiry clock jumps ahead ends leases early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from segmented.errors import InvalidInput
from segmented.keys import lock_keys
from segmented.locks.claim import Claim, new_holder_id
from segmented.locks.handle import DEFAULT_RENEW_MAX, DEFAULT_TTL, AsyncHandle, Found, SyncHandle
from segmented.locks.lease import AsyncHeldLease, HeldLease
from segmented.protocol.vote import AcquireVote, ReleaseVote, RenewVote
from segmented.stores.quorum import AsyncQuorumStore, QuorumStore

if TYPE_CHECKING:
    from segmented.clock import Duration


@dataclass(frozen=True, slots=True)
class QuorumClaim(Claim):
    """A claim to a majority of the votes."""

    kind: ClassVar[str] = "quorum"
    waits_out_outages: ClassVar[bool] = False
    reestablish: bool = False

    @property
    def channel(self) -> str:
        """Return the channel; each release sends one message per server."""
        return lock_keys(self.name).freed

    def acquiring(self) -> AcquireVote:
        """Return the operation that asks for the votes."""
        return AcquireVote(self.name, self.holder_id, self.ttl_ms)

    def renewing(self, ttl_ms: int) -> RenewVote:
        """Return the operation that renews the votes."""
        return RenewVote(self.name, self.holder_id, ttl_ms, self.reestablish)

    def releasing(self) -> ReleaseVote:
        """Return the operation that ends the votes."""
        return ReleaseVote(self.name, self.holder_id)


class AsyncQuorumLease(AsyncHeldLease):
    """A lock held on a majority of servers, for asyncio. It has no fencing token."""


class AsyncQuorumLock(AsyncHandle[AsyncQuorumLease]):
    """A lock by name on a majority of servers, for asyncio."""

    _is_exclusive = True

    def __init__(
        self,
        store: AsyncQuorumStore,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
        reestablish: bool = False,
    ) -> None:
        """Create a lock `name` on the servers of `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all. A renewal
        succeeds if a majority still had the lease. With `reestablish`, it also takes the vote of a server that has
        none, because the server restarted or was away; such a vote counts from the next renewal.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        _require_quorum(store, AsyncQuorumStore)
        self._reestablish = reestablish

    def _claim(self) -> QuorumClaim:
        return QuorumClaim(self.name, new_holder_id(), self.ttl_ms, self._reestablish)

    def _lease(self, claim: Claim, found: Found) -> AsyncQuorumLease:
        return AsyncQuorumLease(self._store, claim, self._renewal, *found)


def _require_quorum(store: object, kind: type) -> None:
    if not isinstance(store, kind):
        raise InvalidInput(f"a quorum lock needs a {kind.__name__} of several servers, not {type(store).__name__}")


# --- For threads: written by `make sync` from the classes above. ---


class QuorumLease(HeldLease):
    """A lock held on a majority of servers, for threads. It has no fencing token."""


class QuorumLock(SyncHandle[QuorumLease]):
    """A lock by name on a majority of servers, for threads."""

    _is_exclusive = True

    def __init__(
        self,
        store: QuorumStore,
        name: str,
        *,
        ttl: Duration = DEFAULT_TTL,
        renew: bool = False,
        renew_max: Duration = DEFAULT_RENEW_MAX,
        reestablish: bool = False,
    ) -> None:
        """Create a lock `name` on the servers of `store`; a lease lives `ttl` seconds unless it is renewed.

        With `renew`, it is renewed in the background every third of `ttl`, for `renew_max` seconds in all. A renewal
        succeeds if a majority still had the lease. With `reestablish`, it also takes the vote of a server that has
        none, because the server restarted or was away; such a vote counts from the next renewal.
        """
        super().__init__(store, name, ttl=ttl, renew=renew, renew_max=renew_max)
        _require_quorum(store, QuorumStore)
        self._reestablish = reestablish

    def _claim(self) -> QuorumClaim:
        return QuorumClaim(self.name, new_holder_id(), self.ttl_ms, self._reestablish)

    def _lease(self, claim: Claim, found: Found) -> QuorumLease:
        return QuorumLease(self._store, claim, self._renewal, *found)
