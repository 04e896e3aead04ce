"""The link of a store to its server, for threads: it runs exchanges on its own connections.

The connections have the client's settings, credentials and TLS (see `connections`), and stay open between exchanges.
The link, not the client, does retries and timeouts, so that a deadline holds for all tries of an exchange, including
the wait for a connection and connecting. Every operation is safe to run twice.

A wire counts as long as it exists. So one that an exception of a signal handler takes from its exchange, at whatever
point, is closed and gives its turn back on its own, as soon as nothing refers to it any more.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import ref

from redis.exceptions import TimeoutError as RedisTimeoutError

from segmented import events
from segmented.errors import StoreBusy
from segmented.process import BeginsAnew
from segmented.stores.redis.batches import TRANSPORT_ERRORS, Requests
from segmented.stores.redis.connections import IDLE_SECONDS, TURN_SECONDS, Connections, ServerCheck, pinging
from segmented.stores.redis.edge import TRIES
from segmented.stores.redis.exchange import Wire
from segmented.stores.wakeups import Wake

if TYPE_CHECKING:
    from segmented.clock import Clock
    from segmented.protocol.wire import Dialect, MakeExchange

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

    def check(self, deadline: float) -> None:
        """Check the server if it was not checked before. Raises InvalidInput if it is not usable."""
        self.run(pinging, deadline=deadline)

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
