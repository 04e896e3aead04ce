"""Exchanges with a server on one connection, as generators: shared by sync and async and by all deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from segmented.errors import SegmentedError
from segmented.protocol.codecs import CODECS
from segmented.protocol.wire import Call, Command, Dialect, Exchange, Reply, Send
from segmented.stores.redis.edge import our_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.protocol import Operation
    from segmented.protocol.seen import Seen

AnswerT = TypeVar("AnswerT")


def perform_one(operation: Operation[AnswerT], seen: Seen, dialect: Dialect, attempt: int) -> Exchange[AnswerT]:
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
        name = seen.added_to(call)
        (reply,) = yield Send((call.command(),))
        if isinstance(reply, NoScriptError):  # after a restart, a SCRIPT FLUSH or a change of server
            (reply,) = yield Send((call.full_command(),))
        if isinstance(reply, ResponseError):
            raise seen.error(operation, reply)
        answer = codec.decode(operation, reply)
        seen.learn(name, codec, reply, answer)
    if codec.finish is not None:
        answer = yield from codec.finish(operation, answer)
    if attempt > 1 and codec.doubt is not None:
        answer = codec.doubt(answer)
    return answer  # type: ignore[no-any-return]  # the codec's answer has no type here


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, seen: Seen, dialect: Dialect, _: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in two if scripts were not cached."""
    requests = [_Request(operation, seen, dialect) for operation in operations]
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
        finish = CODECS[type(request.operation)].finish
        if finish is not None and not isinstance(request.answer, SegmentedError):
            request.answer = yield from finish(request.operation, request.answer)
    return [request.answer for request in requests]


def freeing(
    operation: Operation[Any], behind: Operation[Any], where: str, seen: Seen, dialect: Dialect, attempt: int
) -> Exchange[list[Any]]:
    """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
    answers = yield from perform_all((operation, behind), where, seen, dialect, attempt)
    doubt = CODECS[type(operation)].doubt
    if attempt > 1 and doubt is not None and not isinstance(answers[0], SegmentedError):
        answers[0] = doubt(answers[0])
    return answers


def publishing(channel: str, word: str, _: Dialect, __: int) -> Exchange[None]:
    """Send one message."""
    yield Send((("PUBLISH", channel, word),))


class _Request:
    """One operation of a batch; `answer` is None while the whole script still has to be sent."""

    def __init__(self, operation: Operation[Any], seen: Seen, dialect: Dialect) -> None:
        self.operation = operation
        self.answer: Any = None
        self.commands: Sequence[Command] = ()
        self._codec = CODECS[type(operation)]
        self._seen = seen
        self._name: str | None = None
        native = self._codec.native
        if native is not None and dialect is not Dialect.SCRIPT:
            self.commands = native.encode(operation, dialect)
        self._native = native if self.commands else None
        if not self.commands:
            self.commands = (self._call().command(),)

    def _call(self) -> Call:
        call = self._codec.encode(self.operation)
        self._name = self._seen.added_to(call)
        return call

    def in_full(self) -> Command:
        return self._call().full_command()

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
        self._seen.learn(self._name, self._codec, reply, self.answer)
