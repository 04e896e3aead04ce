"""Options of the middlewares: which requests and answers they handle, and how. Checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_timeout, is_whole

if TYPE_CHECKING:
    from segmented.clock import Duration
    from segmented.dedup.web.messages import WebRequest

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
            message = (
                "scope is missing: name the owner of a key by what stays the same when a token is refreshed, as in "
                "scope=lambda request: request.raw['user'].id, or say scope=all_clients if all clients may get each "
                "other's answers"
            )
            raise InvalidInput(message)
        _check_header(self.header)
        for what, function in (("scope", self.scope), ("payload", self.payload or all_clients), ("keeps", self.keeps)):
            if not callable(function):
                message = f"{what} is a callable, not {function!r:.80}"
                raise InvalidInput(message)
        for what, number in (
            ("answer_max", self.answer_max),
            ("request_max", self.request_max),
            ("retry_after", self.retry_after),
        ):
            if not is_whole(number) or number < 0:
                message = f"{what} of {number!r} is not a whole number of 0 or more"
                raise InvalidInput(message)
        for what, choice in (("when_down", self.when_down), ("large_requests", self.large_requests)):
            if choice not in {"refuse", "run"}:
                message = f'{what} is "refuse" or "run", not {choice!r}'
                raise InvalidInput(message)
        if never := sorted({name.lower() for name in self.headers} & NEVER_KEPT):
            message = f"the header {never[0]!r} belongs to one transmission, and cannot be kept"
            raise InvalidInput(message)
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
        message = f"header is the name of a header or a callable, not {header!r:.80}"
        raise InvalidInput(message)


def _check_texts(what: str, found: object) -> None:
    if found is None or (what == "paths" and callable(found)):
        return
    if isinstance(found, str) or not isinstance(found, Collection) or not all(isinstance(one, str) for one in found):
        message = f"{what} is a collection of texts, not {found!r:.80}"
        raise InvalidInput(message)
