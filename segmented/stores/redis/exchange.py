"""Exchanges with a server on one connection: as generators, shared by sync and async, and the connection for threads.

Deadlines use redis-py's public interface, which is the same for its own parsers and for hiredis: the timeout of a
connection before it connects limits each step of the handshake, and the timeout of a read limits each reply. What
differs between its versions is in `clients`.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError, TimeoutError as RedisTimeoutError
from redis.retry import Retry

from segmented import events
from segmented.errors import (
    LayoutUnknown,
    PoolArchived,
    PoolDrifted,
    PoolFrozen,
    PoolMissing,
    PoolUnverified,
    PoolVanished,
    SegmentedError,
    ShardVanished,
    StoreRefused,
)
from segmented.errors.base import FOREIGN
from segmented.events.hub import sku_label
from segmented.keys import shard_keys
from segmented.models.pools import Profile, archived_of, is_profile, parse_profile
from segmented.models.shards import Shard
from segmented.process import after_fork_in_child
from segmented.protocol.base import bounded, profile_wait, shortfall, unknown
from segmented.protocol.wire import (
    Call,
    Command,
    Dialect,
    Exchange,
    Finish,
    Peer,
    Reply,
    Send,
    Sight,
    position,
    sharded,
)
from segmented.stores.redis.clients import CAN_BE_HASTY, read_within
from segmented.stores.redis.connections import ServerCheck, greeted, greeting
from segmented.stores.redis.edge import CONNECT_TIMEOUT, SOCKET_TIMEOUT, Eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.protocol import Operation


FIELD: Final = re.compile(r"UNREADABLE (\S+) (.*?)(?: script: .*)?", re.DOTALL)
FAILED: Final = re.compile(
    r"(?s).*user_script:[0-9]+: .*|(?:hash )?value is not .*|Invalid stream ID .*"
    r"|The ID specified in XADD .*|Command arguments must be .*"
)
"""Errors of a script, before its first write, for a value that no operation could have written."""


def _sku_of(operation: object) -> str:
    named = (getattr(operation, name, "") for name in ("sku", "shard", "home"))
    return next(filter(None, named), "") or getattr(getattr(operation, "cart", None), "home", "")


def unreadable(key: str, field: str = "a value") -> StoreRefused:
    """Return the error for a value that another program wrote."""
    message = (
        f"{field} of key {key!r} cannot be read: another program wrote it; write what is right by hand, or delete the "
        "key if nothing is held under it"
    )
    return StoreRefused(message)


def raise_misread(error: Exception, operation: object, key: str) -> None:
    """Raise our error for a reply with a value that no operation could have written, if `error` comes from that."""
    if isinstance(error, FOREIGN) and not isinstance(error, SegmentedError):
        sku = _sku_of(operation)
        raise (PoolDrifted(sku) if sku else unreadable(key)) from error


def _gone(sku: str, epoch: int | None) -> SegmentedError:
    """Return the error for a pool without keys, which was open in `epoch`, if it was seen."""
    if isinstance(sku, Shard):  # its directory lists it
        return ShardVanished(sku)
    return PoolMissing(sku) if epoch is None else PoolVanished(sku, epoch)


def pool_error(operation: object, refused: ResponseError, key: str) -> Exception:
    """Return our error for a pool that lost changes or may have, was archived, or is another release's.

    The same for values that cannot be read, of a pool or under `key`. Other refusals are returned unchanged.
    """
    sku, said = _sku_of(operation), str(refused)
    if field := FIELD.fullmatch(said):
        return unreadable(field[2], field[1])
    if said.startswith(("DRIFTED", "PROFILE")) or (sku and FAILED.fullmatch(said)):
        return PoolDrifted(sku)
    if FAILED.fullmatch(said):
        return unreadable(key)
    match said.split(" "):
        case ["MISSING", *_]:
            return _gone(sku, None)
        case ["VANISHED", epoch, *_]:
            return _gone(sku, int(epoch))
        case ["UNVERIFIED", *_]:
            return PoolUnverified(sku)
        case ["ARCHIVED", *about]:
            return archived_of(sku, " ".join(about))
        case ["LAYOUT", found, known, *_]:
            return LayoutUnknown(sku, found=found, known=known)
        case ["FROZEN", found, seen, missing, gated, *_]:
            at, gone = (position(found), position(seen)), None if missing == "-" else missing
            return PoolFrozen(sku, *at, gone, is_gated=gated == "gated")
    return refused


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
CALLS: Final = count(1)
"""Gives each call of this process its number, which all its attempts have."""
SMALL: Final = 4_096
"""Number of bytes that fit into any socket's buffer, so that sending them does not block."""


class Seen:
    """Memory of the names that a store has seen on its server, so that a server that forgot some of it is noticed.

    By a script's first key: a pool's highest epoch and sequence number and its server, and the highest fencing token of
    a pool or lock. Scripts that declare so get them as an argument, with the identity of the connection's server. A
    pool that is behind is frozen, one of another server is verified first, a new token exceeds all. Thread-safe.
    """

    lock: ClassVar[threading.RLock] = threading.RLock()
    """Reentrant: a signal handler or a finalizer may run while it is held. No greenlet waits while it holds it."""
    first_call: ClassVar[int] = int.from_bytes(os.urandom(4))
    """Makes the names of this process's calls differ from those of others."""

    def __init__(self) -> None:
        self._pools: dict[str, Sight] = {}
        self._locks: dict[str, Sight] = {}
        self._servers: dict[str, str] = {}
        self._profiles: dict[str, Profile] = {}
        self._gated: set[str] = set()
        """Gated pools among those whose profile waits."""
        self._reported: set[tuple[str, tuple[int, int]]] = set()
        self.on_frozen: Callable[[PoolFrozen], None] | None = None
        self.eviction = Eviction()

    def added_to(self, call: Call, server: str, call_name: str) -> None:
        """Append what its script takes to the call's arguments."""
        script = call.script
        if script is None:
            return
        if script.takes_seen:
            name = call.keys[0]
            sight, seen_on = self._pools.get(name) or self._locks.get(name), self._servers.get(name, server)
            epoch, sequence, token = sight or NOTHING
            seen = f"{epoch}-{sequence}-{token}-{server}"
            profile = self._profiles.get(name)
            if seen_on != server or profile is not None:
                seen += f"-{'' if seen_on == server else seen_on}" + ("" if profile is None else f"-{profile}")
            call.arguments = (*call.arguments, seen)
        if script.takes_call:
            call.arguments = (*call.arguments, call_name)

    def profile_for(self, call: Call, operation: Operation[Any]) -> Profile | None:
        """Return the profile that the answer of this operation must wait for, if any."""
        if not self._profiles or not call.keys:
            return None
        name = call.keys[0]
        profile = self._profiles.get(name)
        return profile if profile is not None and operation.acknowledges(is_gated=name in self._gated) else None

    def learns_profile(self, call: Call, refused: ResponseError) -> bool:
        """Return whether a script has changed nothing but told another profile of its pool than the call said."""
        kind, said, gated, *_ = *str(refused).split(" ", 3), "", ""
        if kind != "PROFILE" or not is_profile(said):
            return False
        if str(call.arguments[-2 if call.script is not None and call.script.takes_call else -1]).endswith(f"-{said}"):
            return False
        profile = parse_profile(said)
        name = call.keys[0]
        with Seen.lock:
            # first, for a thread that reads in between
            (self._gated.add if gated == "1" else self._gated.discard)(name)
            if profile.waits:
                self._profiles[name] = profile
            else:
                self._profiles.pop(name, None)
        return True

    def learn(
        self,
        call: Call,
        operation: Operation[Any],
        reply: Reply,
        answer: object,
        server: str,
        *,
        is_acknowledged: bool = False,
    ) -> None:
        """Remember what the answer to a call, from this server, tells of its name.

        Of a pool whose profile waits, only changes that were acknowledged count: losing any other is no loss.
        """
        if call.script is None or not call.script.takes_seen:
            return
        sight = operation.sight(reply, answer)
        if sight is not None and call.keys[0] in self._profiles and not is_acknowledged:
            sight = (sight[0], 0, 0)
        if sight is not None and sight != NOTHING:
            self.note(call.keys[0], sight, server, is_sure=call.script.writes)

    def error(self, operation: object, refused: ResponseError, key: str) -> Exception:
        """Return our error for a pool that does not answer as usual, or is another release's; others unchanged."""
        found = pool_error(operation, refused, key)
        if isinstance(found, PoolFrozen):
            self._report(found)
        elif isinstance(found, PoolArchived):  # once its note has lapsed too, it is as if it was never seen
            self.forget(shard_keys(found.sku).meta)
        return found

    def forget(self, name: str) -> None:
        """Remember nothing of a pool any more."""
        with Seen.lock:
            for memory in (self._pools, self._servers, self._profiles):
                memory.pop(name, None)
            self._gated.discard(name)

    def _report(self, one: PoolFrozen) -> None:
        """Log it and call the hook, once for each loss."""
        with Seen.lock:
            if (one.sku, one.seen) in self._reported:
                return
            self._reported.add((one.sku, one.seen))
        events.count("segmented.pool.freezes", 1, (sku_label(one.sku),))
        LOGGER.error("pool.frozen sku=%s found=%s seen=%s missing=%s", one.sku, one.found, one.seen, one.missing)
        try:
            if self.on_frozen is not None:
                self.on_frozen(one)
        except Exception:
            LOGGER.exception("on_frozen failed")

    def note(self, name: str, sight: Sight, server: str, *, is_sure: bool = True) -> None:
        """Remember what was seen of a name, on which server only if the pool is sure to have noted it."""
        if min(sight) < 0:  # another program has written such a number
            return
        with Seen.lock:
            if not sight[0] and name not in self._pools:
                self._note_lock(name, sight)
                return
            known = self._pools.get(name, NOTHING)
            is_sure = server != "?" and (is_sure or self._servers.get(name) == server)
            if is_sure and sight[:2] >= known[:2]:
                self._servers[name] = server
            elif sight[:2] > known[:2]:
                self._servers.pop(name, None)
            self._pools[name] = (*max(sight[:2], known[:2]), max(sight[2], known[2]))

    def _note_lock(self, name: str, sight: Sight) -> None:
        known = self._locks.pop(name, None)
        if known is None and len(self._locks) >= LOCKS_MAX:
            del self._locks[next(iter(self._locks))]
        self._locks[name] = max(sight, known or sight)  # last, so that the one unused for longest goes first


def _unlock() -> None:
    """Give a forked child a free lock, which a thread of its parent may have had, and names of its own for calls."""
    Seen.lock = threading.RLock()
    Seen.first_call = int.from_bytes(os.urandom(4))


after_fork_in_child(_unlock)


def named(number: int, attempt: int) -> str:
    """Return the name of a call for scripts that record who made a change; a "+" marks another attempt.

    So the answer to another attempt is no replay of what an earlier one did whose reply was lost.
    """
    return f"{(Seen.first_call + number) & 0xFFFFFFFF:08x}{'+' if attempt > 1 else ''}"


def perform_one(operation: Operation[AnswerT], seen: Seen, number: int, peer: Peer, attempt: int) -> Exchange[AnswerT]:
    """Perform one operation. From the second `attempt` on, an earlier one may have run and lost its reply.

    `number` is the call's, of CALLS.
    """
    if seen.eviction.warning:
        seen.eviction.check(operation)
    answer: Any = None
    commands = () if peer.dialect is Dialect.SCRIPT else operation.native(peer.dialect)
    if commands:
        replies = yield Send(sharded(commands) if peer.is_cluster else commands)
        if not isinstance(replies[0], ResponseError):  # otherwise the script reports the error, or works
            answer = operation.native_answer(replies)
    call_name = named(number, attempt)
    if answer is None:
        answer = yield from _by_script(operation, seen, peer, call_name)
    finishing = operation.continued(answer)
    if finishing is not None:
        answer = yield from finished(finishing, seen, peer, call_name)
    return answer if attempt == 1 else operation.doubt(answer)  # type: ignore[no-any-return]  # has no type here


def _by_script(operation: Operation[Any], seen: Seen, peer: Peer, call_name: str) -> Exchange[Any]:
    """Run the operation's script, and behind it the command that waits for the pool's profile, if it has such a one."""
    call = operation.call()
    if peer.is_cluster and call.script is not None:
        call.script = call.script.in_cluster
    seen.added_to(call, peer.server, call_name)
    profile = seen.profile_for(call, operation)
    waits, patience = () if profile is None else (profile_wait(profile),), 0.0 if profile is None else profile.seconds
    reply, *counts = yield Send((by_digest(call), *waits), patience)
    if isinstance(reply, NoScriptError):  # after a restart, a SCRIPT FLUSH or a change of server
        reply, *counts = yield Send((whole(call), *waits), patience)
    if isinstance(reply, ResponseError):
        if seen.learns_profile(call, reply):
            return (yield from _by_script(operation, seen, peer, call_name))
        raise seen.error(operation, reply, call.key)
    try:
        answer = operation.answer(reply)
    except Exception as error:
        raise_misread(error, operation, call.key)
        raise
    if profile is None:
        seen.learn(call, operation, reply, answer, peer.server)
        return answer
    lacking = shortfall(profile, counts[0])
    seen.learn(call, operation, reply, answer, peer.server, is_acknowledged=lacking is None)
    if lacking is not None:
        answer = unknown(operation, answer, profile, lacking)
        if isinstance(answer, SegmentedError):
            raise answer
    return answer


def finished(finishing: Finish, seen: Seen, peer: Peer, call_name: str) -> Exchange[Any]:
    """Continue an operation: it yields what to send, or an operation for what one step was too short for."""
    found: Any = None
    while True:
        try:
            asked = finishing.send(found)
        except StopIteration as stop:
            return stop.value
        if isinstance(asked, Send):
            found = yield asked
        else:
            found = yield from _by_script(asked, seen, peer, call_name)


def by_digest(call: Call) -> Command:
    """Return the command with the script's digest, or the plain command."""
    script = call.script
    return call.arguments if script is None else ("EVALSHA", script.sha, len(call.keys), *call.keys, *call.arguments)


def whole(call: Call) -> Command:
    """Return the command with the script's text, which also caches it."""
    script = call.script
    return call.arguments if script is None else ("EVAL", script.text, len(call.keys), *call.keys, *call.arguments)


def packed(commands: Sequence[Command]) -> bytes:
    """Encode commands for the wire. Faster than the driver's packer, which supports more types."""
    if pack_command is not None:  # with texts only: at a number it crashes where a signal handler raises (hiredis 3.5)
        if len(commands) == 1:
            return pack_command(tuple(map(str, commands[0])))
        return b"".join([pack_command(tuple(map(str, command))) for command in commands])
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
        self.peer: Peer | None = None
        """The server that answers; None while it is not connected."""
        self.idle_since = 0.0

    def open(self, seconds_left: float, check: ServerCheck | None = None) -> Peer:
        """Connect if needed, and ask who the server is; with a `check`, also check that the server is usable."""
        if seconds_left <= 0:
            raise RedisTimeoutError(TOO_LATE)
        if self.peer is None:
            self._connect(seconds_left)
            events.count("segmented.store.connections", 1, ())
        if self.peer is None or check is not None:
            replies = self.ask(greeting(check, self._wanted), min(self._seconds, seconds_left))
            self.peer = greeted(replies, check, self._wanted)
        return self.peer

    def _connect(self, seconds_left: float) -> None:
        connection = self.connection
        connection.socket_connect_timeout = min(self._connect_seconds, seconds_left)
        if CAN_BE_HASTY:
            connection.socket_timeout = min(self._seconds, seconds_left)  # each step of the handshake
        connection.connect()
        self._is_hasty = CAN_BE_HASTY and seconds_left < self._seconds
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
                        replies.append(read_within(connection, seconds))
                    else:
                        replies.append(connection.read_response())  # its own timeout applies; none has to be set
                except ResponseError as error:
                    replies.append(error.with_traceback(None))  # else it keeps this frame, and the wire
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
            replies = self.ask(send.commands if not send.patience else bounded(send, deadline - now()), seconds)
            try:
                send = exchange.send(replies)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here

    def close(self) -> None:
        """Disconnect; the next `open` connects again."""
        self.peer = None
        self.connection.disconnect()
