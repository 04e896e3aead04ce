"""A claim: the operations with which one caller takes, renews and ends one kind of lock; one class per kind.

Waiting, trusting, renewing and releasing work the same way for every kind; only these operations differ.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from secrets import token_urlsafe
from socket import gethostname
from typing import TYPE_CHECKING, ClassVar, Final

from segmented.process import after_fork_in_child
from segmented.protocol.lock import LeaveLine

if TYPE_CHECKING:
    from segmented.models import Acquired, Held, Lost, Released, Renewed, Unreplicated
    from segmented.protocol import Operation


class ThisHolder:
    """The name of this host and process, with which an operator finds the holder of a lease."""

    def __init__(self) -> None:
        """Ask for it, and again in each child that this process forks."""
        self._name()
        after_fork_in_child(self._name)

    def _name(self) -> None:
        self.process = f"{re.sub('[^A-Za-z0-9.-]', '-', gethostname())[:64]}:{os.getpid()}"


HERE: Final = ThisHolder()


def new_holder_id() -> str:
    """Return 22 random characters (128 bits), which identify one holder of one lease, and this host and process.

    They are drawn from the system each time: ids drawn ahead would be the same in two copies of a stopped machine.
    """
    return f"{token_urlsafe(16)}@{HERE.process}"


@dataclass(frozen=True, slots=True)
class LeaseClaim(ABC):
    """The operations of a lease that is held. All are safe to run twice."""

    kind: ClassVar[str]
    """The kind of lock, as `segmented lock show` names it."""
    mode: ClassVar[str] = "exclusive"
    """The mode in a sequencer: `exclusive` or `shared`."""

    name: str
    holder_id: str
    ttl_ms: int

    @abstractmethod
    def renewing(self, ttl_ms: int) -> Operation[Renewed | Lost]:
        """Return the operation that renews a lease still held for `ttl_ms` from now; it never re-creates one."""

    @abstractmethod
    def releasing(self) -> Operation[Released | Lost]:
        """Return the operation that ends the lease, removes what attempts left behind and wakes the next waiter."""


@dataclass(frozen=True, slots=True)
class Claim(LeaseClaim):
    """A claim of one caller to one name, for `ttl_ms`."""

    may_be_handed: ClassVar[bool] = False
    """Whether a release may make the next waiter's attempt for it, in the same round trip."""
    leaves_traces: ClassVar[bool] = False
    """Whether a failed attempt leaves something in the store (a place in a queue), to be released if the wait ends."""

    waits_out_outages: ClassVar[bool] = True
    """Whether an acquire tries again until its deadline while its store cannot be reached."""
    look_seconds: ClassVar[float | None] = None
    """Seconds after which this process's first waiter checks again in any case; None for the usual time."""

    @property
    @abstractmethod
    def channel(self) -> str:
        """Return the channel that notifies the waiters that this claim may succeed now."""

    @abstractmethod
    def acquiring(self) -> Operation[Acquired | Held | Unreplicated]:
        """Return the operation that takes the lease; a repeat with the same holder id succeeds again."""

    def acquiring_in_line(self, party: str) -> Operation[Acquired | Held | Unreplicated] | None:  # noqa: ARG002  # kinds with a line use it
        """Return an attempt with a place for the process `party` in the line of processes, or None without a line."""
        return None

    def leaving_line(self, party: str) -> LeaveLine:
        """Return the operation that takes the process `party` out of that line, if the kind has one."""
        return LeaveLine(self.name, party)

    def acquiring_when_behind(self) -> Operation[Acquired | Held | Unreplicated] | None:
        """Return an attempt that may skip the process's own queue of waiters, or None if the kind has none."""
        return None
