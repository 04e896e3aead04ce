"""Exchanges that perform independent operations together, in one round trip or two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from segmented.errors import SegmentedError
from segmented.protocol.codecs import CODECS
from segmented.protocol.wire import Call, Command, Dialect, Exchange, Peer, Reply, Send
from segmented.stores.redis.edge import our_error
from segmented.stores.redis.exchange import Seen, by_digest, finished, named, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, seen: Seen, numbers: Sequence[int], peer: Peer, attempt: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in two if scripts were not cached.

    From the second `attempt` on, an earlier one may have run and lost its replies. `numbers` are the calls', of CALLS.
    """
    requests = [
        _Request(operation, seen, peer, named(number, attempt))
        for operation, number in zip(operations, numbers, strict=True)
    ]
    replies = yield Send([command for request in requests for command in request.commands])
    position = 0
    for request in requests:
        request.read(replies[position : position + len(request.commands)], where)
        position += len(request.commands)
    again = [request for request in requests if request.answer is None]
    if again:
        late = yield Send([request.in_full() for request in again])
        for request, reply in zip(again, late, strict=True):
            request.read_script(reply, where)
    for request in requests:
        codec = CODECS[type(request.operation)]
        if codec.finish is None or isinstance(request.answer, SegmentedError) or not codec.finishes(request.operation):
            continue
        try:
            answer, name = request.answer, request.call_name
            request.answer = yield from finished(codec, request.operation, answer, seen, peer, name)
        except SegmentedError as error:
            request.answer = error
    if attempt > 1:
        for request in requests:
            request.doubt()
    return [request.answer for request in requests]


class _Request:
    """One operation of a batch; `answer` is None while the whole script still has to be sent."""

    def __init__(self, operation: Operation[Any], seen: Seen, peer: Peer, call_name: str) -> None:
        self.operation = operation
        self.call_name = call_name
        self.answer: Any = None
        self.commands: Sequence[Command] = ()
        self._codec = CODECS[type(operation)]
        self._seen = seen
        self._server = peer.server
        self.name: str | None = None
        native = self._codec.native
        if native is not None and peer.dialect is not Dialect.SCRIPT:
            self.commands = native.encode(operation, peer.dialect)
        self._native = native if self.commands else None
        if not self.commands:
            self.commands = (by_digest(self._call()),)

    def _call(self) -> Call:
        call = self._codec.encode(self.operation)
        self.name = self._seen.added_to(call, self._server, self.call_name)
        return call

    def in_full(self) -> Command:
        return whole(self._call())

    def read(self, replies: list[Reply], where: str) -> None:
        if self._native is not None:
            if not any(isinstance(reply, ResponseError) for reply in replies):
                self.answer = self._native.decode(self.operation, replies)
        elif not isinstance(replies[0], NoScriptError):
            self.read_script(replies[0], where)

    def read_script(self, reply: Reply, where: str) -> None:
        if isinstance(reply, ResponseError):
            found = self._seen.error(self.operation, reply)
            self.answer = found if isinstance(found, SegmentedError) else our_error(found, where)
            return
        try:
            self.answer = self._codec.decode(self.operation, reply)
        except SegmentedError as error:
            self.answer = error
            return
        self._seen.learn(self.name, self._codec, reply, self.answer)

    def doubt(self) -> None:
        """Read the answer as one to a repeat."""
        if self._codec.doubt is not None and not isinstance(self.answer, SegmentedError):
            self.answer = self._codec.doubt(self.answer)
