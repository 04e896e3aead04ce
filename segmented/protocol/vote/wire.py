"""One server's votes for locks that a majority keeps, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.keys import lock_keys
from segmented.models import Acquired, HeldBy, Lost, Reestablished, Renewed, ServerIdentity
from segmented.protocol import AcquireVote, IdentifyServer, ReleaseVote, RenewVote
from segmented.protocol.lock.wire import FENCE_IDLE_MS
from segmented.protocol.vote.operations import ROUND_MAX, ROUND_REESTABLISHED
from segmented.protocol.wire import Call, Codec, load_script, optional_number, released_or_lost, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

NO_TOKEN: Final = 0


def _encode_acquire(operation: AcquireVote) -> Call:
    keys, fence_ttl_ms = lock_keys(operation.name).listed(), FENCE_IDLE_MS + operation.ttl_ms
    return script_call("acquire_vote", keys, operation.holder_id, operation.ttl_ms, operation.round, fence_ttl_ms)


def _decode_acquire(operation: AcquireVote, reply: Reply) -> Acquired | HeldBy:
    if text(reply[0]) == "held":
        return HeldBy(optional_number(reply[1]), holder_mark=text(reply[2]))
    return Acquired(NO_TOKEN, operation.ttl_ms, replay=text(reply[1]) == "1")


def _encode_renew(operation: RenewVote) -> Call:
    keys, fence_ttl_ms = lock_keys(operation.name).listed(), FENCE_IDLE_MS + operation.ttl_ms
    round_anew = ROUND_REESTABLISHED if operation.reestablish else 0
    return script_call("renew_vote", keys, operation.holder_id, operation.ttl_ms, round_anew, fence_ttl_ms)


def _decode_renew(operation: RenewVote, reply: Reply) -> Renewed | Lost:
    match text(reply[0]):
        case "renewed":
            return Renewed(operation.ttl_ms)
        case "reestablished":
            return Reestablished()
    return Lost()


def _encode_release(operation: ReleaseVote) -> Call:
    keys = lock_keys(operation.name).listed()
    quiet, is_end = int(operation.quiet), int(operation.round == ROUND_MAX)
    return script_call("release_vote", keys, operation.holder_id, operation.round, quiet, is_end)


class _KeylessCall(Call):
    """A script without keys, which any server of a cluster runs."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """A dummy key that routes the script to any server; the script reads no key."""
        return "anywhere"


def _encode_identify(_: IdentifyServer) -> Call:
    return _KeylessCall(load_script("identify_server"), (), ())


def _decode_identify(_: IdentifyServer, reply: Reply) -> ServerIdentity:
    server, replication, nodes = (text(part) for part in reply)
    node_ids = frozenset(line.split()[0] for line in nodes.splitlines() if line.strip())
    return ServerIdentity(_field(server, "run_id"), _field(replication, "master_replid"), node_ids)


def _field(info: str, name: str) -> str:
    lines = (line.partition(":") for line in info.splitlines())
    return next((value.strip() for key, _, value in lines if key == name), "")


CODECS: Final = {
    AcquireVote: Codec(_encode_acquire, _decode_acquire),
    RenewVote: Codec(_encode_renew, _decode_renew),
    ReleaseVote: Codec(_encode_release, released_or_lost),
    IdentifyServer: Codec(_encode_identify, _decode_identify),
}
