"""Web requests that run once, under ASGI and WSGI."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest

from segmented import AsyncDedup, Dedup
from segmented.dedup.web import (
    IdempotencyMiddleware,
    WebOptions,
    WsgiIdempotencyMiddleware,
    all_clients,
    below_500,
    every_status,
)
from segmented.dedup.web.asgi import App, Message, Receive, Scope, Send
from segmented.stores.memory import AsyncMemoryStore, MemoryStore

START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}


def last(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": False}


def part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


class Line:
    """One request, and what a server was sent for it."""

    def __init__(self, *messages: dict[str, Any], breaks_at: int | None = None) -> None:
        self.sent: list[Message] = []
        self._given: list[Message] = list(messages) or [{"type": "http.request", "body": b"", "more_body": False}]
        self._breaks_at = breaks_at

    async def receive(self) -> Message:
        return self._given.pop(0) if self._given else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._breaks_at is not None and len(self.sent) >= self._breaks_at:
            raise BrokenPipeError
        self.sent.append(message)


def scope(**more: object) -> Scope:
    headers = [(b"idempotency-key", b"k")]
    return {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers, **more}


def play(scene: Callable[[AsyncDedup], Awaitable[None]]) -> None:
    async def played() -> None:
        await scene(AsyncDedup(AsyncMemoryStore(), "web"))

    asyncio.run(played())


def saying(*messages: dict[str, Any]) -> App:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


async def asked(app: App, line: Line | None = None, **more: object) -> list[Message]:
    line = line or Line()
    await app(scope(**more), line.receive, line.send)
    return line.sent


def is_replay(sent: list[Message]) -> bool:
    return (b"idempotency-replayed", b"true") in sent[0]["headers"]


def test_the_answer_is_kept_before_its_first_byte_is_sent() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        repeats: list[bool] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start" and not repeats:
                repeats.append(is_replay(await asked(app)))

        app = IdempotencyMiddleware(saying(START, part(b"a"), last(b"b")), dedup, WebOptions(scope=all_clients))
        await app(scope(), Line().receive, send)
        assert repeats == [True]

    play(scene)


def test_work_after_the_answer_does_not_delay_it_nor_undo_it() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        line = Line()

        async def inner(_: Scope, __: Receive, send: Send) -> None:
            await send(START)
            await send(last(b"x"))
            assert len(line.sent) == 2
            raise ZeroDivisionError

        app = IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients))
        with pytest.raises(ZeroDivisionError):
            await asked(app, line)
        assert is_replay(await asked(app))

    play(scene)


def test_an_answer_that_the_application_does_not_end_is_sent_as_it_is_and_not_kept() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        for messages in ([], [START], [START, part(b"a")]):
            app = IdempotencyMiddleware(saying(*messages), dedup, WebOptions(scope=all_clients))
            assert await asked(app) == messages
            assert await asked(app) == messages

    play(scene)


def test_a_client_that_goes_away_as_its_answer_is_sent_is_no_error_and_it_is_kept() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        app = IdempotencyMiddleware(saying(START, last(b"x")), dedup, WebOptions(scope=all_clients))
        assert await asked(app, Line(breaks_at=0)) == []
        assert is_replay(await asked(app))

    play(scene)


def test_a_client_that_goes_away_before_its_request_is_whole_has_nothing_run() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        half = Line({"type": "http.request", "body": b"a", "more_body": True})
        app = IdempotencyMiddleware(saying(START, last(b"x")), dedup, WebOptions(scope=all_clients))
        assert await asked(app, half) == []
        assert not is_replay(await asked(app))

    play(scene)


@pytest.mark.parametrize("keeps", [below_500, every_status])
def test_a_cancelled_request_is_run_again_by_a_repeat(keeps: Callable[[int], bool]) -> None:
    async def scene(dedup: AsyncDedup) -> None:
        began = asyncio.Event()

        async def inner(_: Scope, __: Receive, send: Send) -> None:
            if not began.is_set():
                began.set()
                await asyncio.Event().wait()
            await send(START)
            await send(last(b"x"))

        app = IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients, keeps=keeps))
        task = asyncio.create_task(asked(app))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_replay(await asked(app))
        assert is_replay(await asked(app))

    play(scene)


def test_an_encoded_slash_is_another_path_than_a_slash() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        served: list[bytes] = []

        async def inner(scope: Scope, receive: Receive, send: Send) -> None:
            served.append(scope["raw_path"])
            await saying(START, last(b"x"))(scope, receive, send)

        app = IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients))
        for decoded, raw in (("/b/c", b"/b/c"), ("/b/c", b"/b%2Fc"), ("/b%2Fc", b"/b%252Fc"), ("/b/c", b"/b%2fc")):
            await asked(app, path=decoded, raw_path=raw)
        assert served == [b"/b/c", b"/b%2Fc", b"/b%252Fc"]

    play(scene)


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


class WsgiLine:
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


def test_half_a_body_is_400_and_nothing_runs() -> None:
    line = WsgiLine()
    line.ask(guarded(answering()), environ(b"abc", CONTENT_LENGTH="99"))
    assert line.begun[0][0] == "400 Bad Request"


def test_an_encoded_slash_is_another_path_under_wsgi() -> None:
    app = guarded(answering(Items(b"1"), Items(b"2"), Items(b"3")))
    sent = ["/b/c", "/b%2Fc", "/b%252Fc", "/b%2fc?x", "/b/c"]
    decoded = ["/b/c", "/b/c", "/b%2Fc", "/b/c", "/b/c"]
    asked = [environ(PATH_INFO=path, RAW_URI=raw, QUERY_STRING="") for path, raw in zip(decoded, sent, strict=True)]
    assert [WsgiLine().ask(app, one) for one in asked] == [b"1", b"2", b"3", b"2", b"1"]
