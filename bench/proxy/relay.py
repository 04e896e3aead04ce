"""The proxy itself: accepts on a socket in a private folder, connects to the server, and creates a line each way.

Other accounts of the machine cannot enter the folder, so that nobody else reaches the server through the proxy.

One direction of a connection: bytes go out in order, a fixed time after they came in.

The delay is latency, not bandwidth: any number of bytes may be in transit, so pipelined requests take one delay
together. If the receiver does not read, the sender is blocked, as by a full buffer.

The server behind a proxy. It does not import the library, so that the proxy starts at once.

`python -m bench.proxy.relay` is its process; it reads its request from one line of standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import selectors
import sys
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UNDER_WAY_MAX: Final = 64 * 1024 * 1024
"""Bytes in transit in one direction at which the sender is blocked."""
DEFAULT_PORT: Final = 6379


class End(asyncio.Protocol):
    """One end of a connection: it reads into one line, and writes from the other."""

    def __init__(
        self, outward: Line, inward: Line, *, on_made: Callable[[], None] | None = None, on_lost: Callable[[], None]
    ) -> None:
        """Create an end that waits for its connection."""
        self._outward, self._inward, self._on_made, self._on_lost = outward, inward, on_made, on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect both lines to the transport."""
        connected = cast("asyncio.Transport", transport)
        self._outward.source = connected
        self._inward.lead_to(connected)
        if self._on_made is not None:
            self._on_made()

    def data_received(self, data: bytes) -> None:
        """Pass the data on."""
        self._outward.send(data)

    def eof_received(self) -> bool:
        """Pass the end on; the other direction stays open."""
        self._outward.end()
        return True

    def pause_writing(self) -> None:
        """Block the line: the receiver is slow."""
        self._inward.block()

    def resume_writing(self) -> None:
        """Unblock the line: the receiver has caught up."""
        self._inward.unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end after it has received the bytes in transit."""
        del exc
        self._on_lost()


class Connection:
    """A client's connection through the proxy. It ends when both directions have ended, or one end is lost."""

    def __init__(self, upstream: Upstream, delay: float) -> None:
        """Create an unconnected connection."""
        loop = asyncio.get_running_loop()
        self._upstream, self._delay, self._loop = upstream, delay, loop
        self._there, self._back = Line(loop, delay), Line(loop, delay)
        self._task: asyncio.Task[None] | None = None
        self.client = End(self._there, self._back, on_made=self._begin, on_lost=self._lost)
        self._server = End(self._back, self._there, on_lost=self._lost)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._upstream.connect(lambda: self._server)
        except OSError:
            self._close()

    def _lost(self) -> None:
        self._there.end()
        self._back.end()
        self._loop.call_later(2 * self._delay, self._close)  # bytes in transit arrive before that

    def _close(self) -> None:
        for line in (self._there, self._back):
            line.cut()
            if line.source is not None:
                line.source.close()


async def serve(
    upstream: Upstream, delay: float, path: str, announce: Callable[[], None], until: Awaitable[object]
) -> None:
    """Relay from the socket at `path` with `delay` seconds each way until `until` is done; announce that it listens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(upstream, delay).client, path)
    announce()
    try:
        await until
    finally:
        server.close()


def fine_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that wakes within microseconds; asyncio's own rounds up to a millisecond where it uses epoll."""
    if hasattr(selectors, "EpollSelector"):
        return asyncio.SelectorEventLoop(_FineSelector())
    return asyncio.new_event_loop()


if hasattr(selectors, "EpollSelector"):

    class _FineSelector(selectors.EpollSelector):
        """Waits with select(2), which takes microseconds, for the one descriptor of epoll, which takes thousands."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return what is ready within `timeout` seconds."""
            if timeout is None or timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)


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


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server: a socket's path, or host and port."""

    path: str | None = None
    host: str = "localhost"
    port: int = DEFAULT_PORT

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Connect. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            await loop.create_unix_connection(protocol, self.path)
        else:
            await loop.create_connection(protocol, self.host, self.port)


def main(line: str) -> int:
    """Run the proxy of a request line until stdin ends; return the exit code."""
    told = json.loads(line)
    if told["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, told["cores"])
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        runner.run(_serve(Upstream(**told["upstream"]), told["rtt_ms"], told["path"]))
    return 0


async def _serve(upstream: Upstream, rtt_ms: float, path: str) -> None:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await serve(upstream, rtt_ms / 2_000, path, _announce, gone.wait())


def _announce() -> None:
    sys.stdout.write("listening\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline()))
