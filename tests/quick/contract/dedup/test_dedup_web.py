"""Web requests that run once, under ASGI and WSGI."""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest

from segmented import AsyncDedup, Dedup
from segmented.clock import ManualClock
from segmented.dedup.web import (
    IdempotencyMiddleware,
    WebOptions,
    WsgiIdempotencyMiddleware,
    all_clients,
    below_500,
    every_status,
    request_key,
)
from segmented.dedup.web.asgi import App, Message, Receive, Scope, Send
from segmented.stores.memory import AsyncMemoryStore, MemoryStore
from tests.fixtures.stores import MEMORY, Side, make_side
from tests.support.contract.dedup.dedup_calls import Calls
from tests.support.contract.dedup.web_apps import CountingHandler, OnceApp, Reply, Response, Seen

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


# Requests with an idempotency key, to WSGI and to ASGI applications. What it is in Stripe and the IETF draft.


Open = Callable[..., OnceApp]
MALFORMED = [
    "",
    '""',
    "a b",
    'a"b',
    '"a',
    "a,b",
    '"a", "b"',
    "a\\b",
    "k" * 256,
    '"k',
    "\xe9",
    '"\xe9"',
    '"a\\b"',
    '" "',
]


@pytest.fixture(params=[0, 1], ids=["wsgi", "asgi"])
def web_side(request: pytest.FixtureRequest) -> Iterator[Side]:
    """Memory, for threads and for asyncio: two middlewares, and the store does not matter to them."""
    side = make_side(MEMORY[request.param], ManualClock())
    yield side
    side.close()


@pytest.fixture
def open_shop(web_side: Side) -> Open:
    def made(handler: Callable[[Seen], Reply], **options: Any) -> OnceApp:  # noqa: ANN401  # those of WebOptions
        return OnceApp(web_side, handler, WebOptions(**{"scope": all_clients, **options}))

    return made


def charging(status: int, *, parts: tuple[bytes, ...] = (b"done",)) -> Callable[[int, Seen], Reply]:
    return lambda _, __: Reply(status, parts)


def test_a_repeat_gets_the_stored_answer_and_is_told_so(open_shop: Open) -> None:
    handler = CountingHandler(
        lambda number, _: Reply(
            201,
            (b"charge ", str(number).encode()),
            (("Content-Type", "text/plain"), ("Location", "/charges/7"), ("Set-Cookie", "s=1"), ("X-Trace", "t")),
        )
    )
    server = open_shop(handler)
    first, second = server.ask("k-1"), server.ask("k-1")
    assert (first.status, first.body, first.is_replayed) == (201, b"charge 1", False)
    assert (first.headers["set-cookie"], first.headers["x-trace"]) == ("s=1", "t")
    assert (second.status, second.body, second.is_replayed) == (201, b"charge 1", True)
    assert (second.headers["content-type"], second.headers["location"]) == ("text/plain", "/charges/7")
    assert "set-cookie" not in second.headers
    assert "x-trace" not in second.headers
    assert [seen.body for seen in handler.served] == [b'{"units": 1}']


def test_an_answer_that_may_be_kept_is_not_compressed_for_one_client(open_shop: Open) -> None:
    """A repeat may come from a client that reads no such encoding."""
    handler = CountingHandler(lambda _, seen: Reply(201, (seen.encodings.encode() or b"plain",)))
    server = open_shop(handler)
    compressing = [("Content-Type", "application/json"), ("Accept-Encoding", "gzip")]
    assert server.ask("k-1", headers=compressing).body == server.ask("k-1").body == b"plain"
    assert server.ask(headers=compressing).body == b"gzip", "a request without a key is left alone"


def test_two_keys_are_400_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    assert (open_shop(handler).ask("a", "b").status, handler.served) == (400, [])


def test_a_missing_key_is_400_where_one_is_required(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, is_required=True)
    got = server.ask()
    assert (got.status, got.code, handler.served) == (400, "missing_key", [])
    assert server.ask(method="GET").status == 201
    assert server.ask("k-1").status == 201


def test_only_the_chosen_methods_and_paths_are_run_once(open_shop: Open) -> None:
    server = open_shop(CountingHandler(), methods=["post", "PUT"], paths=["/charges", "/refunds/*"])
    asked = [("POST", "/charges"), ("PUT", "/charges"), ("POST", "/refunds/7"), ("PATCH", "/charges"), ("POST", "/cx")]
    twice = [[server.ask("k-1", method=one, path=path) for _ in range(2)] for one, path in asked]
    assert {got.status for both in twice for got in both} == {201}
    assert [again.is_replayed for _, again in twice] == [True, True, True, False, False]


def test_a_request_whose_scope_is_empty_is_400_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, scope=lambda request: request.header("X-Tenant"))
    for tenant in ([("X-Tenant", "")], [("X-Tenant", " ")], []):
        answer = server.ask("k-1", headers=tenant)
        assert (answer.status, answer.code, len(handler.served)) == (400, "missing_scope", 0)


def test_a_key_belongs_to_its_method_its_path_and_its_tenant(open_shop: Open) -> None:
    server = open_shop(CountingHandler(), scope=lambda request: request.header("X-Tenant"))
    found = [
        server.ask("k-1", headers=[("X-Tenant", "a")]),
        server.ask("k-1", path="/refunds", headers=[("X-Tenant", "a")]),
        server.ask("k-1", method="PATCH", headers=[("X-Tenant", "a")]),
        server.ask("k-1", headers=[("X-Tenant", "b")]),
        server.ask("k-1", headers=[("X-Tenant", "c")]),
        server.ask("k-1", headers=[("X-Tenant", "b")]),
    ]
    assert [got.body[-1:] for got in found] == [b"1", b"2", b"3", b"4", b"5", b"4"]


def test_a_request_in_flight_is_409_with_retry_after_and_then_replayed(open_shop: Open) -> None:
    found: list[Response] = []

    def asking_again(_: int, __: Seen) -> Reply:
        found.extend([server.ask("k-1"), server.ask("k-1", body=b"other")])
        return Reply(201)

    handler = CountingHandler(asking_again)
    server = open_shop(handler, retry_after=3)
    assert server.ask("k-1").status == 201
    in_flight, other = found
    assert (in_flight.status, in_flight.code, in_flight.headers["retry-after"]) == (409, "in_flight", "3")
    assert (other.status, server.ask("k-1").is_replayed, len(handler.served)) == (422, True, 1)


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [(200, True), (302, True), (402, True), (404, False), (422, False), (409, False), (401, False), (500, False)],
)
def test_only_answers_that_say_that_the_work_was_done_are_kept(
    open_shop: Open,
    status: int,
    is_kept: bool,  # noqa: FBT001  # a row of the table
) -> None:
    handler = CountingHandler(charging(status, parts=(b"a", b"b")))
    server = open_shop(handler)
    assert [(got.status, got.body, got.is_replayed) for got in (server.ask("k-1"), server.ask("k-1"))] == [
        (status, b"ab", False),
        (status, b"ab", is_kept),
    ]
    assert len(handler.served) == (1 if is_kept else 2)


WRITINGS = [
    ("application/json", b'{"a": 1, "b": [2]}', "application/json; charset=utf-8", b'{"b":[2],"a":1}'),
    (
        "multipart/form-data; boundary=x1",
        b"--x1\r\na\r\n--x1--",
        "multipart/form-data; boundary=y2",
        b"--y2\r\na\r\n--y2--",
    ),
    ("text/plain", b"a", "text/plain; charset=utf-8", b"a"),
]


@pytest.mark.parametrize(("media", "body", "other_media", "other_body"), WRITINGS, ids=["json", "form", "charset"])
def test_a_body_that_is_written_otherwise_is_the_same_request(
    open_shop: Open, media: str, body: bytes, other_media: str, other_body: bytes
) -> None:
    server = open_shop(CountingHandler(charging(201)))
    assert server.ask("k-1", body=body, headers=[("Content-Type", media)]).status == 201
    assert server.ask("k-1", body=other_body, headers=[("Content-Type", other_media)]).is_replayed
    assert server.ask("k-1", body=body + b"?", headers=[("Content-Type", media)]).status == 422


def test_every_answer_is_kept_where_that_is_asked_for(open_shop: Open) -> None:
    server = open_shop(CountingHandler(charging(500)), keeps=every_status)
    found = [server.ask("k-1"), server.ask("k-1")]
    assert [(got.status, got.is_replayed) for got in found] == [(500, False), (500, True)]


def failing(number: int, _: Seen) -> Reply:
    if number == 1:
        raise ZeroDivisionError
    return Reply(201)


def test_a_handler_that_raises_is_not_run_again_where_every_answer_is_kept(open_shop: Open) -> None:
    handler = CountingHandler(failing)
    server = open_shop(handler, keeps=every_status)
    first, second = server.ask("k-1"), server.ask("k-1")
    assert (first.status, second.status, second.code, second.is_replayed) == (500, 500, "failed", True)
    assert len(handler.served) == 1


def test_an_answer_too_large_to_keep_is_sent_whole_and_repeats_are_told(open_shop: Open) -> None:
    handler = CountingHandler(charging(200, parts=(b"x" * 60,) * 5))
    server = open_shop(handler, answer_max=100)
    assert server.ask("k-1").body == b"x" * 300
    got = server.ask("k-1")
    assert (got.status, got.code, "retry-after" in got.headers, len(handler.served)) == (
        409,
        "answer_not_kept",
        False,
        1,
    )


def test_an_answer_that_the_record_cannot_hold_is_sent_and_repeats_are_told(web_side: Side) -> None:
    handler = CountingHandler(charging(200, parts=(b"x" * 900,)))
    server = OnceApp(web_side, handler, WebOptions(scope=all_clients), size_max=500)
    assert server.ask("k-1").body == b"x" * 900
    assert (server.ask("k-1").code, len(handler.served)) == ("answer_not_kept", 1)


def test_a_request_too_large_to_compare_is_413_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100)
    got = server.ask("k-1", body=b"x" * 101)
    assert (got.status, got.code, handler.served) == (413, "too_large", [])
    assert server.ask("k-1", body=b"x" * 100).status == 201
    assert server.ask(body=b"x" * 101).status == 201


def test_a_body_of_unknown_length_is_compared_and_reaches_the_handler(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100, large_requests="run")
    assert server.ask("k-1", body=b"a" * 80, has_length=False).status == 201
    assert server.ask("k-1", body=b"a" * 80, has_length=False).is_replayed
    assert server.ask("k-1", body=b"b" * 80, has_length=False).status == 422
    assert server.ask("k-1", body=b"a" * 160, has_length=False).status == 201
    assert [seen.body for seen in handler.served] == [b"a" * 80, b"a" * 160]


def test_an_operator_finds_and_frees_the_record_of_a_request(open_shop: Open, web_side: Side) -> None:
    server = open_shop(CountingHandler(), scope=lambda _: "tenant 7")
    server.ask("k-1")
    calls = Calls(web_side, server.namespace)
    key = request_key("k-1", method="post", path="/charges", scope="tenant 7")
    assert calls.read(key).outcome.kind == "value"
    calls.free(key)
    assert server.ask("k-1").body == b"charge 2"


def test_a_request_freed_while_it_runs_gets_its_answer_and_nothing_is_kept(
    open_shop: Open, web_side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    key = request_key("k-1", method="POST", path="/charges")

    def freeing(number: int, _: Seen) -> Reply:
        if number == 1:
            Calls(web_side, server.namespace).free(key)
        return Reply(201, (f"charge {number}".encode(),))

    server = open_shop(CountingHandler(freeing))
    with caplog.at_level(logging.DEBUG):
        assert server.ask("k-1").body == b"charge 1"
    (told,) = [vars(one) for one in caplog.records if one.name == "segmented.dedup.web"]
    assert (told["msg"], told["kind"], told["key"]) == ("idempotency.not_kept", "RunLost", key)
    assert server.ask("k-1").body == b"charge 2"


def test_a_quoted_key_is_the_same_as_a_plain_one(open_shop: Open) -> None:
    server = open_shop(CountingHandler())
    found = [
        server.ask(key) for key in ("8e03978e-40d5", '"8e03978e-40d5"', '"8e03978e-40d5";v=1', '"a b"', r'"a\" \\b"')
    ]
    assert [(got.body[-1:], got.is_replayed) for got in found] == [
        (b"1", False),
        (b"1", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]


def test_a_malformed_key_is_400_and_nothing_runs(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    for key in MALFORMED:
        got = server.ask(key)
        assert (key, got.status, got.code, handler.served) == (key, 400, "malformed_key", [])


def test_an_answer_with_very_long_headers_is_sent_whole_and_repeats_are_told(open_shop: Open) -> None:
    link = ("Link", "x" * 20_000)
    server = open_shop(CountingHandler(lambda _, __: Reply(201, (b"{}",), (link,))))
    first, repeat = server.ask("k-1"), server.ask("k-1")
    assert (first.status, first.headers["link"]) == (201, link[1])
    assert (repeat.status, repeat.code) == (409, "answer_not_kept")


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"units": 2}'},
        {"headers": [("Content-Type", "text/plain")]},
        {"path": "/charges?dry=1"},
        {"body": b""},
    ],
    ids=["body", "content type", "query", "no body"],
)
def test_f22_another_payload_under_the_key_is_422(open_shop: Open, other: dict[str, Any]) -> None:
    handler = CountingHandler()
    server = open_shop(handler)
    server.ask("k-1")
    got = server.ask("k-1", **other)
    assert (got.status, got.code, len(handler.served)) == (422, "other_payload", 1)
    assert server.ask("k-1").is_replayed


def test_a_request_too_large_to_compare_is_run_unprotected_where_that_is_asked_for(open_shop: Open) -> None:
    handler = CountingHandler()
    server = open_shop(handler, request_max=100, large_requests="run")
    body = bytes(range(256))
    assert [server.ask("k-1", body=body).is_replayed for _ in range(2)] == [False, False]
    assert [seen.body for seen in handler.served] == [body, body]
