"""Operations on one server of a quorum. Asked of a `QuorumStore`, each goes to all its servers, and a majority decides.

A holder's votes carry a round, because requests overtake each other on a bad network: a release that was meant for an
earlier round must not take away the vote of a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.models import Acquired, Held, Lost, Released, Renewed, ServerIdentity
from segmented.protocol.base import Operation

ROUND_MAX: Final = 2**53
"""Later than every round: of a release by which the holder ends its lease."""
ROUND_REESTABLISHED: Final = ROUND_MAX - 1
"""Of a lease whose renewals take votes again, and of what takes such votes back: later than each attempt to acquire."""


@dataclass(frozen=True, slots=True)
class AcquireVote(Operation[Acquired | Held]):
    """Take the server's vote for `ttl_ms` if it is free. A repeat by the same holder id renews it.

    There is no fencing token: servers that do not know of each other cannot agree on one.
    """

    name: str
    holder_id: str
    ttl_ms: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class RenewVote(Operation[Renewed | Lost]):
    """Push the end of the vote out to `ttl_ms` from now, if it is still the holder's.

    Else it is never re-created, unless `reestablish` says so and nobody else has it: then the answer is Reestablished,
    which is a kind of Lost, because it does not prove that the lease lived on.
    """

    name: str
    holder_id: str
    ttl_ms: int
    reestablish: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseVote(Operation[Released | Lost]):
    """Give the vote back if it is the holder's and not of a later round than `round`.

    A quiet release wakes nobody: those who saw the vote taken know that it was no majority.
    """

    name: str
    holder_id: str
    round: int = ROUND_MAX
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class IdentifyServer(Operation[ServerIdentity]):
    """Ask a server which one it is."""
