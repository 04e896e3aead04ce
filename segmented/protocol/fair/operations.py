"""Operations on fair locks: a queue in the store, and a lock that is handed over to its head."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.models import Acquired, Held, Lost, Released, Renewed
from segmented.protocol.base import Operation


@dataclass(frozen=True, slots=True)
class FairTimes:
    """How patient a fair lock is with those who wait, in milliseconds."""

    presence_ms: int
    """For how long a waiter counts as alive after each of its attempts."""
    look_ms: int
    """After how long a waiter is to look again, whatever it hears."""
    claim_ms: int
    """For how long the lock, once handed over, waits for its new holder to come and take it."""


@dataclass(frozen=True, slots=True)
class AcquireFair(Operation[Acquired | Held]):
    """Take the lock for `ttl_ms` if it was handed to this holder, or is free and nobody alive came before.

    Else wait in the queue, or keep the place in it; one that does not wait leaves no trace. `Held.free_in_ms` says when
    to look again.
    """

    name: str
    holder_id: str
    process: str
    """Names the process of this holder: those of one process die, and stand still, together."""
    ttl_ms: int
    times: FairTimes
    waits: bool = True


@dataclass(frozen=True, slots=True)
class RenewFair(Operation[Renewed | Lost]):
    """Push the end of the lease out to `ttl_ms` from now, if it is still the holder's. Never re-creates it."""

    name: str
    holder_id: str
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseFair(Operation[Released | Lost]):
    """End the lease and hand the lock to the head of the queue; or, of one that still waits, give up its place."""

    name: str
    holder_id: str
    times: FairTimes
