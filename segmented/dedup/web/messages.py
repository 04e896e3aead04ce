"""Requests and answers as the middlewares see them, for ASGI and WSGI alike.

Answers are those that are kept for repeats, and those that the middlewares create (RFC 9457).
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from segmented.dedup.identity import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from wsgiref.types import StartResponse, WSGIEnvironment

Headers = tuple[tuple[str, str], ...]
REPLAYED: Final = ("idempotency-replayed", "true")
BODILESS: Final = frozenset({204, 205, 304})
ENCODED_SLASH: Final = re.compile("%2f", re.IGNORECASE)
LENGTH_DIGITS: Final = 18
"""A length of more digits is larger than any body; Python refuses to read a number of thousands of them."""


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request, before its body is read."""

    method: str
    """In capitals."""
    path: str
    """Decoded, with the path at which the application is mounted."""
    query: str
    """Undecoded."""
    headers: Mapping[str, tuple[str, ...]]
    """Values by lower-case name."""
    raw: Any
    """The ASGI scope, the WSGI environ or Django's request, with what an authentication layer stored there."""
    undecoded: str = ""
    """The path as the client sent it; "" if the server does not tell."""

    @property
    def place(self) -> str:
        """The path as part of a key: `path`, except that a slash which the client had encoded is still encoded."""
        if ENCODED_SLASH.search(self.undecoded):
            return "/".join(quote(unquote_to_bytes(part), safe="") for part in self.undecoded.split("/"))
        return self.path.replace("%", "%25") if ENCODED_SLASH.search(self.path) else self.path

    def header(self, name: str) -> str:
        """Return a header's value, several joined by commas; "" if there is none."""
        return ", ".join(self.headers.get(name.lower(), ()))


def length_of(text: str) -> int | None:
    """Return the length that a header `Content-Length` says; None if it says none."""
    if not (text.isascii() and text.isdecimal()):
        return None
    return int((text.lstrip("0") or "0")[: LENGTH_DIGITS + 1])


def request_key(key: str, *, method: str, path: str, scope: object = None) -> str:
    """Return the key under which `Dedup.read` and `Dedup.free` find the record of a request.

    `scope` is the value of the option `scope` for it.
    """
    return digest(canonical(["request", scope, method.upper(), path, key], "the scope of a request"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes

    @property
    def is_measured(self) -> bool:
        """Return whether a header says the length that the body has, so that it is whole."""
        return any(name.lower() == "content-length" and value == str(len(self.body)) for name, value in self.headers)

    @property
    def line(self) -> str:
        """The status with its phrase, for WSGI."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:  # a status that the application defines
            return f"{self.status} Status"

    def __call__(self, _: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer, as a WSGI application does."""
        start_response(self.line, list(self.headers))
        return [self.body]

    def measured(self) -> Answer:
        """Return the answer with the length of its body, if it may have one."""
        if self.status in BODILESS:
            return self
        return Answer(self.status, (*self.headers, ("content-length", str(len(self.body)))), self.body)


@dataclass(frozen=True, slots=True)
class Unkept:
    """Return the answer that replaces one whose body was too large to keep."""

    status: int


def kept_form(answer: Answer | Unkept, names: Collection[str]) -> dict[str, Any]:
    """Return the part of an answer that is kept, as JSON; of its headers only those with these names."""
    if isinstance(answer, Unkept):
        return {"status": answer.status}
    headers = [[name, value] for name, value in answer.headers if name.lower() in names]
    return {"status": answer.status, "headers": headers, "body": b64encode(answer.body).decode()}


def replayed(form: dict[str, Any]) -> Answer | Unkept:
    """Return the answer for a repeat."""
    if "body" not in form:
        return Unkept(form["status"])
    headers = tuple((name, value) for name, value in form["headers"])
    return Answer(form["status"], (*headers, REPLAYED), b64decode(form["body"])).measured()


def problem(status: HTTPStatus, code: str, detail: str, *, retry_after: int | None = None) -> Answer:
    """Return an answer of the middleware itself: problem details, whose `code` names the problem."""
    text = {"type": "about:blank", "title": status.phrase, "status": status.value, "code": code, "detail": detail}
    headers = (("content-type", "application/problem+json"), ("cache-control", "no-store"))
    again = () if retry_after is None else (("retry-after", str(retry_after)),)
    return Answer(status.value, (*headers, *again), json.dumps(text).encode()).measured()
