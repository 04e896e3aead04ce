"""WSGI and ASGI applications around one handler, asked as a server asks them."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from segmented.dedup import AsyncDedup, Dedup
from segmented.dedup.web import IdempotencyMiddleware, WebOptions, WsgiIdempotencyMiddleware
from segmented.dedup.web.asgi import Message, Receive, Scope, Send
from tests.fixtures.stores import AsyncSide, Side

CHUNK: Final = 7


@dataclass(frozen=True)
class Seen:
    """A request, as a handler sees it."""

    method: str
    path: str
    body: bytes
    encodings: str = ""
    """Value of the header Accept-Encoding."""


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
    def json(self) -> Any:  # noqa: ANN401  # any JSON
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of problem details."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["code"])


@dataclass
class CountingHandler:
    """A handler that counts its requests, and answers with the number unless it is told otherwise."""

    reply: Callable[[int, Seen], Reply] = field(default=lambda number, _: Reply(201, (f"charge {number}".encode(),)))
    served: list[Seen] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, seen: Seen) -> Reply:
        with self._guard:
            self.served.append(seen)
            number = len(self.served)
        return self.reply(number, seen)


class OnceApp:
    """An application in the side's colour whose requests are run once."""

    def __init__(
        self,
        side: Side,
        handler: Callable[[Seen], Reply],
        options: WebOptions | None = None,
        **dedup: Any,  # noqa: ANN401  # those of Dedup
    ) -> None:
        self.namespace = side.name("web")
        self._side = side
        if isinstance(side, AsyncSide):
            guarded = AsyncDedup(side.store, self.namespace, **dedup)
            self._app: Any = IdempotencyMiddleware(_asgi(handler), guarded, options)
        else:
            self._app = WsgiIdempotencyMiddleware(_wsgi(handler), Dedup(side.store, self.namespace, **dedup), options)

    def ask(
        self,
        *keys: str,
        body: bytes = b'{"units": 1}',
        method: str = "POST",
        path: str = "/charges",
        headers: Sequence[tuple[str, str]] = (),
        has_length: bool = True,
    ) -> Response:
        """Ask with any number of idempotency keys. An error of the application is a 500, as from a server."""
        length = [("Content-Length", str(len(body)))] if has_length else []
        named = [("Idempotency-Key", key) for key in keys]
        sent = [*length, *named, *(headers or [("Content-Type", "application/json")])]
        if isinstance(self._side, AsyncSide):
            return self._side.wait(self._asked_async(method, path, body, sent))
        return self._asked(method, path, body, sent)

    def _asked(self, method: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> Response:
        path, _, query = path.partition("?")
        environ: WSGIEnvironment = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "wsgi.input": io.BytesIO(body),
            "wsgi.input_terminated": True,
        }
        for name, value in headers:
            word = name.upper().replace("-", "_")
            word = word if word in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{word}"
            environ[word] = f"{environ[word]},{value}" if word in environ else value
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        try:
            items = self._app(environ, lambda status, given, _=None: begun.append((status, given)))
            found = b"".join(items)
            getattr(items, "close", lambda: None)()
        except Exception:  # noqa: BLE001  # as a server does
            return Response(500, {}, b"")
        status, given = begun[-1]
        return Response(int(status[:3]), {name.lower(): value for name, value in given}, found)

    async def _asked_async(self, method: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> Response:
        path, _, query = path.partition("?")
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        }
        parts = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)] or [b""]
        sent: list[Message] = []

        async def receive() -> Message:
            if parts:
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            await self._app(scope, receive, send)
        except Exception:  # noqa: BLE001  # as a server does
            return Response(500, {}, b"")
        given = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        given = {name.lower(): value for name, value in given.items()}
        return Response(sent[0]["status"], given, b"".join(message.get("body", b"") for message in sent))


def _wsgi(handler: Callable[[Seen], Reply]) -> Any:  # noqa: ANN401  # a WSGI application
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        seen = Seen(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ["wsgi.input"].read(),
            environ.get("HTTP_ACCEPT_ENCODING", ""),
        )
        reply = handler(seen)
        start_response(f"{reply.status} Said", list(reply.headers))
        return iter(reply.parts)

    return app


def _asgi(handler: Callable[[Seen], Reply]) -> Any:  # noqa: ANN401  # an ASGI application
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        accepted = dict(scope["headers"]).get(b"accept-encoding", b"").decode()
        reply = await asyncio.to_thread(handler, Seen(scope["method"], scope["path"], body, accepted))
        headers = [(name.encode(), value.encode()) for name, value in reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        for part in reply.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app
