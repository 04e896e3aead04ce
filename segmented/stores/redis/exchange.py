"""Exchanges with a server on one connection, as generators: shared by sync and async and by all deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from segmented.errors import SegmentedError
from segmented.protocol.codecs import CODECS
from segmented.protocol.wire import Command, Dialect, Exchange, Reply, Send
from segmented.stores.redis.edge import our_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol import Operation

AnswerT = TypeVar("AnswerT")


def perform_one(operation: Operation[AnswerT], dialect: Dialect, attempt: int) -> Exchange[AnswerT]:
    """Perform one operation. From the second `attempt` on, an earlier one may have run and lost its reply."""
    codec = CODECS[type(operation)]
    answer: Any = None
    if codec.native is not None and dialect is not Dialect.SCRIPT:
        commands = codec.native.encode(operation, dialect)
        if commands:
            replies = yield Send(commands)
            for reply in replies:
                if isinstance(reply, ResponseError):
                    break  # the script reports the error, or works
            else:
                answer = codec.native.decode(operation, replies)
    if answer is None:
        call = codec.encode(operation)
        (reply,) = yield Send((call.command(),))
        if isinstance(reply, NoScriptError):  # after a restart, a SCRIPT FLUSH or a change of server
            (reply,) = yield Send((call.full_command(),))
        if isinstance(reply, ResponseError):
            raise reply
        answer = codec.decode(operation, reply)
    if codec.finish is not None:
        answer = yield from codec.finish(operation, answer)
    if attempt > 1 and codec.doubt is not None:
        answer = codec.doubt(answer)
    return answer  # type: ignore[no-any-return]  # the codec's answer has no type here


def perform_again(operation: Operation[AnswerT], dialect: Dialect, attempt: int) -> Exchange[AnswerT]:
    """Perform an operation of a batch whose replies were lost."""
    return perform_one(operation, dialect, attempt + 1)


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, dialect: Dialect, attempt: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in two if scripts were not cached.

    From the second `attempt` on, an earlier one may have run and lost its replies.
    """
    requests = [_Request(operation, dialect) for operation in operations]
    replies = yield Send([command for request in requests for command in request.commands])
    position = 0
    for request in requests:
        request.read(replies[position : position + len(request.commands)], where)
        position += len(request.commands)
    again = [request for request in requests if request.answer is None]
    if again:
        late = yield Send(
            [CODECS[type(request.operation)].encode(request.operation).full_command() for request in again]
        )
        for request, reply in zip(again, late, strict=True):
            request.answer = _decoded(request.operation, reply, where)
    for request in requests:
        finish = CODECS[type(request.operation)].finish
        if finish is not None and not isinstance(request.answer, SegmentedError):
            request.answer = yield from finish(request.operation, request.answer)
    if attempt > 1:
        for request in requests:
            request.doubt()
    return [request.answer for request in requests]


def publishing(channel: str, word: str, _: Dialect, __: int) -> Exchange[None]:
    """Send one message."""
    yield Send((("PUBLISH", channel, word),))


class _Request:
    """One operation of a batch; `answer` is None while the whole script still has to be sent."""

    def __init__(self, operation: Operation[Any], dialect: Dialect) -> None:
        codec = CODECS[type(operation)]
        self.operation = operation
        self.answer: Any = None
        self.commands: Sequence[Command] = ()
        if codec.native is not None and dialect is not Dialect.SCRIPT:
            self.commands = codec.native.encode(operation, dialect)
        self._native = codec.native if self.commands else None
        if not self.commands:
            self.commands = (codec.encode(operation).command(),)

    def read(self, replies: list[Reply], where: str) -> None:
        if self._native is not None:
            if not any(isinstance(reply, ResponseError) for reply in replies):
                self.answer = self._native.decode(self.operation, replies)
        elif not isinstance(replies[0], NoScriptError):
            self.answer = _decoded(self.operation, replies[0], where)

    def doubt(self) -> None:
        """Read the answer as one to a repeat."""
        doubt = CODECS[type(self.operation)].doubt
        if doubt is not None and not isinstance(self.answer, SegmentedError):
            self.answer = doubt(self.answer)


def _decoded(operation: Operation[Any], reply: Reply, where: str) -> Any:  # noqa: ANN401  # the operation's own answer
    if isinstance(reply, ResponseError):
        return our_error(reply, where)
    try:
        return CODECS[type(operation)].decode(operation, reply)
    except SegmentedError as error:
        return error
