"""Real HTTP servers on loopback, WSGI and ASGI, around one handler; and a client that says nothing it is not told."""

from __future__ import annotations

import asyncio
import http.client
import json
import socketserver
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from segmented.dedup import AsyncDedup, Dedup
from segmented.dedup.web import IdempotencyMiddleware, WebOptions, WsgiIdempotencyMiddleware
from tests.fixtures.stores import AsyncSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from segmented.dedup.web.asgi import App, Message, Receive, Scope, Send
    from tests.fixtures.stores import Side

SOON = 30.0
CHUNK = 7


@dataclass(frozen=True)
class Seen:
    """A request, as a handler sees it."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer, as a handler makes it."""

    status: int = 200
    parts: tuple[bytes, ...] = (b"done",)
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain"),)


@dataclass(frozen=True)
class Response:
    """An answer, as a client gets it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"

    @property
    def code(self) -> str:
        """Of problem details."""
        assert self.headers["content-type"] == "application/problem+json"
        found = json.loads(self.body)
        assert found["status"] == self.status
        return str(found["code"])


@dataclass
class CountingHandler:
    """A handler that counts its requests, and answers with the number unless it is told otherwise."""

    reply: Callable[[int, Seen], Reply] = field(default=lambda number, _: Reply(201, (f"charge {number}".encode(),)))
    served: list[Seen] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, seen: Seen) -> Reply:
        with self._guard:
            self.served.append(seen)
            number = len(self.served)
        self.began.set()
        if self.gate is not None:
            assert self.gate.wait(SOON)
        return self.reply(number, seen)


class OnceServer:
    """A server in the side's colour whose requests are run once."""

    def __init__(
        self,
        side: Side,
        handler: Callable[[Seen], Reply],
        options: WebOptions | None = None,
        **dedup: Any,  # noqa: ANN401  # those of Dedup
    ) -> None:
        self.namespace = side.name("web")
        self._close: Callable[[], None]
        if isinstance(side, AsyncSide):
            guarded = AsyncDedup(side.store, self.namespace, **dedup)
            self.app: Any = IdempotencyMiddleware(asgi_app(handler), guarded, options)
            self.port, self._close = serve_asgi(side, self.app)
        else:
            self.app = WsgiIdempotencyMiddleware(wsgi_app(handler), Dedup(side.store, self.namespace, **dedup), options)
            self.port, self._close = serve_wsgi(self.app)

    def ask(
        self,
        key: str | None = "k-1",
        body: bytes | Iterable[bytes] = b'{"units": 1}',
        *,
        method: str = "POST",
        path: str = "/charges",
        headers: dict[str, str] | None = None,
    ) -> Response:
        given = {
            "Content-Type": "application/json",
            **({} if key is None else {"Idempotency-Key": key}),
            **(headers or {}),
        }
        return ask(self.port, method, path, body, given)

    def close(self) -> None:
        self._close()


def ask(port: int, method: str, path: str, body: bytes | Iterable[bytes], headers: dict[str, str]) -> Response:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    try:
        line.request(method, path, body, headers, encode_chunked=not isinstance(body, bytes))
        answer = line.getresponse()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        line.close()


# --- WSGI ---


def wsgi_app(handler: Callable[[Seen], Reply]) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH")
        body = environ["wsgi.input"].read(int(length)) if length else b""
        reply = handler(Seen(environ["REQUEST_METHOD"], environ["PATH_INFO"], body))
        start_response(f"{reply.status} Said", list(reply.headers))
        return iter(reply.parts)

    return app


class QuietHandler(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002, ANN401  # the name and types of the library
        """Say nothing."""


class Threaded(socketserver.ThreadingMixIn, WSGIServer):
    """A thread a request."""

    daemon_threads = True
    request_queue_size = 128
    """Of clients that come at once; more than the default of 5, beyond which some are reset."""


def serve_wsgi(app: WSGIApplication) -> tuple[int, Callable[[], None]]:
    server = make_server("127.0.0.1", 0, app, server_class=Threaded, handler_class=QuietHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(SOON)

    return server.server_port, close


# --- ASGI ---


def asgi_app(handler: Callable[[Seen], Reply]) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        reply = await asyncio.to_thread(handler, Seen(scope["method"], scope["path"], body))
        headers = [(name.encode(), value.encode()) for name, value in reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        for part in reply.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def serve_asgi(side: AsyncSide, app: App) -> tuple[int, Callable[[], None]]:
    """Serve in the side's loop."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await AsgiConnection(reader, writer).serve(app)
        finally:
            tasks.discard(task)
            writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(connected, "127.0.0.1", 0)

    server = side.wait(start())

    async def stop() -> None:
        server.close()
        if tasks:
            await asyncio.wait(tasks, timeout=SOON)

    return server.sockets[0].getsockname()[1], lambda: side.wait(stop())


class AsgiConnection:
    """One request of HTTP/1.1, as a server for ASGI gives it to its application."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parts: list[bytes] = []
        self._head: Message | None = None
        self._is_chunked = False

    async def serve(self, app: App) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            scope = await self._read_head()
            headers = dict(scope["headers"])
            if headers.get(b"transfer-encoding") == b"chunked":
                body = await self._read_chunks()
            else:
                body = await self._reader.readexactly(int(headers.get(b"content-length", b"0")))
            self._parts = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)] or [b""]
            try:
                await app(scope, self._receive, self._send)
            except Exception:  # noqa: BLE001  # as a server does: 500, if nothing was sent
                if self._head is None:
                    self._writer.write(b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    async def _read_head(self) -> Scope:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        method, target, _ = lines[0].split(b" ")
        path, _, query = target.partition(b"?")
        pairs = [line.split(b": ", 1) for line in lines[1:] if line]
        return {
            "type": "http",
            "method": method.decode(),
            "path": path.decode(),
            "query_string": query,
            "headers": [(name.lower(), value) for name, value in pairs],
        }

    async def _read_chunks(self) -> bytes:
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()
        return body

    async def _receive(self) -> Message:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}
        await self._reader.read(1)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._reader.at_eof():
            raise BrokenPipeError
        if message["type"] == "http.response.start":
            self._head = message
            names = {name.lower() for name, _ in message["headers"]}
            self._is_chunked = b"content-length" not in names
            lines = [f"HTTP/1.1 {message['status']} Said".encode()]
            lines += [name + b": " + value for name, value in message["headers"]]
            lines += [b"Connection: close", *([b"Transfer-Encoding: chunked"] if self._is_chunked else [])]
            self._writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
            return
        part, is_last = message.get("body", b""), not message.get("more_body", False)
        if not self._is_chunked:
            self._writer.write(part)
        elif part:
            self._writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if self._is_chunked and is_last:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
