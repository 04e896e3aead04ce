"""Streams that are cut because their client disconnected are not kept as whole answers."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from segmented import AsyncMemoryStore
from segmented.dedup import AsyncDedup
from segmented.dedup.web import IdempotencyMiddleware, WebOptions, all_clients

SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/",
    "raw_path": b"/",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"idempotency-key", b"k")],
}
Message = MutableMapping[str, Any]


async def passed_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    return await call_next(request)


class Shop:
    """An application whose first client disconnects while it works."""

    def __init__(self, kind: str, *, is_wrapped: bool) -> None:
        self.runs = 0
        self._kind, self._gone = kind, asyncio.Event()
        wrapped = [Middleware(BaseHTTPMiddleware, dispatch=passed_on)] if is_wrapped else []
        inner = Starlette(routes=[Route("/", self._handle, methods=["POST"])], middleware=wrapped)
        dedup = AsyncDedup(AsyncMemoryStore(), "web")
        self._app = IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients))

    async def asked(self) -> tuple[int, bytes]:
        sent: list[Message] = []
        unread: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> Message:
            if unread:
                return unread.pop()
            await (self._gone if self.runs == 1 and not self._gone.is_set() else asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app({**SCOPE}, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)

    async def _handle(self, request: Request) -> Response:
        self.runs += 1
        if self._kind == "stream":
            return StreamingResponse(self._parts())
        self._gone.set()
        await request.is_disconnected()
        return JSONResponse("xy")

    async def _parts(self) -> AsyncIterator[bytes]:
        yield b"x"
        if self.runs == 1:
            self._gone.set()
            await asyncio.Event().wait()
        yield b"y"


@pytest.mark.parametrize(
    ("kind", "is_wrapped", "status", "runs"),
    [("stream", True, 409, 1), ("stream", False, 200, 2), ("whole", True, 200, 1), ("whole", False, 200, 1)],
)
def test_a_cut_stream_is_not_given_to_a_repeat_as_if_it_were_whole(
    kind: str, *, is_wrapped: bool, status: int, runs: int
) -> None:
    """With BaseHTTPMiddleware inside, nobody knows whether the stream was cut: it neither runs again nor is kept."""

    async def both() -> tuple[tuple[int, bytes], int]:
        shop = Shop(kind, is_wrapped=is_wrapped)
        await shop.asked()
        return await shop.asked(), shop.runs

    (found, body), ran = asyncio.run(asyncio.wait_for(both(), 60))
    assert (found, ran) == (status, runs)
    if status == 200:
        assert body == (b"xy" if kind == "stream" else b'"xy"')
    else:
        assert b"answer_not_kept" in body
