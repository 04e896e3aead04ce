"""Operations on fair locks: a queue in the store, and a lock that is handed over to its head."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class FairTimes:
    """The timeouts of a fair lock's waiters, in milliseconds."""

    presence_ms: int
    """How long a waiter counts as alive after each attempt."""
    look_ms: int
    """Time after which a waiter checks again, whatever messages it gets."""
    claim_ms: int
    """How long the lock, once handed over, waits for its new holder to claim it."""


@dataclass(frozen=True, slots=True)
class AcquireFair(Operation[Acquired | Held]):
    """Take the lock for `ttl_ms` if it was handed to this holder, or is free without an earlier live waiter.

    Otherwise wait in the queue, or keep the place in it; a caller that does not wait leaves no trace. `Held.free_in_ms`
    says when to check again.
    """

    name: str
    holder_id: str
    process: str
    """The process of this holder: waiters of one process die, and pause, together."""
    ttl_ms: int
    times: FairTimes
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RenewFair(Operation[Renewed | Lost]):
    """Extend the lease to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseFair(Operation[Released | Lost]):
    """End the lease and hand the lock to the head of the queue; for a waiter, give up its place."""

    name: str
    holder_id: str
    times: FairTimes
