"""Options and decisions that all middlewares share: which requests have a key, how a refusal looks, what is kept.

The decorator `@idempotent` makes one route run once; the middleware of the framework serves it.

A header such as `Idempotency-Key` holds what IETF draft-ietf-httpapi-idempotency-key-header allows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.message import Message
from fnmatch import fnmatchcase
from functools import wraps
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar

from segmented.dedup.identity import KEY_LENGTH_MAX, canonical, digest
from segmented.dedup.run import Replay
from segmented.dedup.terms import DEFAULT_TTL, DedupOptions, in_words
from segmented.dedup.web.messages import Answer, Unkept, kept_form, problem, replayed, request_key
from segmented.errors import (
    DedupError,
    FailedBefore,
    InFlight,
    InvalidInput,
    OtherPayload,
    ResultUnkept,
    RunLost,
    SegmentedError,
    StoreError,
)
from segmented.locks.durations import checked_timeout, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.clock import Duration
    from segmented.dedup.dedup import AsyncDedup, Dedup, DedupBase
    from segmented.dedup.run import AsyncRun, Run
    from segmented.dedup.web.messages import Headers, WebRequest


DONE: Final = frozenset({402, 410})
"""Statuses from 400 on that say that the work was done, and how it ended."""
TRY_AGAIN: Final = frozenset({401, 407, 408, 425, 429})
"""Statuses below 500 that ask the client to send the same request again."""
KEPT_HEADERS: Final = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-location",
        "content-type",
        "etag",
        "last-modified",
        "link",
        "location",
        "vary",
    }
)
NEVER_KEPT: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that belong to one transmission."""
MEBIBYTE: Final = 1_048_576
WhenDown = Literal["refuse", "run"]
LargeRequest = Literal["refuse", "run"]
HEADERS_MAX: Final = 16_384
"""Maximum characters of the headers of an answer to keep."""
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"[ \t]*(?:;.*)?')
"""A string of RFC 8941 and its parameters; the draft defines none."""
_PLAIN: Final = re.compile(r"[!#-+\--\[\]-~]+")
"""A key that a client sends without quotes: printable, without blanks, commas, quotes and backslashes."""
_ESCAPED: Final = re.compile(r'\\(["\\])')
_log: Final = logging.getLogger("segmented.dedup.web")
P = ParamSpec("P")
V = TypeVar("V")
AppT = TypeVar("AppT")
DedupT = TypeVar("DedupT", bound="DedupBase")
UNSAFE: Final = ("POST", "PUT", "PATCH", "DELETE")
"""Methods of requests that change something."""


def succeeded(status: int) -> bool:
    """Return whether to keep the answer: below 400, or 402 or 410.

    Other answers from 400 on usually come before the handler has done anything, often from the framework: a body that
    does not validate (422), a path that is not there yet (404), a token that has expired (401). The client may send the
    corrected request under the same key.
    """
    return status < 400 or status in DONE  # noqa: PLR2004  # where errors begin


def below_500(status: int) -> bool:
    """Return whether to keep the answer: not a server failure, and not a request to send the same again."""
    return status < 500 and status not in TRY_AGAIN  # noqa: PLR2004  # its name says it


def every_status(_: int) -> bool:
    """Return True to keep every answer, including a 500: a failed request does not run again under its key."""
    return True


def all_clients(_: WebRequest) -> None:
    """Return the same scope for all clients: for services with one client, or keys that nobody can guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Which requests run once, and what is kept of their answers. All options are checked when they are given."""

    header: str | Callable[[WebRequest, bytes], object] = "Idempotency-Key"
    """The header with the key; or a callable that returns the key of a request and its body, such as the id of a
    webhook's event, or None for a request without one. A ValueError, LookupError or TypeError of it is a 400."""
    methods: Collection[str] = ("POST", "PATCH")
    paths: Collection[str] | Callable[[str], bool] | None = None
    """Patterns such as `"/orders"` and `"/orders/*"` (a star matches anything), or a callable; None: all paths."""
    is_required: bool = False
    """Whether a request without a key is refused (400). Otherwise it runs unprotected."""
    scope: Callable[[WebRequest], object] | None = None
    """Owner of the keys, besides method and path: the tenant or user. It has no default, since a client that guesses
    another client's key would get that client's answer; `all_clients` is for a service with one client. A request with
    an empty value gets 400. Any value that `canonical` can write."""
    payload: Callable[[WebRequest, bytes], object] | None = None
    """The part that must be equal in a repeat (422 otherwise). None: media type, query and body; of JSON its values, of
    a form in parts all but the boundary."""
    keeps: Callable[[int], bool] = succeeded
    """Which statuses are kept; a request whose answer is not kept is run again by a repeat."""
    headers: Collection[str] = KEPT_HEADERS
    """Which headers are kept. Cookies are secrets and are kept only if you name them."""
    answer_max: int = 65_536
    """Maximum bytes of an answer's body to keep. A larger one is sent on, and repeats get 409."""
    request_max: int = MEBIBYTE
    """Maximum bytes of a request's body to read ahead for the comparison."""
    large_requests: LargeRequest = "refuse"
    """The treatment of a request with a key and a larger body: 413, or it runs unprotected."""
    timeout: Duration = 0.0
    """Seconds that a repeat waits for the request in flight before it gets 409."""
    retry_after: int = 1
    """Seconds after which a client should try again, sent with 409 and 503."""
    when_down: WhenDown = "refuse"
    """The treatment of a request with a key while the store cannot be reached: 503, or it runs unprotected."""

    def __post_init__(self) -> None:
        """Check all options. Raises InvalidInput for the first wrong one."""
        for what, found in (("methods", self.methods), ("headers", self.headers), ("paths", self.paths)):
            _check_texts(what, found)
        if self.scope is None:
            raise InvalidInput(
                "scope is missing: name the owner of a key by what stays the same when a token is refreshed, as in "
                "scope=lambda request: request.raw['user'].id, or say scope=all_clients if all clients may get each "
                "other's answers"
            )
        _check_header(self.header)
        for what, function in (("scope", self.scope), ("payload", self.payload or all_clients), ("keeps", self.keeps)):
            if not callable(function):
                raise InvalidInput(f"{what} is a callable, not {function!r:.80}")
        for what, number in (
            ("answer_max", self.answer_max),
            ("request_max", self.request_max),
            ("retry_after", self.retry_after),
        ):
            if not is_whole(number) or number < 0:
                raise InvalidInput(f"{what} of {number!r} is not a whole number of 0 or more")
        for what, choice in (("when_down", self.when_down), ("large_requests", self.large_requests)):
            if choice not in {"refuse", "run"}:
                raise InvalidInput(f'{what} is "refuse" or "run", not {choice!r}')
        if never := sorted({name.lower() for name in self.headers} & NEVER_KEPT):
            raise InvalidInput(f"the header {never[0]!r} belongs to one transmission, and cannot be kept")
        checked_timeout(self.timeout)
        object.__setattr__(self, "methods", frozenset(method.upper() for method in self.methods))
        object.__setattr__(self, "headers", frozenset(name.lower() for name in self.headers))

    def owner(self, request: WebRequest) -> object:
        """Return the owner of a request's key; None if the value is empty, as of a header that is not there."""
        found = self.scope(request) if self.scope is not None else None
        is_empty = not found.strip() if isinstance(found, str | bytes) else isinstance(found, Collection) and not found
        return None if is_empty else found

    def covers(self, method: str, path: str) -> bool:
        """Return whether a request with this method and path may have a key."""
        if method not in self.methods:
            return False
        if self.paths is None:
            return True
        if callable(self.paths):
            return self.paths(path)
        return any(fnmatchcase(path, pattern) for pattern in self.paths)


def _check_header(header: object) -> None:
    if not callable(header) and not (isinstance(header, str) and header.strip()):
        raise InvalidInput(f"header is the name of a header or a callable, not {header!r:.80}")


def _check_texts(what: str, found: object) -> None:
    if found is None or (what == "paths" and callable(found)):
        return
    if isinstance(found, str) or not isinstance(found, Collection) or not all(isinstance(one, str) for one in found):
        raise InvalidInput(f"{what} is a collection of texts, not {found!r:.80}")


class Guard:
    """Decides by the options. It reveals a body or a key only to the client that sent it."""

    def __init__(self, options: WebOptions) -> None:
        self.options = options

    def may_have_key(self, request: WebRequest) -> bool:
        """Return whether a request may have a key, or needs one. Its body is then read ahead."""
        header = self.options.header
        if not self.options.covers(request.method, request.path):
            return False
        return self.options.is_required or not isinstance(header, str) or header.lower() in request.headers

    def asked(self, request: WebRequest, body: bytes | None) -> tuple[str, object] | Answer | None:
        """Return the record's key of a request and what a repeat must have in common with it, or its refusal.

        Returns None if it runs unprotected. `body` is None if it is larger than `request_max`.
        """
        if body is None and not isinstance(self.options.header, str):
            return self._too_large()
        try:
            key = self._key(request, body or b"")
        except InvalidInput as error:
            return problem(HTTPStatus.BAD_REQUEST, "malformed_key", str(error))
        if key is None:
            return self._missing(request) if self.options.is_required else None
        scope = self.options.owner(request)
        if scope is None and self.options.scope is not all_clients:
            what = "the request does not say to whom its idempotency key belongs"
            return problem(HTTPStatus.BAD_REQUEST, "missing_scope", what)
        if body is None:
            return self._too_large()
        payload = self.options.payload
        seen = [*_content(request.header("content-type"), body), request.query] if payload is None else None
        name = request_key(key, method=request.method, path=request.place, scope=scope)
        return name, seen if payload is None else payload(request, body)

    def _key(self, request: WebRequest, body: bytes) -> str | None:
        header = self.options.header
        if isinstance(header, str):
            return key_of(request.headers.get(header.lower(), ()), header)
        try:
            found = header(request, body)
        except (ValueError, LookupError, TypeError) as error:
            message = "the request has no id that tells its repeats: send it as the provider's documentation says"
            raise InvalidInput(message) from error
        return None if found is None or found == "" else str(found)

    def _missing(self, request: WebRequest) -> Answer:
        header = self.options.header
        what = f"the header {header}" if isinstance(header, str) else "an id that tells repeats"
        text = f"{request.method} {request.path} needs {what}: send the same value when you send the request again"
        return problem(HTTPStatus.BAD_REQUEST, "missing_key", text)

    def _too_large(self) -> Answer | None:
        if self.options.large_requests == "run":
            return None
        what = f"a request with an idempotency key has a body of at most {self.options.request_max} bytes here"
        return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", what)

    def refused(self, key: str, error: DedupError | StoreError) -> Answer | None:
        """Return the answer that says why a request is not run; None if it runs anyway."""
        again = self.options.retry_after
        match error:
            case InFlight() | RunLost():
                what = "a request with this idempotency key is being worked on"
                return problem(HTTPStatus.CONFLICT, "in_flight", what, retry_after=again)
            case OtherPayload():
                what = "this idempotency key was used with another request"
                return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "other_payload", what)
            case DedupError():
                what = "the request with this idempotency key was not run; an operator must check it"
                return problem(HTTPStatus.CONFLICT, "unsettled", what)
        _log.warning("idempotency.store_down", extra={"key": key, "kind": type(error).__name__})
        if self.options.when_down == "run":
            return None
        what = "idempotency keys cannot be checked now, so the request was not run"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, "store_down", what, retry_after=again)

    def repeated(self, replay: Replay) -> Answer:
        """Return the answer of the first request, or the answer that it was not kept."""
        with suppress(ResultUnkept, FailedBefore):
            found = replayed(replay.result)
            if isinstance(found, Answer):
                return found
        what = "the request with this idempotency key was done, and its answer was not kept"
        return problem(HTTPStatus.CONFLICT, "answer_not_kept", what)

    def form(self, answer: Answer | Unkept) -> dict[str, Any]:
        """Return the part of an answer that is kept; of one with very long headers, only the status."""
        form = kept_form(answer, self.options.headers)
        length = sum(len(name) + len(value) for name, value in form.get("headers", ()))
        return kept_form(Unkept(answer.status), ()) if length > HEADERS_MAX else form

    def crashed(self, error: BaseException) -> Answer | None:
        """Return what is kept of a request whose handler raised; None if a repeat runs it again."""
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        if not isinstance(error, Exception) or not self.options.keeps(status.value):
            return None
        return problem(status, "failed", "the request with this idempotency key failed")

    def not_ended(self, key: str, error: Exception) -> None:
        """Log that the outcome of a run could not be recorded: its answer is sent, and a repeat may run again."""
        _log.warning("idempotency.not_kept", extra={"key": key, "kind": type(error).__name__})


def _content(content_type: str, body: bytes) -> tuple[str, str]:
    """Return media type and digest of a body, without what one client may write in several ways.

    That is white space and order in JSON, parameters such as a charset, and the boundary of a form in parts.
    """
    found = Message()
    found["content-type"] = content_type
    media, boundary = found.get_content_type(), None
    with suppress(TypeError, ValueError, LookupError):  # of a header that only its reader finds malformed
        boundary = found.get_boundary()
    if media == "application/json" or media.endswith("+json"):
        with suppress(ValueError, RecursionError, InvalidInput):
            return media, digest(canonical(json.loads(body), "the body"))
    if boundary and media.startswith("multipart/"):
        line = re.escape(b"--" + boundary.encode("latin-1", "replace"))
        body = re.sub(rb"(?m)^" + line + rb"(?=(?:--)?\r?$)", b"--", body)
    return media, hashlib.sha256(body).hexdigest()


def key_of(values: Sequence[str], header: str) -> str | None:
    """Return the key in these values of the header, quoted or not; None if there is none.

    Raises InvalidInput for a header that is malformed, empty, too long or given twice.
    """
    if not values:
        return None
    if len(values) > 1:
        raise InvalidInput(f"the header {header} is given more than once")
    text = values[0].strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not (quoted or _PLAIN.fullmatch(text)):
        raise InvalidInput(
            f"the header {header} holds one key of 1 to {KEY_LENGTH_MAX} printable ASCII characters, "
            'in double quotes as in "8e03978e-40d5-43dd" or without'
        )
    return key


class Collected:
    """An answer as it comes: held until it is whole and kept, or passed on at once if it is not to be kept."""

    def __init__(self, guard: Guard) -> None:
        self._options = guard.options
        self._size = 0
        self._is_large = False
        self._headers: Headers = ()
        self.status: int | None = None
        self.parts: list[bytes] = []
        """The body so far, unless it is passed on."""
        self.is_passing = False

    def start(self, status: int, headers: Headers) -> None:
        """Note status and headers. They may come again, as long as nothing was passed on."""
        self.status, self._headers = status, headers
        self.is_passing = not self._options.keeps(status)

    def add(self, part: bytes) -> None:
        """Note a part of the body."""
        self.parts.append(part)
        self._size += len(part)
        if self._size > self._options.answer_max and not self.is_passing:
            self.is_passing = self._is_large = True

    @property
    def outcome(self) -> Answer | Unkept | None:
        """Return the part of the answer to keep, or None if a repeat runs again."""
        if self.status is None or (self.is_passing and not self._is_large):
            return None
        return Unkept(self.status) if self._is_large else Answer(self.status, self._headers, b"".join(self.parts))


async def async_begun(
    guard: Guard, dedup: AsyncDedup, request: WebRequest, body: bytes | None
) -> tuple[str, AsyncRun] | Answer | None:
    """Begin the run of a request; see `Guard.asked`. Returns its key and run, or the answer without one."""
    found = guard.asked(request, body)
    if found is None or isinstance(found, Answer):
        return found
    key, payload = found
    try:
        turn = await dedup.begin(key, payload=payload, timeout=guard.options.timeout)
    except (DedupError, StoreError) as error:
        return guard.refused(key, error)
    return guard.repeated(turn) if isinstance(turn, Replay) else (key, turn)


async def async_ended(guard: Guard, run: AsyncRun, key: str, outcome: Answer | Unkept | None) -> None:
    """End a run: keep its answer, or let a repeat run."""
    try:
        if outcome is None:
            await run.abandon()
        else:
            await run.finish(guard.form(outcome))
    except SegmentedError as error:
        guard.not_ended(key, error)


class Middleware(Generic[AppT, DedupT]):
    """An application that is wrapped, and the options of its requests."""

    def __init__(self, app: AppT, dedup: DedupT, options: WebOptions | None = None) -> None:
        """Wrap `app`; without options, only routes with `@idempotent`.

        If `scope` asks who the client is, put the middleware behind the authentication.
        """
        self._app, self._dedup = app, dedup
        self._guard = None if options is None else Guard(options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._dedup!r}>"


class ThreadExchange:
    """A request that one thread serves, and its run; for WSGI and Django."""

    def __init__(self, dedup: Dedup, guard: Guard | None = None) -> None:
        """Create an exchange without a run. `guard` is the middleware's own."""
        self.run: Run | None = None
        self._dedup, self._guard = dedup, guard
        self._key = ""
        self._is_over = False

    def _refused(
        self, guard: Guard, dedup: Dedup, request: WebRequest, read: Callable[[int], bytes | None]
    ) -> Answer | None:
        """Begin the run of a request, unless it has begun or has no key. Returns the answer if it must not run."""
        if self.run is not None or not guard.may_have_key(request):
            return None
        found = begun(guard, dedup, request, read(guard.options.request_max))
        if not isinstance(found, tuple):
            return found
        (self._key, self.run), self._guard = found, guard
        return None

    def failed(self, error: BaseException) -> None:
        """Record that the application raised: a repeat runs again, or gets the failure."""
        self.end(None if self._guard is None else self._guard.crashed(error))

    def end(self, outcome: Answer | Unkept | None) -> None:
        """End the run once, if there is one: keep the answer, if it is to be kept, as soon as the store can."""
        if not self._is_over and self.run is not None and self._guard is not None:
            self._is_over = True
            ended(self._guard, self.run, self._key, outcome)


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


# --- For threads: written by `make sync` from the classes above. ---


def begun(guard: Guard, dedup: Dedup, request: WebRequest, body: bytes | None) -> tuple[str, Run] | Answer | None:
    """Begin the run of a request; see `Guard.asked`. Returns its key and run, or the answer without one."""
    found = guard.asked(request, body)
    if found is None or isinstance(found, Answer):
        return found
    key, payload = found
    try:
        turn = dedup.begin(key, payload=payload, timeout=guard.options.timeout)
    except (DedupError, StoreError) as error:
        return guard.refused(key, error)
    return guard.repeated(turn) if isinstance(turn, Replay) else (key, turn)


def ended(guard: Guard, run: Run, key: str, outcome: Answer | Unkept | None) -> None:
    """End a run: keep its answer, or let a repeat run."""
    try:
        if outcome is None:
            run.abandon()
        else:
            run.finish(guard.form(outcome))
    except SegmentedError as error:
        guard.not_ended(key, error)
