"""Exchanges with a server on one connection: as generators, shared by sync and async, and the connection for threads.

Deadlines use redis-py's public interface, which is the same for its own parsers and for hiredis: the timeout of a
connection before it connects limits each step of the handshake, and the timeout of a read limits each reply.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError, TimeoutError as RedisTimeoutError
from redis.retry import Retry

from segmented.errors import PoolFrozen, PoolVanished, SegmentedError
from segmented.models.shards import Shard, no_keys_of
from segmented.protocol.codecs import CODECS
from segmented.protocol.wire import (
    QUESTION,
    Call,
    Command,
    Dialect,
    Exchange,
    Reply,
    Send,
    Sight,
    dialect_of,
    position,
)
from segmented.stores.redis.edge import CONNECT_TIMEOUT, SOCKET_TIMEOUT, our_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation
    from segmented.protocol.wire import Codec
    from segmented.stores.redis.connections import ServerCheck

pack_command: Callable[[Any], bytes] | None = None
with suppress(ImportError):  # an optional dependency, which is faster
    from hiredis import pack_command

AnswerT = TypeVar("AnswerT")

NO_RETRY: Final = Retry(NoBackoff(), 0)
TOO_LATE: Final = "the deadline came first"
LOGGER: Final = logging.getLogger("segmented.stock")
LOCKS_MAX: Final = 10_000
"""Locks that one store remembers, the last ones that were acquired. Every pool is remembered."""
NOTHING: Final[Sight] = (0, 0, 0)
SMALL: Final = 4_096
"""Number of bytes that fit into any socket's buffer, so that sending them does not block."""


class Seen:
    """What a store has seen of the names on its server, so that a server that forgot some of it is noticed.

    For each pool it remembers the highest epoch with its highest sequence number, and the highest fencing token; for
    each lock the highest fencing token. It sends them with every script that declares so, as the last argument. A pool
    that is behind them has lost acknowledged changes, and the script freezes it. A new token exceeds them, also on a
    promoted server whose clock is behind. A name is the first key of a script. Thread-safe.
    """

    def __init__(self) -> None:
        """Create an empty memory."""
        self._pools: dict[str, Sight] = {}
        self._locks: dict[str, Sight] = {}
        self._lock = threading.Lock()
        self._reported: set[tuple[str, tuple[int, int]]] = set()
        self.on_frozen: Callable[[PoolFrozen], None] | None = None

    def added_to(self, call: Call) -> str | None:
        """Append the numbers to the call's arguments and return their name, or None for a script that takes none."""
        if call.script is None or not call.script.takes_seen:
            return None
        name = call.keys[0]
        sight = self._pools.get(name) or self._locks.get(name)
        call.arguments = (*call.arguments, "0-0-0" if sight is None else "{}-{}-{}".format(*sight))
        return name

    def learn(self, name: str | None, codec: Codec, reply: Reply, answer: object) -> None:
        """Remember what the answer to a call tells of its name."""
        if name is None:
            return
        if codec.sight is not None:
            sight = codec.sight(reply, answer)
        elif hasattr(answer, "fencing_token") or hasattr(answer, "epoch"):
            is_whole = hasattr(answer, "epoch") and hasattr(answer, "sequence")
            token = getattr(answer, "fencing_token", None) or 0
            sight = (answer.epoch, answer.sequence, token) if is_whole else (0, 0, token)  # type: ignore[attr-defined]  # hasattr says so
        else:
            return
        if sight is not None:
            self.note(name, sight)

    def epoch_of(self, name: str | None) -> int:
        """Return the highest epoch that was seen of a pool; 0 for an unknown name."""
        return self._pools.get(name, NOTHING)[0] if name is not None else 0

    def learn_rest(self, name: str | None, epoch: int, answers: object) -> None:
        """Remember the last change of a batch that took several steps, if all were in one epoch."""
        if epoch and isinstance(answers, tuple) and name is not None and epoch == self.epoch_of(name):
            self.note(name, (epoch, max((getattr(answer, "sequence", 0) for answer in answers), default=0), 0))

    def error(self, operation: object, refused: ResponseError) -> Exception:
        """Return our error for a script's answer that a pool has lost changes; any other error unchanged."""
        kind, *rest = str(refused).split(" ")
        sku: str = getattr(operation, "sku", "") or getattr(operation, "shard", "")
        if kind == "VANISHED" and rest:
            return no_keys_of(sku) if isinstance(sku, Shard) else PoolVanished(sku, int(rest[0]))
        if kind != "FROZEN" or len(rest) < 2:  # noqa: PLR2004  # what is there, and what was seen
            return refused
        frozen = PoolFrozen(sku, found=position(rest[0]), seen=position(rest[1]))
        self._report(frozen)
        return frozen

    def _report(self, frozen: PoolFrozen) -> None:
        """Log it and call the hook, once for each loss."""
        with self._lock:
            if (frozen.sku, frozen.seen) in self._reported:
                return
            self._reported.add((frozen.sku, frozen.seen))
        LOGGER.error("pool.frozen sku=%s found=%s seen=%s", frozen.sku, frozen.found, frozen.seen)
        if self.on_frozen is not None:
            self.on_frozen(frozen)

    def note(self, name: str, sight: Sight) -> None:
        """Remember what was seen of a name. A later epoch begins with its own sequence numbers."""
        epoch, sequence, token = sight
        with self._lock:
            if not epoch and name not in self._pools:
                self._note_lock(name, sight)
                return
            known = self._pools.get(name, NOTHING)
            if epoch < known[0]:
                epoch, sequence = known[:2]
            elif epoch == known[0]:
                sequence = max(sequence, known[1])
            self._pools[name] = (epoch, sequence, max(token, known[2]))

    def _note_lock(self, name: str, sight: Sight) -> None:
        known = self._locks.pop(name, None)
        if known is None and len(self._locks) >= LOCKS_MAX:
            del self._locks[next(iter(self._locks))]
        self._locks[name] = max(sight, known or sight)  # last, so that the one unused for longest goes first


def perform_one(operation: Operation[AnswerT], seen: Seen, dialect: Dialect, attempt: int) -> Exchange[AnswerT]:
    """Perform one operation. From the second `attempt` on, an earlier one may have run and lost its reply."""
    codec = CODECS[type(operation)]
    answer: Any = None
    name = None
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
        (reply,) = yield Send((_by_digest(call),))
        if isinstance(reply, NoScriptError):  # after a restart, a SCRIPT FLUSH or a change of server
            (reply,) = yield Send((_whole(call),))
        if isinstance(reply, ResponseError):
            raise seen.error(operation, reply)
        answer = codec.decode(operation, reply)
        seen.learn(name, codec, reply, answer)
    if codec.finish is not None and codec.finishes(operation):
        epoch = seen.epoch_of(name)
        answer = yield from codec.finish(operation, answer)
        seen.learn_rest(name, epoch, answer)
    if attempt > 1 and codec.doubt is not None:
        answer = codec.doubt(answer)
    return answer  # type: ignore[no-any-return]  # the codec's answer has no type here


def perform_again(operation: Operation[AnswerT], seen: Seen, dialect: Dialect, attempt: int) -> Exchange[AnswerT]:
    """Perform an operation of a batch whose replies were lost."""
    return perform_one(operation, seen, dialect, attempt + 1)


def perform_all(
    operations: Sequence[Operation[AnswerT]], where: str, seen: Seen, dialect: Dialect, attempt: int
) -> Exchange[list[AnswerT | SegmentedError]]:
    """Perform independent operations in one round trip, or in two if scripts were not cached.

    From the second `attempt` on, an earlier one may have run and lost its replies.
    """
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
        codec = CODECS[type(request.operation)]
        if codec.finish is None or isinstance(request.answer, SegmentedError) or not codec.finishes(request.operation):
            continue
        epoch = seen.epoch_of(request.name)
        request.answer = yield from codec.finish(request.operation, request.answer)
        seen.learn_rest(request.name, epoch, request.answer)
    if attempt > 1:
        for request in requests:
            request.doubt()
    return [request.answer for request in requests]


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
        self.name: str | None = None
        native = self._codec.native
        if native is not None and dialect is not Dialect.SCRIPT:
            self.commands = native.encode(operation, dialect)
        self._native = native if self.commands else None
        if not self.commands:
            self.commands = (_by_digest(self._call()),)

    def _call(self) -> Call:
        call = self._codec.encode(self.operation)
        self.name = self._seen.added_to(call)
        return call

    def in_full(self) -> Command:
        return _whole(self._call())

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


def _by_digest(call: Call) -> Command:
    script = call.script
    return call.arguments if script is None else ("EVALSHA", script.sha, len(call.keys), *call.keys, *call.arguments)


def _whole(call: Call) -> Command:
    """Return the command with the script's text, which also caches it."""
    script = call.script
    return call.arguments if script is None else ("EVAL", script.text, len(call.keys), *call.keys, *call.arguments)


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
