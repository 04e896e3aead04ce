"""The ASGI middleware, for FastAPI, Starlette, Django and others.

It reads the body of a request ahead, and holds the answer back until it is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from segmented.dedup.run_state import Replay
from segmented.dedup.web.guard import Guard
from segmented.dedup.web.messages import Answer, Unkept, WebRequest, length_of
from segmented.dedup.web.options import WebOptions
from segmented.errors import DedupError, SegmentedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.dedup.async_dedup import AsyncDedup
    from segmented.dedup.async_run import AsyncRun

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class IdempotencyMiddleware:
    """Runs a request with the header `Idempotency-Key` once, and gives repeats its answer; for ASGI applications.

    ```python
    app.add_middleware(IdempotencyMiddleware, dedup=AsyncDedup(lambda: store, "api"), options=WebOptions(scope=tenant))
    ```

    A repeat gets status, chosen headers and body of the first answer, with `Idempotency-Replayed: true`. Refusals are
    problem details: 400 for a malformed key, or a missing one if it is required; 409 while the first request is in
    progress; 422 for another payload. The answer is kept before it is sent, so a client that disconnected can get it.

    The guarantees are those of `AsyncDedup`: if a process died in the middle, a repeat runs the request again once the
    lease has expired. Answers are held back until they are complete, or larger than `answer_max`.
    """

    def __init__(self, app: App, dedup: AsyncDedup, options: WebOptions | None = None) -> None:
        """Wrap `app`. If `scope` asks who the client is, put the middleware behind the authentication."""
        self._app = app
        self._dedup = dedup
        self._guard = Guard(options or WebOptions())

    def __repr__(self) -> str:
        """Return the class and the dedup that it uses."""
        return f"<IdempotencyMiddleware with {self._dedup!r}>"

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
            with suppress(ClientGone):  # the request was incomplete: nothing has happened
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
            begun = await self._dedup.begin(key, payload=payload, timeout=self._guard.options.timeout)
        except (DedupError, StoreError) as error:
            return self._guard.refused(key, error)
        return self._guard.repeated(begun) if isinstance(begun, Replay) else begun

    async def _run(self, run: AsyncRun, key: str, scope: Scope, intake: Intake, send: Send) -> None:
        outlet = Outlet(run, key, self._guard, send)
        scope["state"] = {**scope.get("state", {}), "once": run}  # a server may share its own among requests
        scope["headers"] = [one for one in scope["headers"] if one[0].lower() != b"accept-encoding"]  # as for WSGI
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
    undecoded = (scope.get("raw_path") or b"").decode("latin-1")
    return WebRequest(scope["method"].upper(), scope["path"], query, headers, scope, undecoded)


def _without_shortcuts(scope: Scope) -> Scope:
    """Remove extensions that let the application answer past the middleware, such as a file sent by its path."""
    extensions: Mapping[str, Any] = scope.get("extensions") or {}
    left = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    return scope if len(left) == len(extensions) else {**scope, "extensions": left}


async def _answer(send: Send, answer: Answer) -> None:
    for message in answer_messages(answer):
        await send(message)


class ClientGone(Exception):
    """The client disconnected in the middle of its request."""


class Intake:
    """Reads a request's body ahead, and replays it to the application."""

    def __init__(self, receive: Receive, size_max: int) -> None:
        """Create a reader of at most `size_max` bytes, plus the rest of the last message."""
        self._receive = receive
        self._size_max = size_max
        self._read: deque[Message] = deque()

    async def read(self, length: str) -> bytes | None:
        """Return the body; None if it is too large. `length` is the length in its header."""
        if (length_of(length) or 0) > self._size_max:
            return None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._read.append(message)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._size_max:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def receive(self) -> Message:
        """Return the messages that were read, then new ones."""
        return self._read.popleft() if self._read else await self._receive()


class Outlet:
    """Collects an answer and sends it once it is kept. An answer that is not kept is streamed."""

    def __init__(self, run: AsyncRun, key: str, guard: Guard, send: Send) -> None:
        """Create a collector whose answer ends the run."""
        self._run, self._key, self._guard, self._send = run, key, guard, send
        self._held: list[Message] = []
        """The start of the answer, and its body so far."""
        self._size = 0
        self._is_passing = False
        self._outcome_if_passing: Unkept | None = None
        self._is_over = False
        self._is_client_gone = False

    async def send(self, message: Message) -> None:
        """Handle a message of the application."""
        kind = message["type"]
        if kind == "http.response.start" and not self._is_over:
            self._held.append(message)
            if not self._guard.options.keeps(message["status"]):
                await self._pass()
        elif kind == "http.response.body" and self._held and not self._is_over:
            await self._take(message)
        else:
            await self._forward(message)

    async def failed(self, error: BaseException) -> None:
        """Record that the application raised: the next request with the key runs again, or gets the failure."""
        await self._end(self._guard.crashed(error))

    async def left(self) -> None:
        """Record that the application returned. If its answer is incomplete, its server reports that."""
        if not self._is_over:
            await self._end(None)
            if not self._is_passing:
                await self._pass()

    async def _take(self, message: Message) -> None:
        self._size += len(message.get("body", b""))
        if not self._is_passing and self._size > self._guard.options.answer_max:
            self._outcome_if_passing = Unkept(self._held[0]["status"])
            await self._pass()
        is_last = not message.get("more_body", False)
        if self._is_passing:
            if is_last:
                await self._end(self._outcome_if_passing)
            await self._forward(message)
            return
        self._held.append(message)
        if is_last:
            await self._end(self._answer())
            await self._pass()

    def _answer(self) -> Answer:
        start, *parts = self._held
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ()))
        return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in parts))

    async def _pass(self) -> None:
        self._is_passing = True
        for message in self._held:
            await self._forward(message)
        del self._held[1:]

    async def _forward(self, message: Message) -> None:
        if self._is_client_gone:
            return
        try:
            await self._send(message)
        except OSError:  # ASGI ignores sends to a client that disconnected; the work continues to its end
            self._is_client_gone = True

    async def _end(self, outcome: Answer | Unkept | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            if outcome is None:
                await self._run.abandon()
            else:
                await self._run.finish(self._guard.form(outcome))
        except SegmentedError as error:
            self._guard.not_ended(self._key, error)


def answer_messages(answer: Answer) -> Iterator[dict[str, Any]]:
    """Send an answer as ASGI messages."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    yield {"type": "http.response.start", "status": answer.status, "headers": headers}
    yield {"type": "http.response.body", "body": answer.body, "more_body": False}
