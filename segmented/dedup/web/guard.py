"""Decisions that both middlewares share: which requests have a key, how a refusal looks in HTTP, what is kept.

The header `Idempotency-Key` holds what IETF draft-ietf-httpapi-idempotency-key-header allows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.canonical import canonical, digest
from segmented.dedup.identity import KEY_LENGTH_MAX
from segmented.dedup.web.messages import Answer, Unkept, kept_form, problem, replayed, request_key
from segmented.dedup.web.options import all_clients
from segmented.errors import (
    DedupError,
    FailedBefore,
    InFlight,
    InvalidInput,
    OtherPayload,
    ResultUnkept,
    RunLost,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segmented.dedup.run_state import Replay
    from segmented.dedup.web.messages import WebRequest
    from segmented.dedup.web.options import WebOptions

_log: Final = logging.getLogger("segmented.dedup.web")
NAME: Final = "idempotency-key"
HEADERS_MAX: Final = 16_384
"""Maximum characters of the headers of an answer to keep."""
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"[ \t]*(?:;.*)?')
"""A string of RFC 8941 and its parameters; the draft defines none."""
_PLAIN: Final = re.compile(r"[!#-+\--\[\]-~]+")
"""A key that a client sends without quotes: printable, without blanks, commas, quotes and backslashes."""
_ESCAPED: Final = re.compile(r'\\(["\\])')


class Guard:
    """Decides by the options. It reveals a body or a key only to the client that sent it."""

    def __init__(self, options: WebOptions) -> None:
        """Create a guard with these options."""
        self.options = options

    def looked_at(self, request: WebRequest) -> str | Answer | None:
        """Return the record's key, the refusal of the request, or None if the middleware does not handle it."""
        if not self.options.covers(request.method, request.path):
            return None
        try:
            key = key_of(request.headers.get(NAME, ()))
        except InvalidInput as error:
            return problem(HTTPStatus.BAD_REQUEST, "malformed_key", str(error))
        if key is not None:
            scope = self.options.owner(request)
            if scope is None and self.options.scope is not all_clients:
                what = "the request does not say to whom its idempotency key belongs"
                return problem(HTTPStatus.BAD_REQUEST, "missing_scope", what)
            return request_key(key, method=request.method, path=request.place, scope=scope)
        if self.options.is_required:
            what = f"{request.method} requests need the header Idempotency-Key here"
            return problem(HTTPStatus.BAD_REQUEST, "missing_key", what)
        return None

    def payload(self, request: WebRequest, body: bytes) -> object:
        """Return what a repeat must have in common with the first request."""
        if self.options.payload is not None:
            return self.options.payload(request, body)
        return [*_content(request.header("content-type"), body), request.query]

    def too_large(self) -> Answer | None:
        """Return the refusal of a request whose body is too large to compare; None if it runs unprotected."""
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
        try:
            form: dict[str, Any] = replay.result
        except (ResultUnkept, FailedBefore):
            found: Answer | Unkept = Unkept(0)
        else:
            found = replayed(form)
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


def key_of(values: Sequence[str]) -> str | None:
    """Return the key in these values of the header, quoted or not; None if there is none.

    Raises InvalidInput for a header that is malformed, empty, too long or given twice.
    """
    if not values:
        return None
    if len(values) > 1:
        message = "the header Idempotency-Key is given more than once"
        raise InvalidInput(message)
    text = values[0].strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    key = _ESCAPED.sub(r"\1", quoted[1]) if quoted else text
    if not key.strip() or len(key) > KEY_LENGTH_MAX or not (quoted or _PLAIN.fullmatch(text)):
        message = (
            f"the header Idempotency-Key holds one key of 1 to {KEY_LENGTH_MAX} printable ASCII characters, "
            'in double quotes as in "8e03978e-40d5-43dd" or without'
        )
        raise InvalidInput(message)
    return key
