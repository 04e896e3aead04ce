"""The ASGI middleware, for FastAPI, Starlette, Django and others.

It reads the body of a request ahead, and holds the answer back until it is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from segmented.dedup.web.guard import MEBIBYTE, UNSAFE, Collected, Guard, Middleware, async_begun, async_ended, serving
from segmented.dedup.web.messages import Answer, Unkept, WebRequest, length_of

if TYPE_CHECKING:
    from segmented.dedup.dedup import AsyncDedup
    from segmented.dedup.run import AsyncRun
    from segmented.dedup.web.guard import Idempotent

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class IdempotencyMiddleware(Middleware["App", "AsyncDedup"]):
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = AsgiExchange(self._dedup, self._guard, scope, receive, send)
        with suppress(ClientGone), serving(exchange):  # the request was incomplete: nothing has happened
            answer = None if self._guard is None else await exchange.begun(self._guard, self._dedup)
            if answer is None:
                await exchange.served(self._app)
            else:
                await exchange.answer(answer)


class Answered(Exception):
    """Ends a handler whose request has its answer, which the middleware sends whatever the framework makes of this."""


class AsgiExchange:
    """One request, its run and its answer."""

    def __init__(self, dedup: AsyncDedup, guard: Guard | None, scope: Scope, receive: Receive, send: Send) -> None:
        self.run: AsyncRun | None = None
        self._dedup, self._send = dedup, send
        self._is_for_routes = guard is None and scope["method"].upper() in UNSAFE
        self._scope = _own(scope) if guard is not None or self._is_for_routes else scope
        self._request = _request(self._scope)
        self._intake = Intake(receive, MEBIBYTE if guard is None else guard.options.request_max)
        self._outlet: Outlet | None = None
        self._refusal: Answer | None = None

    async def begun(self, guard: Guard, dedup: AsyncDedup) -> Answer | None:
        """Begin the run of the request, unless it has begun or has no key. Returns the answer if it must not run."""
        if self.run is not None or not guard.may_have_key(self._request):
            return None
        body = await self._intake.read(self._request.header("content-length"))
        found = await async_begun(guard, dedup, self._request, body)
        if not isinstance(found, tuple):
            return found
        key, run = found
        self.run = self._scope["state"]["once"] = run
        self._outlet = Outlet(run, key, guard, self._send, self._intake)
        return None

    async def async_turned(self, route: Idempotent) -> None:
        """Begin the run of a route. Raises Answered if it must not run."""
        self._refusal = await self.begun(route.guard, route.dedup(self._dedup))
        if self._refusal is not None:
            raise Answered("the request was answered by its idempotency key")

    def turned(self, route: Idempotent) -> None:
        """Do the same in a thread of the framework, which runs a handler that is not a coroutine function."""
        from anyio.from_thread import run  # noqa: PLC0415  # frameworks that call handlers in threads have it

        run(self.async_turned, route)

    async def served(self, app: App) -> None:
        """Run the application. Its answer ends the run, if there is one."""
        if self._outlet is not None or self._is_for_routes:  # a kept answer is for clients that read no encoding, too
            left = [one for one in self._scope["headers"] if one[0].lower() != b"accept-encoding"]
            self._scope["headers"] = left
        try:
            await app(self._scope, self._intake.receive, self._sent)
        except BaseException as error:
            if self._outlet is not None:
                await self._outlet.failed(error)
            if self._refusal is None or not isinstance(error, Exception):
                raise
        if self._refusal is not None:
            await self.answer(self._refusal)
        elif self._outlet is not None:
            await self._outlet.left()

    async def _sent(self, message: Message) -> None:
        if self._refusal is not None:
            return  # such as a 500 for `Answered`
        await (self._send(message) if self._outlet is None else self._outlet.send(message))

    async def answer(self, answer: Answer) -> None:
        """Send an answer."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _request(scope: Scope) -> WebRequest:
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in scope["headers"]:
        text = name.decode("latin-1").lower()
        headers[text] = (*headers.get(text, ()), value.decode("latin-1"))
    query = scope.get("query_string", b"").decode("latin-1")
    undecoded = (scope.get("raw_path") or b"").decode("latin-1")
    return WebRequest(scope["method"].upper(), scope["path"], query, headers, scope, undecoded)


def _own(scope: Scope) -> Scope:
    """Return a scope for this request alone: a server may share its state among requests.

    It lacks extensions that let the application answer past the middleware, such as a file sent by its path.
    """
    extensions: Mapping[str, Any] = scope.get("extensions") or {}
    left = {name: value for name, value in extensions.items() if not name.startswith("http.response.")}
    own = {**scope, "state": {**scope.get("state", {})}}
    return {**own, "extensions": left} if extensions else own


class ClientGone(Exception):
    """The client disconnected in the middle of its request."""


class Intake:
    """Reads a request's body ahead, and replays it to the application; or notes what the application has read."""

    def __init__(self, receive: Receive, size_max: int) -> None:
        self._receive, self._size_max = receive, size_max
        self._unseen: deque[Message] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = False
        self.is_client_gone = False
        """Whether the application has received the message that the client disconnected."""

    async def read(self, length: str) -> bytes | None:
        """Return the body; None if it is too large. `length` is the length in its header."""
        if (length_of(length) or 0) > self._size_max:
            return None
        while not self._is_whole and self._size <= self._size_max:
            message = await self._received()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._unseen.append(message)
        return None if self._size > self._size_max else b"".join(self._parts)

    async def receive(self) -> Message:
        """Return the messages that were read, then new ones."""
        return self._unseen.popleft() if self._unseen else await self._received()

    async def _received(self) -> Message:
        message = await self._receive()
        self.is_client_gone = self.is_client_gone or message["type"] == "http.disconnect"
        if message["type"] == "http.request" and not self._is_whole:
            part = message.get("body", b"")
            self._size += len(part)
            self._is_whole = not message.get("more_body", False)
            self._parts = [*self._parts, part] if self._size <= self._size_max else []
        return message


class Outlet:
    """Collects an answer and sends it once it is kept. An answer that is not kept is streamed."""

    def __init__(self, run: AsyncRun, key: str, guard: Guard, send: Send, intake: Intake) -> None:
        self._run, self._key, self._guard, self._send, self._intake = run, key, guard, send, intake
        self._answer = Collected(guard)
        self._held: deque[Message] = deque()
        self._is_over = False
        self._is_client_gone = False

    async def send(self, message: Message) -> None:
        """Handle a message of the application."""
        kind = message["type"]
        if self._is_over or not (kind == "http.response.start" or (kind == "http.response.body" and self._is_begun)):
            await self._forward(message)
            return
        self._held.append(message)
        is_last = False
        if kind == "http.response.start":
            headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in message.get("headers", ()))
            self._answer.start(message["status"], tuple(headers))
        else:
            self._answer.add(message.get("body", b""))
            is_last = not message.get("more_body", False)
        if is_last:
            await self._end(self._outcome())
        if is_last or self._answer.is_passing:
            await self._pass()

    @property
    def _is_begun(self) -> bool:
        return self._answer.status is not None

    def _outcome(self) -> Answer | Unkept | None:
        """Return what is kept of an answer that has ended.

        Starlette's BaseHTTPMiddleware ends a stream that was cut, because its client disconnected, as if it were whole.
        """
        found = self._answer.outcome
        is_streamed = len(self._answer.parts) > 1
        if self._intake.is_client_gone and is_streamed and isinstance(found, Answer) and not found.is_measured:
            return Unkept(found.status)
        return found

    async def failed(self, error: BaseException) -> None:
        """Record that the application raised: the next request with the key runs again, or gets the failure."""
        await self._end(self._guard.crashed(error))

    async def left(self) -> None:
        """Record that the application returned. If its answer is incomplete, its server reports that."""
        if not self._is_over:
            await self._end(None)
            await self._pass()

    async def _pass(self) -> None:
        self._answer.parts.clear()
        while self._held:
            await self._forward(self._held.popleft())

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
        await async_ended(self._guard, self._run, self._key, outcome)
