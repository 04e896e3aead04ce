"""Operations on a lock's line in ZooKeeper: the ephemeral sequential nodes of those who hold it, or wait for it.

Each is bound to an era: the time in which one session is known to live. An operation of an era that is over fails, so
that nothing that an old session left behind is ever taken for ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from segmented.errors import StoreUnavailable
from segmented.protocol.base import Operation


class Unanswered(StoreUnavailable):
    """The request was not answered: the connection went, or the time was up. The session may live on."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One place in a lock's line. The first in line holds the lock."""

    holder_id: str
    sequence: int
    path: str


@dataclass(frozen=True, slots=True)
class Entered:
    """A contender of ours, with the zxid of its creation, which is its fencing token once it is first in line."""

    contender: Contender
    fencing_token: int


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """What is known here and now about the session."""

    era: int
    link: int
    """The number of the connection; a lease is to be looked at again on each new one."""
    is_connected: bool
    is_fresh: bool
    """Has the session been confirmed so lately that a lease may be trusted?"""


@dataclass(frozen=True, slots=True)
class LookAtSession(Operation[SessionSeen]):
    """Say what is known, without asking the server. Raises StoreUnavailable when `era` is over (None: any will do)."""

    era: int | None


@dataclass(frozen=True, slots=True)
class LearnSessionTime(Operation[None]):
    """Learn for how long the server keeps a session of this client that it does not hear of."""

    era: int


@dataclass(frozen=True, slots=True)
class ConfirmSession(Operation[None]):
    """Have the leader confirm the session; what is read afterwards is at least as new as this."""

    era: int


@dataclass(frozen=True, slots=True)
class MakeParent(Operation[None]):
    """Make the node under which the line stands, and those above it, where they are missing."""

    era: int
    parent: str


@dataclass(frozen=True, slots=True)
class CreateContender(Operation[Entered | None]):
    """Take the last place in line. None: the parent is missing. Not to be repeated without having looked."""

    era: int
    parent: str
    holder_id: str


@dataclass(frozen=True, slots=True)
class ListContenders(Operation[tuple[Contender, ...]]):
    """Read the line, in order; empty when the parent is missing."""

    era: int
    parent: str


@dataclass(frozen=True, slots=True)
class ReadContender(Operation[Entered | None]):
    """Read a contender that may be ours. None: it is gone, or belongs to another session."""

    era: int
    contender: Contender


@dataclass(frozen=True, slots=True)
class WatchContender(Operation[bool]):
    """Is it there? If so, the channel is told once when that changes."""

    era: int
    contender: Contender
    channel: str


@dataclass(frozen=True, slots=True)
class DeleteContender(Operation[bool]):
    """Leave the line. False: it was not there any more."""

    era: int
    contender: Contender
