"""Operations on one server of a quorum. A `QuorumStore` sends each to all its servers, and a majority decides.

A holder's votes carry a round, because requests may overtake each other in the network: a release for an earlier round
must not remove the vote of a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.models import Acquired, Held, Lost, Released, Renewed, ServerIdentity
from segmented.protocol.base import Operation

ROUND_MAX: Final = 2**53
"""Later than every round: for the release that ends the holder's lease."""
ROUND_REESTABLISHED: Final = ROUND_MAX - 1
"""For renewals that take votes again, and for giving such votes back: later than each attempt to acquire."""


@dataclass(frozen=True, slots=True)
class AcquireVote(Operation[Acquired | Held]):
    """Take the server's vote for `ttl_ms` if it is free. A repeat by the same holder id renews it.

    There is no fencing token: independent servers cannot agree on one.
    """

    name: str
    holder_id: str
    ttl_ms: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class RenewVote(Operation[Renewed | Lost]):
    """Extend the vote to `ttl_ms` from now, if it is still the holder's.

    A lost vote is re-created only with `reestablish` and if it is free. The answer is then Reestablished, which is a
    kind of Lost, because it does not prove that the lease was never interrupted.
    """

    name: str
    holder_id: str
    ttl_ms: int
    reestablish: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseVote(Operation[Released | Lost]):
    """Release the vote if it is the holder's and not of a later round than `round`.

    A quiet release wakes no waiter: those that saw the vote taken know that it was not a majority.
    """

    name: str
    holder_id: str
    round: int = ROUND_MAX
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class IdentifyServer(Operation[ServerIdentity]):
    """Return the identity of a server."""
