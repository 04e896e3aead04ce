"""A claim: what one would-be holder of one kind of lock asks of a store. Each kind of lock is one class of claims.

The waiting, the trusting, the renewing and the releasing are the same for every kind; only these operations differ.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
    from segmented.protocol import Operation


def new_holder_id() -> str:
    """Return 32 random hexadecimal digits: one holder, one lease."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True)
class LeaseClaim(ABC):
    """What a lease asks for once it is held, whatever it is a lease on. All its operations are safe to run twice."""

    kind: ClassVar[str]
    """The kind of lock, as `segmented lock show` names it."""
    mode: ClassVar[str] = "exclusive"
    """What a sequencer says: `exclusive` or `shared`."""

    name: str
    holder_id: str
    ttl_ms: int

    @abstractmethod
    def renewing(self, ttl_ms: int) -> Operation[Renewed | Lost]:
        """Ask for `ttl_ms` from now, if the lease is still the holder's; never re-creates it."""

    @abstractmethod
    def releasing(self) -> Operation[Released | Lost]:
        """End the lease, and whatever an attempt left behind, and wake who is next."""


@dataclass(frozen=True, slots=True)
class Claim(LeaseClaim):
    """One holder's claim to one name, for `ttl_ms`."""

    may_be_handed: ClassVar[bool] = False
    """May a release make the next waiter's attempt for it, in the same round trip?"""
    leaves_traces: ClassVar[bool] = False
    """Does a failed attempt leave something in the store (a place in a queue), to be released if the wait ends?"""

    @property
    @abstractmethod
    def channel(self) -> str:
        """Where those who wait for this claim are told that it may succeed now."""

    @abstractmethod
    def acquiring(self) -> Operation[Acquired | Held | Unreplicated]:
        """Ask for the lease; a repeat by the same holder id is told yes again."""

    def acquiring_when_behind(self) -> Operation[Acquired | Held | Unreplicated] | None:
        """Ask for what need not wait for its turn behind others of the same process; None: there is no such thing."""
        return None
