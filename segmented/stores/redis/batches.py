"""Exchanges of many independent operations at once: one round trip, and another for those that must be sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from segmented.errors import SegmentedError
from segmented.protocol.acknowledging import profile_wait, shortfall, unknown
from segmented.protocol.wire import Dialect, Send, sharded
from segmented.stores.redis.edge import our_error
from segmented.stores.redis.exchange import by_digest, finished, named, whole
from segmented.stores.redis.pool_errors import raise_misread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.models.profiles import Profile
    from segmented.protocol import Operation
    from segmented.protocol.wire import Call, Command, Exchange, Peer, Reply
    from segmented.stores.redis.exchange import Seen

AnswerT = TypeVar("AnswerT")


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, seen: Seen, numbers: Sequence[int], peer: Peer, attempt: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in more if scripts were not cached or profiles not known.

    From the second `attempt` on, an earlier one may have run and lost its replies. `numbers` are the calls', of CALLS.
    """
    requests = [
        _Request(operation, seen, peer, named(number, attempt))
        for operation, number in zip(operations, numbers, strict=True)
    ]
    left = requests
    while left:
        yield from _sent(left, where)
        left = [request for request in left if not request.is_answered]
        for request in left:
            request.is_whole = True
    for request in requests:
        if isinstance(request.answer, SegmentedError):
            continue
        finishing = request.operation.continued(request.answer)
        if finishing is None:
            continue
        try:
            request.answer = yield from finished(finishing, seen, peer, request.call_name)
        except SegmentedError as error:
            request.answer = error
    if attempt > 1:
        for request in requests:
            request.doubt()
    return [request.answer for request in requests]


def _sent(requests: Sequence[_Request], where: str) -> Exchange[None]:
    """Send requests together, behind them one waiting command for each profile among them, and read the replies."""
    encoded = [request.encode() for request in requests]
    profiles = list(dict.fromkeys(request.profile for request in requests if request.profile is not None))
    commands = [command for found in encoded for command in found]
    patience = sum(profile.seconds for profile in profiles)
    replies = yield Send([*commands, *map(profile_wait, profiles)], patience)
    counts = dict(zip(profiles, replies[len(commands) :], strict=True))
    position = 0
    for request, found in zip(requests, encoded, strict=True):
        profile = request.profile
        lacking = None if profile is None else shortfall(profile, counts[profile])
        request.read(replies[position : position + len(found)], where, is_acknowledged=lacking is None)
        if profile is not None and lacking is not None and request.is_answered:
            request.answer = unknown(request.operation, request.answer, profile, lacking)
        position += len(found)


class _Request:
    """One operation of a batch. It is sent again until it is answered: by its script's text, or with its profile."""

    def __init__(self, operation: Operation[Any], seen: Seen, peer: Peer, call_name: str) -> None:
        self.operation = operation
        self.call_name = call_name
        self.answer: Any = None
        self.is_answered = False
        self.is_whole = False
        """Whether to send the script's text, which its digest was not enough for."""
        self.profile: Profile | None = None
        self._seen = seen
        self._peer = peer
        self._call: Call
        self._is_native = False

    def encode(self) -> Sequence[Command]:
        if not self.is_whole and self._peer.dialect is not Dialect.SCRIPT:
            commands = self.operation.native(self._peer.dialect)
            if commands:
                self._is_native = True
                return sharded(commands) if self._peer.is_cluster else commands
        self._is_native = False
        self._call = self.operation.call()
        if self._peer.is_cluster and self._call.script is not None:
            self._call.script = self._call.script.in_cluster
        self._seen.added_to(self._call, self._peer.server, self.call_name)
        self.profile = self._seen.profile_for(self._call, self.operation)
        return (whole(self._call) if self.is_whole else by_digest(self._call),)

    def read(self, replies: list[Reply], where: str, *, is_acknowledged: bool) -> None:
        if self._is_native:
            if not isinstance(replies[0], ResponseError):  # a refused message changes nothing
                self.answer = self.operation.native_answer(replies)
                self.is_answered = self.answer is not None
            return
        (reply,) = replies
        if isinstance(reply, ResponseError):
            if not isinstance(reply, NoScriptError) and not self._seen.learns_profile(self._call, reply):
                found = self._seen.error(self.operation, reply, self._call.key)
                self.answer = found if isinstance(found, SegmentedError) else our_error(found, where)
                self.is_answered = True
            return
        self.is_answered = True
        try:
            try:
                self.answer = self.operation.answer(reply)
            except Exception as error:
                raise_misread(error, self.operation, self._call.key)
                raise
        except SegmentedError as error:
            self.answer = error
            return
        is_kept = is_acknowledged and self.profile is not None
        server = self._peer.server
        self._seen.learn(self._call, self.operation, reply, self.answer, server, is_acknowledged=is_kept)

    def doubt(self) -> None:
        """Read the answer as one to a repeat."""
        if not isinstance(self.answer, SegmentedError):
            self.answer = self.operation.doubt(self.answer)
