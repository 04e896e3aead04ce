"""What a middleware does with which requests and answers, checked as it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal

from segmented.errors import InvalidInput
from segmented.locks.durations import checked_timeout, is_whole

if TYPE_CHECKING:
    from segmented.dedup.web.messages import WebRequest

TRY_AGAIN: Final = frozenset({401, 407, 408, 425, 429})
"""Answers below 500 that ask for the same request once more."""
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
"""They speak of one transmission."""
MEBIBYTE: Final = 1_048_576
WhenDown = Literal["refuse", "run"]
LargeRequest = Literal["refuse", "run"]


def below_500(status: int) -> bool:
    """Keep what was answered; not a failure of the server, and not what asks for the request once more."""
    return status < 500 and status not in TRY_AGAIN  # noqa: PLR2004  # its name says it


def every_status(_: int) -> bool:
    """Keep every answer, a 500 too: a failed request is not run again under its key."""
    return True


def nobody(_: WebRequest) -> None:
    """Make no difference between clients: for services that have one client, or keys nobody can guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    """Which requests are run once, and what is kept of their answers. All are checked when they are given."""

    methods: Collection[str] = ("POST", "PATCH")
    paths: Collection[str] | Callable[[str], bool] | None = None
    """Patterns such as `"/orders"` and `"/orders/*"` (a star stands for anything), or a callable; None: all paths."""
    is_required: bool = False
    """Is a request without a key refused (400)? Otherwise it is run, unprotected."""
    scope: Callable[[WebRequest], object] = nobody
    """Whose keys they are, besides method and path: the tenant or user. Without it a client that guesses the key of
    another one gets that one's answer. Anything of which `canonical` makes a text."""
    payload: Callable[[WebRequest, bytes], object] | None = None
    """What must be equal in a repeat (422 otherwise); None: content type, query and all of the body."""
    keeps: Callable[[int], bool] = below_500
    """Which statuses are kept; a request whose answer is not kept is run again by a repeat."""
    headers: Collection[str] = KEPT_HEADERS
    """Which headers are kept. No cookies among them, unless you name them: they are secrets."""
    answer_max: int = 262_144
    """Bytes of an answer's body that are kept. A larger one is sent on, and repeats are told so (409)."""
    request_max: int = MEBIBYTE
    """Bytes of a request's body that are read ahead, to compare it."""
    large_requests: LargeRequest = "refuse"
    """What becomes of a request with a key and a larger body: 413, or it is run unprotected."""
    wait: float = 0.0
    """Seconds that a repeat waits for the request in flight before it is told 409."""
    retry_after: int = 1
    """Seconds after which a client is told to try again, with 409 and 503."""
    when_down: WhenDown = "refuse"
    """What becomes of a request with a key while the store cannot be reached: 503, or it is run unprotected."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in one sentence."""
        for what, found in (("methods", self.methods), ("headers", self.headers), ("paths", self.paths)):
            _check_texts(what, found)
        for what, function in (("scope", self.scope), ("payload", self.payload or nobody), ("keeps", self.keeps)):
            if not callable(function):
                message = f"{what} is a callable, not {function!r:.80}"
                raise InvalidInput(message)
        for what, number in (
            ("answer_max", self.answer_max),
            ("request_max", self.request_max),
            ("retry_after", self.retry_after),
        ):
            if not is_whole(number) or number < 0:
                message = f"{what} of {number!r} is no whole number of 0 or more"
                raise InvalidInput(message)
        for what, choice in (("when_down", self.when_down), ("large_requests", self.large_requests)):
            if choice not in {"refuse", "run"}:
                message = f'{what} is "refuse" or "run", not {choice!r}'
                raise InvalidInput(message)
        if never := sorted({name.lower() for name in self.headers} & NEVER_KEPT):
            message = f"the header {never[0]!r} belongs to one transmission, and cannot be kept"
            raise InvalidInput(message)
        checked_timeout(self.wait)
        object.__setattr__(self, "methods", frozenset(method.upper() for method in self.methods))
        object.__setattr__(self, "headers", frozenset(name.lower() for name in self.headers))

    def covers(self, method: str, path: str) -> bool:
        """Is a request with this method to this path one of those that may have a key?"""
        if method not in self.methods:
            return False
        if self.paths is None:
            return True
        if callable(self.paths):
            return self.paths(path)
        return any(fnmatchcase(path, pattern) for pattern in self.paths)


def _check_texts(what: str, found: object) -> None:
    if found is None or (what == "paths" and callable(found)):
        return
    if isinstance(found, str) or not isinstance(found, Collection) or not all(isinstance(one, str) for one in found):
        message = f"{what} is a collection of texts, not {found!r:.80}"
        raise InvalidInput(message)
