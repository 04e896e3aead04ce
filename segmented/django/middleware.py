"""The middleware: it serves views with `@idempotent`, or all views with `SEGMENTED["IDEMPOTENCY"]`.

The answer is kept after the view has returned, and so after the transaction of `ATOMIC_REQUESTS` has committed.
"""

from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse

from segmented.dedup import Dedup
from segmented.dedup.web.guard import MEBIBYTE, UNSAFE, Guard, Idempotent, ThreadExchange, serving
from segmented.dedup.web.messages import Answer, Unkept, WebRequest, length_of
from segmented.django.apps import setting, store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


class IdempotencyMiddleware:
    """Runs a request once per key, and gives repeats its answer. Put it below Django's authentication.

    A view finds its run in `request.once`. Works under WSGI and ASGI, for views of both kinds.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._dedup = Dedup(store, setting("NAMESPACE"))
        options = setting("IDEMPOTENCY")
        self._guard = None if options is None else Guard(options)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __repr__(self) -> str:
        return f"<IdempotencyMiddleware with {self._dedup!r}>"

    def __call__(self, request: HttpRequest) -> Any:  # noqa: ANN401  # a response, or under ASGI a coroutine
        """Serve one request."""
        exchange = DjangoExchange(self._dedup, self._guard, request)
        if iscoroutinefunction(self):
            return self._served_async(exchange, request)
        with serving(exchange), exchange.ended():
            response = exchange.answered_first()
            return exchange.kept(self._get_response(request)) if response is None else response

    async def _served_async(self, exchange: DjangoExchange, request: HttpRequest) -> HttpResponse:
        with serving(exchange), exchange.ended():
            response = await sync_to_async(exchange.answered_first)()
            if response is not None:
                return response
            return await sync_to_async(exchange.kept)(await self._get_response(request))


class DjangoExchange(ThreadExchange):
    """One request, its run and its response."""

    def __init__(self, dedup: Dedup, guard: Guard | None, request: HttpRequest) -> None:
        super().__init__(dedup, guard)
        self._request = request
        self._is_streaming = False
        if guard is None and request.method in UNSAFE:
            # A kept answer is for clients that read no encoding, too.
            request.META.pop("HTTP_ACCEPT_ENCODING", None)

    def answered_first(self) -> HttpResponse | None:
        """Begin the run if the middleware has options of its own. Returns the response if the view must not run."""
        if self._guard is not None:
            return self._begun(self._guard, self._dedup)
        if self._request.method in UNSAFE:
            self._body(MEBIBYTE)  # before a form is read from the stream, which leaves no body
        return None

    @contextmanager
    def ended(self) -> Iterator[None]:
        """End the run at the end of the request, whatever happens: a repeat of one that was cancelled runs again."""
        try:
            yield
        finally:
            if not self._is_streaming:
                self.end(None)

    def turned(self, route: Idempotent) -> HttpResponse | None:
        """Begin the run of a view. Returns the response if it must not run."""
        return self._begun(route.guard, route.dedup(self._dedup))

    async def async_turned(self, route: Idempotent) -> HttpResponse | None:
        """Do the same for a view that is a coroutine function."""
        found: HttpResponse | None = await sync_to_async(self.turned)(route)
        return found

    def _begun(self, guard: Guard, dedup: Dedup) -> HttpResponse | None:
        answer = self._refused(guard, dedup, _seen(self._request), self._body)
        if self.run is not None:
            self._request.once = self.run
            self._request.META.pop("HTTP_ACCEPT_ENCODING", None)
        return None if answer is None else _response(answer)

    def _body(self, size_max: int) -> bytes | None:
        length = length_of(str(self._request.META.get("CONTENT_LENGTH", "")))
        try:
            body: bytes | None = None if length is not None and length > size_max else self._request.body
        except RequestDataTooBig:
            return None
        return None if body is None or len(body) > size_max else body

    def kept(self, response: Any) -> Any:  # noqa: ANN401  # Django's response
        """Keep the response of a view, if it had a run, and return it."""
        guard = self._guard
        if self.run is not None and guard is not None:
            status = response.status_code
            outcome: Answer | Unkept | None = None
            if guard.options.keeps(status):
                is_large = response.streaming or len(response.content) > guard.options.answer_max
                outcome = Unkept(status) if is_large else Answer(status, tuple(response.items()), response.content)
            if response.streaming and outcome is not None:
                kind = AsyncContent if response.is_async else SyncContent
                response.streaming_content = kind(response.streaming_content, self, outcome)
                self._is_streaming = True
            else:
                self.end(outcome)
        return response


class Content:
    """The content of a streaming response. The run ends with it, since a generator is a part of the view."""

    def __init__(self, items: Any, exchange: DjangoExchange, outcome: Answer | Unkept) -> None:  # noqa: ANN401  # any iterator
        """Wrap `items`; at their end the run has this outcome."""
        self._items, self._exchange, self._outcome = items, exchange, outcome

    def close(self) -> None:
        """End the run. Called by Django when the response is closed, whether or not it was sent as a whole."""
        self._exchange.end(self._outcome)


class SyncContent(Content):
    """The content of a response for threads."""

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._items
        except GeneratorExit:  # the client disconnected: `close` ends the run
            raise
        except BaseException as error:
            self._exchange.failed(error)
            raise
        self.close()


class AsyncContent(Content):
    """The content of an asynchronous response."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for part in self._items:
                yield part
        except GeneratorExit:
            raise
        except BaseException as error:
            await sync_to_async(self._exchange.failed)(error)
            raise
        await sync_to_async(self.close)()


def _seen(request: HttpRequest) -> WebRequest:
    headers = {name.lower(): (value,) for name, value in request.headers.items()}
    return WebRequest(request.method or "", request.path, request.META.get("QUERY_STRING", ""), headers, request)


def _response(answer: Answer) -> HttpResponse:
    headers = {name: value for name, value in answer.headers if name.lower() != "content-length"}
    reason = None if answer.status in set(HTTPStatus) else "Status"
    return HttpResponse(answer.body, status=answer.status, reason=reason, headers=headers)
