"""Operations on a lock's line in ZooKeeper: the ephemeral sequential nodes of its holder and its waiters.

Each is bound to an era: the time in which one session is known to live. Operations of a past era fail, so that a node
left by an old session is never taken for ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from segmented.errors import StoreUnavailable
from segmented.protocol.base import Operation


class Unanswered(StoreUnavailable):
    """The request got no answer: the connection was lost or it timed out. The session may still be alive."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One place in a lock's line. The first in line holds the lock."""

    holder_id: str
    sequence: int
    path: str


@dataclass(frozen=True, slots=True)
class Entered:
    """Our contender, with the zxid of its creation, which becomes its fencing token once it is first in line."""

    contender: Contender
    fencing_token: int


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """The locally known state of the session."""

    era: int
    link: int
    """The number of the connection; each new one requires a new check of a lease."""
    is_connected: bool
    is_fresh: bool
    """Whether the session was confirmed recently enough to trust a lease."""


@dataclass(frozen=True, slots=True)
class LookAtSession(Operation[SessionSeen]):
    """Return the known state without asking the server. Raises StoreUnavailable if `era` is over (None: any era)."""

    era: int | None


@dataclass(frozen=True, slots=True)
class LearnSessionTime(Operation[None]):
    """Return how long the server keeps a session of this client without hearing from it."""

    era: int


@dataclass(frozen=True, slots=True)
class ConfirmSession(Operation[None]):
    """Let the leader confirm the session; later reads are at least as new as this."""

    era: int


@dataclass(frozen=True, slots=True)
class MakeParent(Operation[None]):
    """Create the parent node of the line and its ancestors, if they are missing."""

    era: int
    parent: str


@dataclass(frozen=True, slots=True)
class CreateContender(Operation[Entered | None]):
    """Take the last place in line. None: the parent is missing. Check the line before a repeat."""

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
    """Return whether a node exists; if so, the channel is notified once when that changes."""

    era: int
    contender: Contender
    channel: str


@dataclass(frozen=True, slots=True)
class DeleteContender(Operation[bool]):
    """Leave the line. False: the node was already gone."""

    era: int
    contender: Contender
