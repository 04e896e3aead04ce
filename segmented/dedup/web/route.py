"""The decorator of one route. The middleware of the framework serves it: it reads the body and keeps the answer."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from segmented.dedup.terms import DEFAULT_TTL, DedupOptions, in_words
from segmented.dedup.web.guard import Guard, WebOptions, succeeded
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from segmented.clock import Duration
    from segmented.dedup.dedup import DedupBase
    from segmented.dedup.run import AsyncRun, Run
    from segmented.dedup.web.messages import WebRequest

P = ParamSpec("P")
V = TypeVar("V")
DedupT = TypeVar("DedupT", bound="DedupBase")
UNSAFE: Final = ("POST", "PUT", "PATCH", "DELETE")
"""Methods of requests that change something."""


class Exchange(Protocol):
    """A request that a middleware serves."""

    @property
    def run(self) -> Run | AsyncRun | None:
        """The run of the request, once it has begun."""

    def turned(self, route: Idempotent) -> Any:  # noqa: ANN401  # the framework's answer
        """Begin the run. Returns None, or what the handler returns instead of its work."""

    async def async_turned(self, route: Idempotent) -> Any:  # noqa: ANN401  # the framework's answer
        """Do the same, for a handler that is a coroutine function."""


_serving: ContextVar[Exchange | None] = ContextVar("segmented_exchange", default=None)


@contextmanager
def serving(exchange: Exchange) -> Iterator[None]:
    """Make a request that of the handlers which are called within."""
    token = _serving.set(exchange)
    try:
        yield
    finally:
        _serving.reset(token)


def current_run() -> Run | AsyncRun | None:
    """Return the run of the request that is being handled; None if it is not one that runs once."""
    exchange = _serving.get()
    return None if exchange is None else exchange.run


class Idempotent:
    """Makes a handler run once per key: `@idempotent(...)` below the decorator of its route.

    In FastAPI also a dependency: `run: Annotated[AsyncRun, Depends(idempotent(...).begin)]`.
    """

    def __init__(self, options: WebOptions, keep: Duration | str | None, ttl: Duration | None) -> None:
        """Create a decorator; None: the times of the middleware's `dedup`."""
        self.guard = Guard(options)
        self._keep, self._ttl = None if keep is None else in_words(keep, "keep"), ttl
        DedupOptions(keep=self._keep or 0, ttl=DEFAULT_TTL if ttl is None else ttl)  # raises

    def __repr__(self) -> str:
        return f"<idempotent, keep={self._keep!r}, ttl={self._ttl!r}>"

    def dedup(self, given: DedupT) -> DedupT:
        """Return the middleware's `dedup` with the times of this route."""
        return given if self._keep is None and self._ttl is None else given.with_times(self._keep, self._ttl)

    async def begin(self) -> AsyncRun | Run | None:
        """Begin the run of the current request and return it; None if it has no key."""
        exchange = _current()
        await exchange.async_turned(self)
        return exchange.run

    def __call__(self, handler: Callable[P, V]) -> Callable[P, V]:
        """Decorate a handler, or a method of a class of handlers."""
        if iscoroutinefunction(handler):

            @wraps(handler)
            async def answered(*arguments: P.args, **options: P.kwargs) -> Any:  # noqa: ANN401  # the handler's or the framework's answer
                instead = await _current().async_turned(self)
                return await handler(*arguments, **options) if instead is None else instead

            return answered  # type: ignore[return-value]  # a coroutine function, as the handler

        @wraps(handler)
        def answered_in_thread(*arguments: P.args, **options: P.kwargs) -> V:
            instead: V | None = _current().turned(self)
            return handler(*arguments, **options) if instead is None else instead

        return answered_in_thread


def idempotent(  # each is an option of its own
    *,
    header: str | Callable[[WebRequest, bytes], object] = "Idempotency-Key",
    scope: Callable[[WebRequest], object] | None = None,
    keep: Duration | str | None = None,
    ttl: Duration | None = None,
    payload: Callable[[WebRequest, bytes], object] | None = None,
    keeps: Callable[[int], bool] = succeeded,
    is_required: bool = True,
    timeout: Duration = 0.0,
) -> Idempotent:
    """Make one route run once per key, whatever the middleware does with others.

    ```python
    @app.post("/hooks/github")
    @idempotent(header="X-GitHub-Delivery", scope=all_clients, keep="7d")
    async def github(request: Request): ...
    ```

    The answer is kept for `keep` (seconds, or a text such as "7d"), and a handler whose process died holds its key for
    `ttl` seconds; the default of both is that of the middleware's `dedup`. The other options are those of `WebOptions`.
    Raises InvalidInput.
    """
    options = WebOptions(
        header=header,
        methods=UNSAFE,
        scope=scope,
        payload=payload,
        keeps=keeps,
        is_required=is_required,
        timeout=timeout,
    )
    return Idempotent(options, keep, ttl)


def _current() -> Exchange:
    exchange = _serving.get()
    if exchange is None:
        raise InvalidInput(
            "@idempotent needs the middleware of the framework: app.add_middleware(IdempotencyMiddleware, dedup=...), "
            "app.wsgi_app = WsgiIdempotencyMiddleware(app.wsgi_app, dedup), or in Django's MIDDLEWARE "
            '"segmented.django.IdempotencyMiddleware"'
        )
    return exchange
