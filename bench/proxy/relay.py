"""The proxy itself: accepts on loopback, connects to the server, and creates a line in each direction."""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import TYPE_CHECKING, cast

from bench.proxy.line import Line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.proxy.upstream import Upstream


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


async def serve(upstream: Upstream, delay: float, announce: Callable[[int], None], until: Awaitable[object]) -> None:
    """Relay with `delay` seconds each way until `until` is done; `announce` gets the listening port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(upstream, delay).client, "127.0.0.1", 0)
    announce(server.sockets[0].getsockname()[1])
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
