"""One direction of a connection: bytes come in, and go out a fixed time later, in order.

The delay is a line's length, not its width: any number of bytes may be on the way at once, so pipelined requests all
take one delay and not one each. What a peer does not read holds the sender back, as a full buffer would.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

UNDER_WAY_MAX: Final = 64 * 1024 * 1024
"""Bytes on the way in one direction, at which its sender has to wait."""


class Line:
    """From a transport that reads to another that writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        """Connect nothing yet. `delay` in seconds."""
        self._loop, self._delay = loop, delay
        self._under_way: deque[tuple[float, bytes | None]] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = self._is_blocked = self._has_ended = False
        self.source: asyncio.Transport | None = None
        self._sink: asyncio.Transport | None = None

    def lead_to(self, sink: asyncio.Transport) -> None:
        """Say where the bytes go; what came in before waits for that."""
        self._sink = sink
        self._flush()

    def send(self, data: bytes) -> None:
        """Pass on, later."""
        self._size += len(data)
        self._push(data)
        if self._size >= UNDER_WAY_MAX:
            self._is_full = True
            self._hold_source()

    def end(self) -> None:
        """Pass on that nothing more comes, after all that did."""
        if not self._has_ended:
            self._has_ended = True
            self._push(None)

    def block(self) -> None:
        """Take no more from the source: who should read what comes out does not."""
        self._is_blocked = True
        self._hold_source()

    def unblock(self) -> None:
        """Go on."""
        self._is_blocked = False
        self._let_source_go()

    def cut(self) -> None:
        """Forget what is under way."""
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
