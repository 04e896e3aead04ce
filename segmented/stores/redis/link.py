"""The link of a store to its server, for threads and for asyncio: it runs exchanges on its own connections.

The connections have the client's settings, credentials and TLS (see `connections`), and stay open between exchanges.
The link, not the client, does retries and timeouts, so that a deadline holds for all tries of an exchange, including
the wait for a connection and connecting. Every operation is safe to run twice.

With threads, a wire counts as long as it exists. So one that an exception of a signal handler takes from its exchange,
at whatever point, is closed and gives its turn back on its own, as soon as nothing refers to it any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import ref

from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError, TimeoutError as RedisTimeoutError

from segmented import events
from segmented.errors import StoreBusy
from segmented.plans.tasks import Alarm, OfOneLoop, begun, to_the_end, until_loop_ends
from segmented.process import BeginsAnew
from segmented.protocol.base import bounded
from segmented.stores.redis.batches import TRANSPORT_ERRORS, AsyncRequests, Requests
from segmented.stores.redis.clients import NO_REPLY
from segmented.stores.redis.connections import IDLE_SECONDS, TURN_SECONDS, Connections, ServerCheck, greeted, greeting
from segmented.stores.redis.edge import CONNECT_TIMEOUT, SOCKET_TIMEOUT, TRIES
from segmented.stores.redis.exchange import TOO_LATE, Wire, packed
from segmented.stores.wakeups import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from segmented.clock import Clock
    from segmented.protocol.wire import Command, Dialect, Exchange, MakeExchange, Peer, Reply, Send


AnswerT = TypeVar("AnswerT")

LOOK_SECONDS: Final = 0.5
"""Seconds after which a thread that waits for a wire checks on its own, should a wire have been lost."""


def none_free(wires_max: int, *, is_failing: bool) -> Exception:
    """Return the error of a caller that got no connection: a timeout if the server is failing, else StoreBusy."""
    message = f"none of the {wires_max} connections that the client's max_connections allows was free in time"
    return RedisTimeoutError(message) if is_failing else StoreBusy(message + "; allow more, or wait longer")


class Link(BeginsAnew, Requests):
    """Up to `connections.wires_max` wires to one server; further threads wait for a free one."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        check: ServerCheck | None = None,
        tries: int = TRIES,
    ) -> None:
        """Create a link that does not connect yet. With a `check`, it checks the server before the first operation."""
        Requests.__init__(self, clock)
        self._connections = connections
        self._wanted = dialect
        self._check = check
        self._tries = tries
        self._is_failing = False
        self.is_closed = False
        """Whether a wire that comes back is disconnected."""
        self._start_anew()

    def _start_anew(self) -> None:
        super()._start_anew()
        self._free: deque[Wire] = deque()
        self._made: set[ref[Wire]] = set()
        self._making = threading.RLock()
        self._waiting: deque[Wake] = deque()
        self.dialect = self._wanted

    def run(self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf) -> AnswerT:
        """Run an exchange; each attempt creates a new one. Raises one of TRANSPORT_ERRORS, or the server's refusal."""
        self._begin_if_new()  # after a fork the sockets belong to the parent
        now = self._clock.now
        for attempt in range(1, self._tries + 1):
            wire = self._take(deadline)
            try:
                peer = wire.peer
                if peer is None or self._check is not None:
                    peer = wire.open(deadline - now(), self._check)
                    self.dialect = peer.dialect
                    self._check = None
                self._is_failing = False
                return wire.converse(make_exchange(peer, attempt), now, deadline)
            except TRANSPORT_ERRORS:
                self._is_failing = True
                self.disconnect()  # the other idle connections probably broke too
                if attempt == self._tries or now() >= deadline:
                    raise
                events.count("segmented.store.retries", 1, ())
            finally:
                self._free.append(wire)  # first: an exception of a signal handler may follow any call
                self._note_returned(wire)
                if self.is_closed:  # asked last: `close` may have looked for free wires before this one was
                    self.disconnect()
        raise AssertionError  # the loop returns or raises

    def _take(self, deadline: float) -> Wire:
        try:
            return self._free.pop()  # the most recently used one, so that the others become idle
        except IndexError:
            pass
        return self._take_in_turn(min(deadline, self._clock.now() + TURN_SECONDS))

    def _take_in_turn(self, deadline: float) -> Wire:
        wake = Wake()
        while True:
            self._waiting.append(wake)  # before the next check: a thread that returns a wire reads it afterwards
            try:
                with suppress(IndexError):
                    return self._free.pop()
                with self._making:
                    if len(self._made) < self._connections.wires_max:
                        return self._make()
                seconds = deadline - self._clock.now()
                if seconds <= 0:
                    raise none_free(self._connections.wires_max, is_failing=self._is_failing)
                wake.wait(min(seconds, LOOK_SECONDS))
            finally:
                with suppress(ValueError):  # it was woken
                    self._waiting.remove(wake)

    def _make(self) -> Wire:
        wire = Wire(self._connections.make(), self._wanted)
        self._made.add(ref(wire, self._made.discard))
        return wire

    def _note_returned(self, wire: Wire) -> None:
        if len(self._made) > 1:
            wire.idle_since = self._clock.now()
        if self._waiting:
            self._wake_next()
        elif len(self._free) > 1:
            self._close_oldest(wire.idle_since - IDLE_SECONDS)

    def _wake_next(self) -> None:
        with suppress(IndexError):
            self._waiting.popleft().set()

    def _close_oldest(self, before: float) -> None:
        """Close the connection that was idle longest, if it was idle long enough."""
        try:
            if self._free[0].idle_since >= before:
                return
            oldest = self._free.popleft()
        except IndexError:
            return  # other threads took them all
        if oldest.idle_since >= before:
            self._free.appendleft(oldest)
            return
        oldest.close()
        del oldest  # which gives its turn back
        self._wake_next()

    def close(self) -> None:
        """Disconnect all wires for good: the unused ones now, each other one as soon as it comes back."""
        self.is_closed = True
        self.disconnect()

    def disconnect(self) -> None:
        """Disconnect all unused wires. They connect again on their next use."""
        for _ in range(len(self._free)):
            try:
                wire = self._free.popleft()
            except IndexError:
                return
            wire.close()
            self._free.append(wire)
            self._note_returned(wire)


NO_RETRY: Final = Retry(NoBackoff(), 0)


class AsyncWire:
    """One connection, used by one exchange at a time."""

    def __init__(self, connection: Any, dialect: Dialect | None) -> None:  # noqa: ANN401  # of the client's own class
        """Take over `connection`, which is not connected yet; without a `dialect`, ask the server for it."""
        self.connection = connection
        self.connection.retry = NO_RETRY
        self._wanted = dialect
        self._connect_seconds: float = connection.socket_connect_timeout or CONNECT_TIMEOUT
        self._seconds: float = connection.socket_timeout or SOCKET_TIMEOUT
        self.connection.socket_timeout = None  # our timeout is per exchange, not per read and write
        self.peer: Peer | None = None
        """The server that answers; None while it is not connected."""
        self.idle_since = 0.0

    async def open(self, seconds_left: float, check: ServerCheck | None = None) -> Peer:
        """Connect if needed, and ask who the server is; with a `check`, also check that the server is usable."""
        if self.peer is None:
            self.connection.socket_connect_timeout = min(self._connect_seconds, seconds_left)
            with Alarm(min(2 * self._connect_seconds, seconds_left)):  # covers the handshake too
                await self.connection.connect()
            events.count("segmented.store.connections", 1, ())
        if self.peer is None or check is not None:
            replies = await self.ask(greeting(check, self._wanted), min(self._seconds, seconds_left))
            self.peer = greeted(replies, check, self._wanted)
        return self.peer

    async def ask(self, commands: Sequence[Command], seconds: float) -> list[Reply]:
        """Send commands together and read one reply each; a server error is a value.

        A cancellation in the meantime is raised after the replies, so that a request that is still on the wire cannot
        overtake the undo.
        """
        connection = self.connection
        replies: list[Reply] = []
        cancelled: asyncio.CancelledError | None = None
        alarm = Alarm(seconds)
        try:
            await connection.send_packed_command((packed(commands),), check_health=False)
            while len(replies) < len(commands):
                try:
                    replies.append(await connection.read_response(timeout=inf, disconnect_on_error=False))
                except ResponseError as error:
                    replies.append(error.with_traceback(None))  # else it keeps this frame, and the wire
                except asyncio.CancelledError as error:
                    if alarm.has_rung:
                        raise
                    cancelled = error  # the driver's buffer keeps what was read; reading continues from there
        except BaseException as error:
            is_late = alarm.is_silenced()
            await self.close()  # a late reply must not be read as the answer to another request
            if cancelled is not None:
                raise cancelled from error
            if is_late:
                raise RedisTimeoutError(NO_REPLY) from error
            raise
        finally:
            alarm.stop()
        if cancelled is not None:
            raise cancelled
        return replies

    async def converse(self, exchange: Exchange[AnswerT], now: Callable[[], float], deadline: float) -> AnswerT:
        """Run an exchange until it returns."""
        send: Send = next(exchange)
        while True:
            seconds = min(self._seconds + send.patience, deadline - now())
            if seconds <= 0:
                raise RedisTimeoutError(TOO_LATE)
            replies = await self.ask(send.commands if not send.patience else bounded(send, deadline - now()), seconds)
            try:
                send = exchange.send(replies)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # the exchange's return value has no type here

    async def close(self, *, nowait: bool = True) -> None:
        """Disconnect; the next `open` connects again."""
        self.peer = None
        await self.connection.disconnect(nowait=nowait)


class AsyncLink(AsyncRequests, OfOneLoop):
    """Up to `connections.wires_max` wires to one server; further tasks wait for a free one."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        dialect: Dialect | None,
        check: ServerCheck | None = None,
        tries: int = TRIES,
    ) -> None:
        """Create a link that does not connect yet. With a `check`, it checks the server before the first operation."""
        AsyncRequests.__init__(self, clock)
        self._connections = connections
        self._wanted = dialect
        self._check = check
        self._tries = tries
        self._is_failing = False
        self.is_closed = False
        """Whether a wire that comes back is disconnected."""
        self._start_anew()

    def _start_anew(self) -> None:
        self._turns = Turns(self._connections.wires_max)
        self._free: deque[AsyncWire] = deque()
        self.dialect = self._wanted

    async def run(
        self, make_exchange: MakeExchange[AnswerT], *, deadline: float = inf, is_release: bool = False
    ) -> AnswerT:
        """Run an exchange; each attempt creates a new one.

        A release passes all others that wait for a connection. A cancellation is raised when it has ended.
        """
        if self._enter_loop():
            self._end = until_loop_ends(self._close_free)
            await anext(self._end)
        run = partial(self._run, make_exchange, deadline, is_release=is_release)
        if is_release and (self._turns.locked() or not self._free or self._free[-1].peer is None):
            return await to_the_end(run)
        return await run()  # nothing to wait for but the reply, and a wire reads that in any case

    async def _run(self, make_exchange: MakeExchange[AnswerT], deadline: float, *, is_release: bool) -> AnswerT:
        now, turns = self._clock.now, self._turns
        if turns.locked():
            try:
                with Alarm(max(0.0, min(TURN_SECONDS, deadline - now()))):
                    await turns.acquire(is_release=is_release)
            except TimeoutError as error:
                raise none_free(self._connections.wires_max, is_failing=self._is_failing) from error
        else:
            await turns.acquire()
        try:
            return await self._try(make_exchange, now, deadline)
        finally:
            turns.release()

    async def _try(self, make_exchange: MakeExchange[AnswerT], now: Callable[[], float], deadline: float) -> AnswerT:
        free = self._free  # of this loop, also when the next one's garbage collector ends the coroutine
        for attempt in range(1, self._tries + 1):
            seconds_left = deadline - now()
            if seconds_left <= 0:
                raise RedisTimeoutError(TOO_LATE)
            wire = self._wire()
            try:
                peer = wire.peer
                if peer is None or self._check is not None:
                    peer = await wire.open(seconds_left, self._check)
                    self.dialect = peer.dialect
                    self._check = None
                self._is_failing = False
                return await wire.converse(make_exchange(peer, attempt), now, deadline)
            except TRANSPORT_ERRORS:
                self._is_failing = True
                await self.disconnect()  # the other idle connections probably broke too
                if attempt == self._tries or now() >= deadline:
                    raise
                events.count("segmented.store.retries", 1, ())
            finally:
                wire.idle_since = now()
                free.append(wire)
                if self.is_closed:
                    await self.disconnect()
                elif free[0].idle_since < wire.idle_since - IDLE_SECONDS:
                    await free.popleft().close()
        raise AssertionError  # the loop returns or raises

    def _wire(self) -> AsyncWire:
        return self._free.pop() if self._free else AsyncWire(self._connections.make(), self._wanted)

    async def disconnect(self) -> None:
        """Disconnect all unused wires. They connect again on their next use."""
        for _ in range(len(self._free)):
            if not self._free:
                return
            wire = self._free.popleft()
            try:
                await wire.close()
            finally:
                self._free.append(wire)

    async def close(self) -> None:
        """Disconnect all wires for good: the unused ones now, each other one as soon as it comes back.

        It waits until the sockets of the unused ones are closed: TLS has a closing handshake.
        """
        self._enter_loop()
        self.is_closed = True
        await self._close_free()

    async def _close_free(self) -> None:
        wires = list(self._free)
        self._free.clear()
        await asyncio.gather(*(begun(partial(wire.close, nowait=False)) for wire in wires), return_exceptions=True)
        self._free.extend(wires)


class Turns:
    """A semaphore for one event loop with two queues: a task that frees something passes all others.

    So a thousand waiters do not delay a release, and those that wait for the released thing are served sooner.
    """

    def __init__(self, count: int) -> None:
        """Create `count` turns, all free."""
        self._free = count
        self._releases: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    def locked(self) -> bool:
        """Return whether the next task must wait."""
        return self._free == 0

    async def acquire(self, *, is_release: bool = False) -> None:
        """Take a turn, or wait for one."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        (self._releases if is_release else self._others).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn came at the same moment
                self.release()
            raise

    def release(self) -> None:
        """Pass the turn to the next task."""
        for queue in (self._releases, self._others):
            while queue:
                turn = queue.popleft()
                if not turn.done():  # a cancelled task has left its place
                    turn.set_result(None)
                    return
        self._free += 1
