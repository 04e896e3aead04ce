"""The middleware for WSGI: Flask, Django, and whatever else speaks it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from segmented.dedup.errors import DedupError
from segmented.dedup.run import Replay
from segmented.dedup.web.answers import Answer, problem
from segmented.dedup.web.guard import Guard
from segmented.dedup.web.options import WebOptions
from segmented.dedup.web.request import WebRequest
from segmented.dedup.web.wsgi_messages import BodyCut, Outlet, read_body
from segmented.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from segmented.dedup.dedup import Dedup
    from segmented.dedup.run import Run

UNPREFIXED = ("CONTENT_TYPE", "CONTENT_LENGTH")


class WsgiIdempotencyMiddleware:
    """Runs a request with the header `Idempotency-Key` once, and gives repeats its answer; for WSGI applications.

    ```python
    app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, Dedup(store, "api"), WebOptions(scope=tenant))
    ```

    Otherwise as `IdempotencyMiddleware`.
    """

    def __init__(self, app: WSGIApplication, dedup: Dedup, options: WebOptions | None = None) -> None:
        """Stand in front of `app`; behind whatever finds out who the client is, if `scope` is to ask that."""
        self._app = app
        self._dedup = dedup
        self._guard = Guard(options or WebOptions())

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
        return Outlet(found, key, self._guard, start_response)

    def _run(self, key: str, payload: object) -> Run | Answer | None:
        try:
            begun = self._dedup.begin(key, payload=payload, wait=self._guard.options.wait)
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
    return WebRequest(method, path.decode("utf-8", "backslashreplace"), query, headers, environ)
