"""The WSGI middleware, for Flask, Django and others.

It reads the body of a request ahead, and holds the answer back until it is kept.
"""

from __future__ import annotations

import io
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.web.guard import UNSAFE, Collected, Guard, Middleware, ThreadExchange, serving
from segmented.dedup.web.messages import Answer, WebRequest, length_of, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from segmented.dedup.dedup import Dedup
    from segmented.dedup.web.guard import Idempotent
    from segmented.dedup.web.messages import Unkept

UNPREFIXED = ("CONTENT_TYPE", "CONTENT_LENGTH")
CHUNK: Final = 65_536


class WsgiIdempotencyMiddleware(Middleware["WSGIApplication", "Dedup"]):
    """Runs a request with the header `Idempotency-Key` once, and gives repeats its answer; for WSGI applications.

    ```python
    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, Dedup(store, "api"), WebOptions(scope=tenant))
    ```

    Otherwise as `IdempotencyMiddleware`.
    """

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        exchange = WsgiExchange(self._dedup, environ, start_response)
        with serving(exchange):
            if self._guard is not None:
                answer = exchange.begun(self._guard, self._dedup)
                if answer is not None:
                    return answer(environ, start_response)
            elif environ["REQUEST_METHOD"].upper() in UNSAFE:
                environ.pop("HTTP_ACCEPT_ENCODING", None)  # a kept answer is for clients that read no encoding, too
            return exchange.served(self._app)


class WsgiExchange(ThreadExchange):
    """One request, its run and its answer."""

    def __init__(self, dedup: Dedup, environ: WSGIEnvironment, start_response: StartResponse) -> None:
        super().__init__(dedup)
        self._environ, self._start = environ, start_response
        self._refusal: Answer | None = None
        self._answer: Collected | None = None
        self._head: tuple[str, list[tuple[str, str]]] | None = None
        self._is_sent = False

    def begun(self, guard: Guard, dedup: Dedup) -> Answer | None:
        """Begin the run of the request, unless it has begun or has no key. Returns the answer if it must not run."""
        try:
            answer = self._refused(guard, dedup, _request(self._environ), partial(read_body, self._environ))
        except BodyCut:
            return problem(HTTPStatus.BAD_REQUEST, "incomplete", "the request's body is shorter than its length")
        if self.run is not None and self._answer is None:
            self._environ["segmented.once"] = self.run
            self._answer = Collected(guard)
            self._environ.pop("HTTP_ACCEPT_ENCODING", None)
        return answer

    def turned(self, route: Idempotent) -> Answer | None:
        """Begin the run of a route. Returns the answer if it must not run; Flask takes a WSGI application for one."""
        self._refusal = self.begun(route.guard, route.dedup(self._dedup))
        return self._refusal

    async def async_turned(self, route: Idempotent) -> Answer | None:
        """Do the same for a coroutine function, which the framework runs in a thread of its own."""
        return self.turned(route)

    def served(self, app: WSGIApplication) -> Iterable[bytes]:
        """Run the application. Returns its answer once it is kept, or the rest of an answer that is not kept."""
        stream = None
        try:
            items = app(self._environ, self._note)
            if self._is_sent:  # without a run, or an answer: nothing is held back
                return items
            stream = Stream(self, items)
            if not self._collect(stream):
                return stream
        except BaseException as error:
            self.failed(error)
            if stream is not None:
                stream.close()
            raise
        if self._refusal is not None or self._answer is None:
            stream.close()
            return [] if self._refusal is None else self._refusal(self._environ, self._start)
        self.end(self._answer.outcome)
        self._pass()
        return Whole(stream, b"".join(self._answer.parts))

    def _collect(self, stream: Stream) -> bool:
        """Collect the whole answer; False if it is streamed from here on."""
        for part in stream.items:
            answer = self._answer
            if self._refusal is not None:
                return True
            if answer is None:
                stream.begin([part], None)
                return False
            answer.add(part)
            if answer.is_passing:
                stream.begin(answer.parts, answer.outcome)
                self._pass()
                return False
        return True

    def _note(
        self,
        status: str,
        headers: list[tuple[str, str]],
        exc_info: Any = None,  # noqa: ANN401  # the signature in PEP 3333
        /,
    ) -> Callable[[bytes], object]:
        if self._answer is None and self._refusal is None:
            self._is_sent = True
            return self._start(status, headers, exc_info) if exc_info else self._start(status, headers)
        if exc_info is not None and self._is_sent:
            raise exc_info[1].with_traceback(exc_info[2])
        self._head = status, list(headers)
        if self._answer is None:
            return bytes  # of the handler that was not called
        self._answer.start(int(status.split(" ", 1)[0]), tuple(headers))
        return self._answer.add

    def _pass(self) -> None:
        self._is_sent = True
        if self._head is not None:
            self._start(*self._head)


def _request(environ: WSGIEnvironment) -> WebRequest:
    path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): (str(value),)
        for name, value in environ.items()
        if name.startswith("HTTP_") or (name in UNPREFIXED and value)
    }
    method, query = environ["REQUEST_METHOD"].upper(), environ.get("QUERY_STRING", "")
    sent = str(environ.get("REQUEST_URI") or environ.get("RAW_URI") or "").partition("?")[0]  # not part of WSGI
    return WebRequest(method, path.decode("utf-8", "backslashreplace"), query, headers, environ, sent)


class BodyCut(Exception):
    """The body ended before the length in its header."""


class Rest(io.RawIOBase):
    """The part of a body that was read, followed by the unread rest."""

    def __init__(self, read: bytes, left: Any) -> None:  # noqa: ANN401  # the server's input: anything with a read method
        self._read = io.BytesIO(read)
        self._left = left

    def readable(self) -> bool:
        """Return True: it is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # the signature in `io`
        """Fill some of the buffer."""
        found: bytes = self._read.read(len(buffer)) or self._left.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def read_body(environ: WSGIEnvironment, size_max: int) -> bytes | None:
    """Read the body ahead and put it back. Returns None if it exceeds `size_max`. Raises BodyCut if it is cut off."""
    length = length_of(environ.get("CONTENT_LENGTH", ""))
    if length is not None and length > size_max:
        return None
    wanted = length if length is not None else size_max + 1 if environ.get("wsgi.input_terminated") else 0
    source = environ["wsgi.input"]
    body = _read(source, wanted)
    if length is not None and len(body) < wanted:
        raise BodyCut
    if len(body) > size_max:
        environ["wsgi.input"] = io.BufferedReader(Rest(body, source))
        return None
    environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
    return body


def _read(source: Any, wanted: int) -> bytes:  # noqa: ANN401  # as in Rest
    parts: list[bytes] = []
    while wanted > 0:
        part: bytes = source.read(min(wanted, CHUNK))
        if not part:
            break
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


class Stream:
    """The application's iterable, which is always closed exactly once."""

    def __init__(self, exchange: WsgiExchange, items: Iterable[bytes]) -> None:
        self.items: Iterator[bytes] = iter(items)
        self._source = items
        self._exchange = exchange
        self._collected: deque[bytes] = deque()
        self._outcome: Answer | Unkept | None = None
        self._is_closed = False

    def begin(self, collected: list[bytes], outcome: Answer | Unkept | None) -> None:
        """Create an iterable of the collected parts and the rest; at its end the run has this outcome."""
        self._collected, self._outcome = deque(collected), outcome

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._collected:
            return self._collected.popleft()
        try:
            return next(self.items)
        except StopIteration:
            self._exchange.end(self._outcome)
            raise
        except BaseException as error:
            self._exchange.failed(error)
            raise

    def close(self) -> None:
        """End it, also for a client that disconnected early."""
        if not self._is_closed:
            self._is_closed = True
            try:
                close = getattr(self._source, "close", None)
                if close is not None:
                    close()
            finally:
                self._exchange.end(self._outcome)


class Whole(list[bytes]):
    """A whole answer, in one piece, so that a server can set its length."""

    def __init__(self, stream: Stream, body: bytes) -> None:
        super().__init__([body])
        self.close = stream.close
