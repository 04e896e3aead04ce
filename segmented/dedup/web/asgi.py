"""The middleware for ASGI: FastAPI, Starlette, Django, and whatever else speaks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from segmented.dedup.errors import DedupError
from segmented.dedup.run import Replay
from segmented.dedup.web.answers import Answer
from segmented.dedup.web.asgi_messages import ClientGone, Intake, Outlet, Receive, Send, answer_messages
from segmented.dedup.web.guard import Guard
from segmented.dedup.web.options import WebOptions
from segmented.dedup.web.request import WebRequest
from segmented.errors import StoreError

if TYPE_CHECKING:
    from segmented.dedup.dedup import AsyncDedup
    from segmented.dedup.run import AsyncRun

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class IdempotencyMiddleware:
    """Runs a request with the header `Idempotency-Key` once, and gives repeats its answer; for ASGI applications.

    ```python
    app.add_middleware(IdempotencyMiddleware, dedup=AsyncDedup(lambda: store, "api"), options=WebOptions(scope=tenant))
    ```

    A repeat gets status, chosen headers and body of the first, with `Idempotency-Replayed: true`. Refused with problem
    details: 400 for a key that is malformed, or missing where one is required; 409 while the first is being worked on;
    422 for another payload. The answer is kept before it is sent, so a client that went away finds it.

    Guarantees what `AsyncDedup` does, no more: where a process died in the middle, a repeat runs the request again once
    its lease has lapsed. Answers are held back until they are whole, or larger than `answer_max`.
    """

    def __init__(self, app: App, dedup: AsyncDedup, options: WebOptions | None = None) -> None:
        """Stand in front of `app`; behind whatever finds out who the client is, if `scope` is to ask that."""
        self._app = app
        self._dedup = dedup
        self._guard = Guard(options or WebOptions())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _request(scope)
        found = self._guard.looked_at(request)
        if found is None:
            await self._app(scope, receive, send)
        elif isinstance(found, Answer):
            await _answer(send, found)
        else:
            intake = Intake(receive, self._guard.options.request_max)
            with suppress(ClientGone):  # before its request was whole: nothing has happened
                await self._serve(found, request, intake, send)

    async def _serve(self, key: str, request: WebRequest, intake: Intake, send: Send) -> None:
        scope: Scope = request.raw  # type: ignore[assignment]  # it is the scope, which applications write to
        body = await intake.read(request.header("content-length"))
        if body is None:
            refusal = self._guard.too_large()
        else:
            found = await self._begun(key, self._guard.payload(request, body))
            if found is not None and not isinstance(found, Answer):
                await self._run(found, key, scope, intake, send)
                return
            refusal = found
        if refusal is None:
            await self._app(scope, intake.receive, send)
        else:
            await _answer(send, refusal)

    async def _begun(self, key: str, payload: object) -> AsyncRun | Answer | None:
        try:
            begun = await self._dedup.begin(key, payload=payload, wait=self._guard.options.wait)
        except (DedupError, StoreError) as error:
            return self._guard.refused(key, error)
        return self._guard.repeated(begun) if isinstance(begun, Replay) else begun

    async def _run(self, run: AsyncRun, key: str, scope: Scope, intake: Intake, send: Send) -> None:
        outlet = Outlet(run, key, self._guard, send)
        try:
            await self._app(_without_shortcuts(scope), intake.receive, outlet.send)
        except BaseException as error:
            await outlet.failed(error)
            raise
        await outlet.left()


def _request(scope: Scope) -> WebRequest:
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in scope["headers"]:
        text = name.decode("latin-1").lower()
        headers[text] = (*headers.get(text, ()), value.decode("latin-1"))
    query = scope.get("query_string", b"").decode("latin-1")
    return WebRequest(scope["method"].upper(), scope["path"], query, headers, scope)


def _without_shortcuts(scope: Scope) -> Scope:
    """Offer the application no way to answer past us, such as a file that the server sends by its path."""
    extensions: Mapping[str, Any] = scope.get("extensions") or {}
    left = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return scope if len(left) == len(extensions) else {**scope, "extensions": left}


async def _answer(send: Send, answer: Answer) -> None:
    for message in answer_messages(answer):
        await send(message)
