"""Exchanges with a server on one connection: as generators, shared by sync and async, and the connection for threads.

Deadlines use redis-py's public interface, which is the same for its own parsers and for hiredis: the timeout of a
connection before it connects limits each step of the handshake, and the timeout of a read limits each reply.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError, TimeoutError as RedisTimeoutError
from redis.retry import Retry

from segmented.errors import SegmentedError
from segmented.protocol.codecs import CODECS
from segmented.protocol.wire import QUESTION, Call, Command, Dialect, Exchange, Reply, Send, dialect_of
from segmented.stores.redis.edge import CONNECT_TIMEOUT, SOCKET_TIMEOUT, our_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation
    from segmented.stores.redis.connections import ServerCheck

pack_command: Callable[[Any], bytes] | None = None
with suppress(ImportError):  # an optional dependency, which is faster
    from hiredis import pack_command

AnswerT = TypeVar("AnswerT")

NO_RETRY: Final = Retry(NoBackoff(), 0)
TOO_LATE: Final = "the deadline came first"
SMALL: Final = 4_096
"""Number of bytes that fit into any socket's buffer, so that sending them does not block."""


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
        (reply,) = yield Send((_by_digest(call),))
        if isinstance(reply, NoScriptError):  # after a restart, a SCRIPT FLUSH or a change of server
            (reply,) = yield Send((_whole(call),))
        if isinstance(reply, ResponseError):
            raise reply
        answer = codec.decode(operation, reply)
    if codec.finish is not None and codec.finishes(operation):
        answer = yield from codec.finish(operation, answer)
    if attempt > 1 and codec.doubt is not None:
        answer = codec.doubt(answer)
    return answer  # type: ignore[no-any-return]  # the codec's answer has no type here


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, dialect: Dialect, _: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in two if scripts were not cached."""
    requests = [_Request(operation, dialect) for operation in operations]
    replies = yield Send([command for request in requests for command in request.commands])
    position = 0
    for request in requests:
        request.read(replies[position : position + len(request.commands)], where)
        position += len(request.commands)
    again = [request for request in requests if request.answer is None]
    if again:
        late = yield Send([_whole(CODECS[type(request.operation)].encode(request.operation)) for request in again])
        for request, reply in zip(again, late, strict=True):
            request.answer = _decoded(request.operation, reply, where)
    for request in requests:
        codec = CODECS[type(request.operation)]
        if codec.finish is None or isinstance(request.answer, SegmentedError) or not codec.finishes(request.operation):
            continue
        request.answer = yield from codec.finish(request.operation, request.answer)
    return [request.answer for request in requests]


def freeing(
    operation: Operation[Any], behind: Operation[Any], where: str, dialect: Dialect, attempt: int
) -> Exchange[list[Any]]:
    """Perform a release and then a waiter's attempt in one round trip; one answer or error each."""
    answers = yield from perform_all((operation, behind), where, dialect, attempt)
    doubt = CODECS[type(operation)].doubt
    if attempt > 1 and doubt is not None and not isinstance(answers[0], SegmentedError):
        answers[0] = doubt(answers[0])
    return answers


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
            self.commands = (_by_digest(codec.encode(operation)),)

    def read(self, replies: list[Reply], where: str) -> None:
        if self._native is not None:
            if not any(isinstance(reply, ResponseError) for reply in replies):
                self.answer = self._native.decode(self.operation, replies)
        elif not isinstance(replies[0], NoScriptError):
            self.answer = _decoded(self.operation, replies[0], where)


def _by_digest(call: Call) -> Command:
    script = call.script
    return call.arguments if script is None else ("EVALSHA", script.sha, len(call.keys), *call.keys, *call.arguments)


def _whole(call: Call) -> Command:
    """Return the command with the script's text, which also caches it."""
    script = call.script
    return call.arguments if script is None else ("EVAL", script.text, len(call.keys), *call.keys, *call.arguments)


def _decoded(operation: Operation[Any], reply: Reply, where: str) -> Any:  # noqa: ANN401  # the operation's own answer
    if isinstance(reply, ResponseError):
        return our_error(reply, where)
    try:
        return CODECS[type(operation)].decode(operation, reply)
    except SegmentedError as error:
        return error


def packed(commands: Sequence[Command]) -> bytes:
    """Encode commands for the wire. Faster than the driver's packer, which supports more types."""
    if pack_command is not None:
        return b"".join([pack_command(tuple(command)) for command in commands])
    pieces: list[str] = []
    for command in commands:
        pieces.append(f"*{len(command)}\r\n")
        for argument in command:
            said = argument if type(argument) is str else str(argument)
            pieces.append(f"${len(said) if said.isascii() else len(said.encode())}\r\n{said}\r\n")
    return "".join(pieces).encode()


class Wire:
    """One connection, used by one exchange at a time."""

    def __init__(self, connection: Any, dialect: Dialect | None) -> None:  # noqa: ANN401  # of the client's own class
        """Take over `connection`, which is not connected yet; without a `dialect`, ask the server for it."""
        self.connection = connection
        self.connection.retry = NO_RETRY
        self._wanted = dialect
        self._connect_seconds: float = connection.socket_connect_timeout or CONNECT_TIMEOUT
        self._seconds: float = connection.socket_timeout or SOCKET_TIMEOUT
        self._is_hasty = False
        """Whether a deadline shorter than its own timeout was set for connecting, and may still be set."""
        self.dialect = dialect
        self.idle_since = 0.0

    def open(self, seconds_left: float, check: ServerCheck | None = None) -> Dialect:
        """Connect if needed, and read the server's dialect; with a `check`, also check that the server is usable."""
        if seconds_left <= 0:
            raise RedisTimeoutError(TOO_LATE)
        if not self.connection.is_connected:
            self._connect(seconds_left)
            self.dialect = self._wanted
        if self.dialect is None or check is not None:
            replies = self.ask(greeting(check, self._wanted), min(self._seconds, seconds_left))
            self.dialect = greeted(replies, check, self._wanted)
        return self.dialect

    def _connect(self, seconds_left: float) -> None:
        connection = self.connection
        connection.socket_connect_timeout = min(self._connect_seconds, seconds_left)
        connection.socket_timeout = min(self._seconds, seconds_left)  # each step of the handshake
        connection.connect()
        self._is_hasty = seconds_left < self._seconds
        connection.socket_timeout = self._seconds

    def ask(self, commands: Sequence[Command], seconds: float) -> list[Reply]:
        """Send commands together and read one reply each; a server error is a value."""
        connection = self.connection
        data = packed(commands)
        replies: list[Reply] = []
        try:
            if self._is_hasty and len(data) > SMALL:
                connection.update_current_socket_timeout(self._seconds)
            connection.send_packed_command((data,), check_health=False)
            for _ in commands:
                try:
                    if self._is_hasty or seconds != self._seconds:
                        replies.append(connection.read_response(timeout=seconds))
                    else:
                        replies.append(connection.read_response())  # its own timeout applies; none has to be set
                except ResponseError as error:
                    replies.append(error)
        except BaseException:
            self.close()  # a late reply must not be read as the answer to another request
            raise
        return replies

    def converse(self, exchange: Exchange[AnswerT], now: Callable[[], float], deadline: float) -> AnswerT:
        """Run an exchange until it returns."""
        send: Send = next(exchange)
        while True:
            seconds = min(self._seconds + send.patience, deadline - now())
            if seconds <= 0:
                raise RedisTimeoutError(TOO_LATE)
            replies = self.ask(send.commands, seconds)
            try:
                send = exchange.send(replies)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here

    def close(self) -> None:
        """Disconnect; the next `open` connects again."""
        self.connection.disconnect()


def greeting(check: ServerCheck | None, wanted: Dialect | None) -> Sequence[Command]:
    """Return the commands sent to a server before its first operation, in one round trip."""
    return (*(() if wanted else (QUESTION,)), *(check.commands if check else ()))


def greeted(replies: Sequence[Reply], check: ServerCheck | None, wanted: Dialect | None) -> Dialect:
    """Read the replies to `greeting`. Raises InvalidInput for an unusable server."""
    if check is not None:
        check.read(replies[-len(check.commands) :])
    return wanted or dialect_of(replies[0])
