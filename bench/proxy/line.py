"""One direction of a connection: bytes go out in order, a fixed time after they came in.

The delay is latency, not bandwidth: any number of bytes may be in transit, so pipelined requests take one delay
together. If the receiver does not read, the sender is blocked, as by a full buffer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

UNDER_WAY_MAX: Final = 64 * 1024 * 1024
"""Bytes in transit in one direction at which the sender is blocked."""


class Line:
    """Passes bytes from a reading transport to a writing one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        """Create an unconnected line. `delay` is in seconds."""
        self._loop, self._delay = loop, delay
        self._under_way: deque[tuple[float, bytes | None]] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = self._is_blocked = self._has_ended = False
        self.source: asyncio.Transport | None = None
        self._sink: asyncio.Transport | None = None

    def lead_to(self, sink: asyncio.Transport) -> None:
        """Set the sink; earlier bytes wait for it."""
        self._sink = sink
        self._flush()

    def send(self, data: bytes) -> None:
        """Pass data on after the delay."""
        self._size += len(data)
        self._push(data)
        if self._size >= UNDER_WAY_MAX:
            self._is_full = True
            self._hold_source()

    def end(self) -> None:
        """Pass the end of the stream on, after all data."""
        if not self._has_ended:
            self._has_ended = True
            self._push(None)

    def block(self) -> None:
        """Stop reading from the source, because the receiver does not read."""
        self._is_blocked = True
        self._hold_source()

    def unblock(self) -> None:
        """Go on."""
        self._is_blocked = False
        self._let_source_go()

    def cut(self) -> None:
        """Drop the bytes in transit."""
        self._under_way.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _push(self, data: bytes | None) -> None:
        self._under_way.append((self._loop.time() + self._delay, data))
        if self._timer is None and self._sink is not None:
            self._timer = self._loop.call_at(self._under_way[0][0], self._flush)

    def _flush(self) -> None:
        self._timer = None
        sink = self._sink
        if sink is None:
            return
        now = self._loop.time()
        while self._under_way and self._under_way[0][0] <= now:
            _, data = self._under_way.popleft()
            if sink.is_closing():
                continue
            if data is not None:
                self._size -= len(data)
                sink.write(data)
            elif sink.can_write_eof():
                sink.write_eof()
        if self._is_full and self._size < UNDER_WAY_MAX:
            self._is_full = False
            self._let_source_go()
        if self._under_way:
            self._timer = self._loop.call_at(self._under_way[0][0], self._flush)

    def _hold_source(self) -> None:
        if self.source is not None and not self.source.is_closing():
            self.source.pause_reading()

    def _let_source_go(self) -> None:
        if self.source is not None and not (self._is_full or self._is_blocked or self.source.is_closing()):
            self.source.resume_reading()
