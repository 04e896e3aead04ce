"""The process of the proxy: it relays each connection to the server, every byte a fixed time after it came in.

`python -m bench.proxy_relay` reads its request from one line of standard input, and ends when that ends. It listens on
a socket in a private folder, so that no other account of the machine reaches the server through it. It does not import
the library, so that it starts at once.

The delay is latency, not bandwidth: any number of bytes may be in transit, so pipelined requests take one delay
together. If the receiver does not read, the sender is blocked, as by a full buffer.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import selectors
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

PIECE: Final = 64 * 1024
PIECES_MAX: Final = 1_024
"""Pieces in transit in one direction at which the sender is blocked."""
DEFAULT_PORT: Final = 6379


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server: a socket's path, or host and port."""

    path: str | None = None
    host: str = "localhost"
    port: int = DEFAULT_PORT

    async def connect(self) -> tuple[StreamReader, StreamWriter]:
        """Connect. Raises OSError."""
        if self.path is not None:
            return await asyncio.open_unix_connection(self.path)
        return await asyncio.open_connection(self.host, self.port)


async def relay(source: StreamReader, sink: StreamWriter, delay: float) -> None:
    """Write what is read, each piece `delay` seconds after it came, and then the end of the stream."""
    now = asyncio.get_running_loop().time
    in_transit: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PIECES_MAX)

    async def receive() -> None:
        data = None
        while data != b"":
            data = await source.read(PIECE)
            await in_transit.put((now() + delay, data))

    async def send() -> None:
        while True:
            due, data = await in_transit.get()
            await asyncio.sleep(due - now())
            if not data:
                sink.write_eof()
                return
            sink.write(data)
            await sink.drain()

    async with asyncio.TaskGroup() as both:
        both.create_task(receive())
        both.create_task(send())


async def serve(upstream: Upstream, delay: float, path: str) -> None:
    """Relay from the socket at `path` with `delay` seconds each way until standard input ends; announce the socket."""

    async def connected(reader: StreamReader, writer: StreamWriter) -> None:
        writers = [writer]
        try:
            there, back = await upstream.connect()
            writers.append(back)
            async with asyncio.TaskGroup() as both:
                both.create_task(relay(reader, back, delay))
                both.create_task(relay(there, writer, delay))
        except* OSError:
            pass  # one end is lost, so the other one is closed
        finally:
            for one in writers:
                one.close()

    gone, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(gone.set)

    server = await asyncio.start_unix_server(connected, path)
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await gone.wait()
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


def main(line: str) -> None:
    """Run the proxy of a request line until standard input ends."""
    told = json.loads(line)
    if told["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, told["cores"])
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        runner.run(serve(Upstream(**told["upstream"]), told["rtt_ms"] / 2_000, told["path"]))


if __name__ == "__main__":
    main(sys.stdin.readline())
