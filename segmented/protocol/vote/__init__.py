"""Operations on one server of a quorum. A `QuorumStore` sends each to all its servers, and a majority decides.

A holder's votes carry a round, because requests may overtake each other in the network: a release for an earlier round
must not remove the vote of a later one.
"""

from __future__ import annotations

from typing import ClassVar, Final

from segmented.keys import lock_keys
from segmented.models import Acquired, Held, HeldBy, Lost, Reestablished, Released, Renewed, ServerIdentity
from segmented.protocol.base import Operation
from segmented.protocol.lock import FENCE_IDLE_MS
from segmented.protocol.operator import CallAnywhere
from segmented.protocol.wire import Call, Reply, load_script, optional_number, script_call, text
from segmented.values import light_dataclass

NO_TOKEN: Final = 0
ROUND_MAX: Final = 2**53
"""Later than every round: for the release that ends the holder's lease."""
ROUND_REESTABLISHED: Final = ROUND_MAX - 1
"""For renewals that take votes again, and for giving such votes back: later than each attempt to acquire."""


@light_dataclass(frozen=True, slots=True)
class AcquireVote(Operation[Acquired | Held]):
    """Take the server's vote for `ttl_ms` if it is free. A repeat by the same holder id renews it.

    There is no fencing token: independent servers cannot agree on one.
    """

    lease_kind: ClassVar = "quorum"
    name: str
    holder_id: str
    ttl_ms: int
    round: int = 0

    def call(self) -> Call:
        keys, fence_ttl_ms = lock_keys(self.name).listed(), FENCE_IDLE_MS + self.ttl_ms
        return script_call("acquire_vote", keys, self.holder_id, self.ttl_ms, self.round, fence_ttl_ms)

    def answer(self, reply: Reply) -> Acquired | HeldBy:
        if text(reply[0]) == "held":
            return HeldBy(optional_number(reply[1]), holder_mark=text(reply[2]))
        return Acquired(NO_TOKEN, self.ttl_ms, replay=text(reply[1]) == "1")


@light_dataclass(frozen=True, slots=True)
class RenewVote(Operation[Renewed | Lost]):
    """Extend the vote to `ttl_ms` from now, if it is still the holder's.

    A lost vote is re-created only with `reestablish` and if it is free. The answer is then Reestablished, which is a
    kind of Lost, because it does not prove that the lease was never interrupted.
    """

    name: str
    holder_id: str
    ttl_ms: int
    reestablish: bool = False

    def call(self) -> Call:
        keys, fence_ttl_ms = lock_keys(self.name).listed(), FENCE_IDLE_MS + self.ttl_ms
        round_anew = ROUND_REESTABLISHED if self.reestablish else 0
        return script_call("renew_vote", keys, self.holder_id, self.ttl_ms, round_anew, fence_ttl_ms)

    def answer(self, reply: Reply) -> Renewed | Lost:
        match text(reply[0]):
            case "renewed":
                return Renewed(self.ttl_ms)
            case "reestablished":
                return Reestablished()
        return Lost()


@light_dataclass(frozen=True, slots=True)
class ReleaseVote(Operation[Released | Lost]):
    """Release the vote if it is the holder's and not of a later round than `round`.

    A quiet release wakes no waiter: those that saw the vote taken know that it was not a majority.
    """

    name: str
    holder_id: str
    round: int = ROUND_MAX
    quiet: bool = False

    def call(self) -> Call:
        keys = lock_keys(self.name).listed()
        quiet, is_end = int(self.quiet), int(self.round == ROUND_MAX)
        return script_call("release_vote", keys, self.holder_id, self.round, quiet, is_end)

    def answer(self, reply: Reply) -> Released | Lost:
        return Released() if text(reply[0]) == "released" else Lost()


@light_dataclass(frozen=True, slots=True)
class IdentifyServer(Operation[ServerIdentity]):
    """Return the identity of a server."""

    def call(self) -> Call:
        return CallAnywhere(load_script("identify_server"), (), ())

    def answer(self, reply: Reply) -> ServerIdentity:
        server, replication, nodes = (text(part) for part in reply)
        node_ids = frozenset(line.split()[0] for line in nodes.splitlines() if line.strip())
        return ServerIdentity(_field(server, "run_id"), _field(replication, "master_replid"), node_ids)


def _field(info: str, name: str) -> str:
    lines = (line.partition(":") for line in info.splitlines())
    return next((value.strip() for key, _, value in lines if key == name), "")
