"""The WSGI middleware, for Flask, Django and others.

It reads the body of a request ahead, and holds the answer back until it is kept.
"""

from __future__ import annotations

import io
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.run_state import Replay
from segmented.dedup.web.guard import Guard
from segmented.dedup.web.messages import Answer, Unkept, WebRequest, length_of, problem
from segmented.dedup.web.options import WebOptions
from segmented.errors import DedupError, SegmentedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from segmented.dedup.dedup import Dedup
    from segmented.dedup.run import Run

UNPREFIXED = ("CONTENT_TYPE", "CONTENT_LENGTH")
CHUNK: Final = 65_536


class WsgiIdempotencyMiddleware:
    """Runs a request with the header `Idempotency-Key` once, and gives repeats its answer; for WSGI applications.

    ```python
    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, Dedup(store, "api"), WebOptions(scope=tenant))
    ```

    Otherwise as `IdempotencyMiddleware`.
    """

    def __init__(self, app: WSGIApplication, dedup: Dedup, options: WebOptions | None = None) -> None:
        """Wrap `app`. If `scope` asks who the client is, put the middleware behind the authentication."""
        self._app = app
        self._dedup = dedup
        self._guard = Guard(options or WebOptions())

    def __repr__(self) -> str:
        """Return the class and the dedup that it uses."""
        return f"<WsgiIdempotencyMiddleware with {self._dedup!r}>"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        request = _request(environ)
        looked = self._guard.looked_at(request)
        found = self._begun(looked, request, environ, start_response) if isinstance(looked, str) else looked
        if found is None:
            return self._app(environ, start_response)
        if isinstance(found, Outlet):
            return found.collected(self._app, environ)
        start_response(found.line, list(found.headers))
        return [found.body]

    def _begun(
        self, key: str, request: WebRequest, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Outlet | Answer | None:
        try:
            body = read_body(environ, self._guard.options.request_max)
        except BodyCut:
            return problem(HTTPStatus.BAD_REQUEST, "incomplete", "the request's body is shorter than its length")
        if body is None:
            return self._guard.too_large()
        found = self._run(key, self._guard.payload(request, body))
        if found is None or isinstance(found, Answer):
            return found
        environ["segmented.once"] = found
        environ.pop("HTTP_ACCEPT_ENCODING", None)  # a kept answer is for clients that read no such encoding, too
        return Outlet(found, key, self._guard, start_response)

    def _run(self, key: str, payload: object) -> Run | Answer | None:
        try:
            begun = self._dedup.begin(key, payload=payload, timeout=self._guard.options.timeout)
        except (DedupError, StoreError) as error:
            return self._guard.refused(key, error)
        return self._guard.repeated(begun) if isinstance(begun, Replay) else begun


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
        """Create a stream that returns `read` first."""
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


class Outlet:
    """Collects an answer and returns it once it is kept. An answer that is not kept is streamed."""

    def __init__(self, run: Run, key: str, guard: Guard, start_response: StartResponse) -> None:
        """Create a collector whose answer ends the run."""
        self._run, self._key, self._guard, self._start = run, key, guard, start_response
        self._head: tuple[str, list[tuple[str, str]]] | None = None
        self._parts: list[bytes] = []
        self._is_over = False
        self._is_passing = False

    def collected(self, app: WSGIApplication, environ: WSGIEnvironment) -> Iterable[bytes]:
        """Run the application. Returns its answer once it is kept, or the rest of an answer that is not kept."""
        stream = None
        try:
            stream = Stream(self, app(environ, self._note))
            if not self._collect(stream):
                return stream
        except BaseException as error:
            self.end(self._guard.crashed(error))
            if stream is not None:
                stream.close()
            raise
        self.end(self._answer())
        self._pass()
        return Whole(stream, b"".join(self._parts))

    def end(self, outcome: Answer | Unkept | None) -> None:
        """Keep the answer once, if it is to be kept."""
        if self._is_over:
            return
        self._is_over = True
        try:
            if outcome is None:
                self._run.abandon()
            else:
                self._run.finish(self._guard.form(outcome))
        except SegmentedError as error:
            self._guard.not_ended(self._key, error)

    def crashed(self, error: BaseException) -> Answer | None:
        """Return what is kept of a request whose handler raised."""
        return self._guard.crashed(error)

    def _collect(self, stream: Stream) -> bool:
        """Collect the whole answer; False if it is streamed from here on."""
        options, counted, size = self._guard.options, 0, 0
        for part in stream.items:
            self._parts.append(part)
            status = self._status()
            if status is None:
                continue
            size += sum(map(len, self._parts[counted:]))
            counted = len(self._parts)  # the application may have written parts itself
            is_kept = options.keeps(status)
            if not is_kept or size > options.answer_max:
                stream.begin(self._parts, Unkept(status) if is_kept else None)
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
        if exc_info is not None and self._is_passing:
            raise exc_info[1].with_traceback(exc_info[2])
        self._head = status, list(headers)
        return self._parts.append

    def _status(self) -> int | None:
        return None if self._head is None else int(self._head[0].split(" ", 1)[0])

    def _answer(self) -> Answer | Unkept | None:
        status, options = self._status(), self._guard.options
        if status is None or self._head is None or not options.keeps(status):
            return None
        body = b"".join(self._parts)
        return Unkept(status) if len(body) > options.answer_max else Answer(status, tuple(self._head[1]), body)

    def _pass(self) -> None:
        self._is_passing = True
        if self._head is not None:
            self._start(*self._head)


class Stream:
    """The application's iterable, which is always closed exactly once."""

    def __init__(self, outlet: Outlet, items: Iterable[bytes]) -> None:
        """Create a wrapper of `items`."""
        self.items: Iterator[bytes] = iter(items)
        self._source = items
        self._outlet = outlet
        self._collected: deque[bytes] = deque()
        self._outcome: Unkept | None = None
        self._is_closed = False

    def begin(self, collected: list[bytes], outcome: Unkept | None) -> None:
        """Create an iterable of the collected parts and the rest; at its end the run has this outcome."""
        self._collected, self._outcome = deque(collected), outcome

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next part."""
        if self._collected:
            return self._collected.popleft()
        try:
            return next(self.items)
        except StopIteration:
            self._outlet.end(self._outcome)
            raise
        except BaseException as error:
            self._outlet.end(self._outlet.crashed(error))
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
                self._outlet.end(self._outcome)


class Whole(list[bytes]):
    """A whole answer, in one piece, so that a server can set its length."""

    def __init__(self, stream: Stream, body: bytes) -> None:
        """Create an answer of `body` that closes `stream` when the server is done with it."""
        super().__init__([body])
        self.close = stream.close
