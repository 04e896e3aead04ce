"""What only WSGI has: iterables that are closed, `write`, and answers that are begun again after an error."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import pytest

from segmented import Dedup
from segmented.dedup.web import WebOptions, WsgiIdempotencyMiddleware, all_clients
from segmented.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def environ(body: bytes = b"", **more: object) -> WSGIEnvironment:
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "HTTP_IDEMPOTENCY_KEY": "k",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        **more,
    }


class Line:
    """A server that asks once."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, dict[str, str]]] = []

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:  # noqa: ANN401, ARG002  # as in PEP 3333
        self.begun.append((status, {name.lower(): value for name, value in headers}))
        return None

    def ask(self, app: WSGIApplication, given: WSGIEnvironment | None = None) -> bytes:
        items = app(given or environ(), self.start)
        try:
            return b"".join(items)
        finally:
            getattr(items, "close", lambda: None)()


class Items:
    """Counts how often it is closed."""

    def __init__(self, *parts: bytes | Exception) -> None:
        self._parts = iter(parts)
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        found = next(self._parts)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.closed += 1


def answering(*given: Items, status: str = "200 OK") -> WSGIApplication:
    left = list(given)

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [])
        return left.pop(0)

    return app


def guarded(app: WSGIApplication, **options: Any) -> WSGIApplication:  # noqa: ANN401  # those of WebOptions
    return WsgiIdempotencyMiddleware(app, Dedup(MemoryStore(), "web"), WebOptions(**{"scope": all_clients, **options}))


def test_what_the_application_gives_is_closed_once_whether_it_is_kept_or_not() -> None:
    for options, status in (({}, "200 OK"), ({"answer_max": 1}, "200 OK"), ({}, "500 Oh")):
        items = Items(b"a", b"b")
        line = Line()
        assert line.ask(guarded(answering(items, status=status), **options)) == b"ab"
        assert (items.closed, line.begun[0][0]) == (1, status)


def test_what_raises_is_closed_and_run_again_by_a_repeat() -> None:
    broken, good = Items(b"a", ZeroDivisionError()), Items(b"b")
    app = guarded(answering(broken, good))
    with pytest.raises(ZeroDivisionError):
        Line().ask(app)
    assert (broken.closed, Line().ask(app)) == (1, b"b")


def test_a_client_that_leaves_during_a_large_answer_does_not_run_it_again() -> None:
    items, line = Items(b"aaaa", b"bbbb"), Line()
    app = guarded(answering(items), answer_max=3)
    found = app(environ(), line.start)
    assert next(iter(found)) == b"aaaa"
    found.close()  # type: ignore[attr-defined]  # as a server does that cannot send
    again = Line()
    again.ask(app)
    assert (items.closed, again.begun[0][0]) == (1, "409 Conflict")


def test_what_is_written_goes_before_what_is_returned() -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"a")
        return [b"b"]

    made = guarded(app)
    assert [Line().ask(made) for _ in range(2)] == [b"ab", b"ab"]


def test_an_answer_that_is_begun_again_after_an_error_is_the_later_one() -> None:
    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        try:
            raise ZeroDivisionError  # noqa: TRY301  # as an application's own
        except ZeroDivisionError:
            start_response("410 Really", [], sys.exc_info())
        return [b"sorry"]

    made, line = guarded(app), Line()
    assert [line.ask(made) for _ in range(2)] == [b"sorry", b"sorry"]
    assert [status for status, _ in line.begun] == ["410 Really", "410 Gone"]


def test_the_handler_reaches_its_run() -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [environ["segmented.once"].provider_key("card").encode()]

    assert Line().ask(guarded(app)).endswith(b"-card")


def test_half_a_body_is_400_and_nothing_runs() -> None:
    line = Line()
    line.ask(guarded(answering()), environ(b"abc", CONTENT_LENGTH="99"))
    assert line.begun[0][0] == "400 Bad Request"


def test_a_body_without_a_length_that_never_ends_is_not_read() -> None:
    class Endless(io.RawIOBase):
        def read(self, _: int = -1) -> bytes:
            message = "it would wait for ever"
            raise AssertionError(message)

    def app(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [b"x"]

    given = {**environ(), "wsgi.input": Endless()}
    del given["CONTENT_LENGTH"]
    assert Line().ask(guarded(app), given) == b"x"


@pytest.mark.parametrize("digits", ["9" * 5_000, "0" * 4_000 + "9" * 19])
def test_a_length_of_thousands_of_digits_is_too_large(digits: str) -> None:
    line = Line()
    line.ask(guarded(answering(Items(b"done"))), environ(CONTENT_LENGTH=digits))
    assert line.begun[0][0] == "413 Request Entity Too Large"


def test_an_encoded_slash_is_another_path_than_a_slash() -> None:
    app = guarded(answering(Items(b"1"), Items(b"2"), Items(b"3")))
    sent = ["/b/c", "/b%2Fc", "/b%252Fc", "/b%2fc?x", "/b/c"]
    decoded = ["/b/c", "/b/c", "/b%2Fc", "/b/c", "/b/c"]
    asked = [environ(PATH_INFO=path, RAW_URI=raw, QUERY_STRING="") for path, raw in zip(decoded, sent, strict=True)]
    assert [Line().ask(app, one) for one in asked] == [b"1", b"2", b"3", b"2", b"1"]
