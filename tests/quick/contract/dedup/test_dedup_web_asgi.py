"""What only ASGI has: messages, other kinds of connections, work after the answer, tasks that are cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from segmented import AsyncDedup
from segmented.dedup.web import IdempotencyMiddleware, WebOptions, all_clients, below_500, every_status
from segmented.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from segmented.dedup.web.asgi import App, Message, Receive, Scope, Send

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


def test_the_handler_reaches_its_run() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        async def app(scope: Scope, _: Receive, send: Send) -> None:
            await send(START)
            await send(last(scope["state"]["once"].provider_key("card").encode()))

        found = await asked(IdempotencyMiddleware(app, dedup, WebOptions(scope=all_clients)))
        assert found[1]["body"].endswith(b"-card")

    play(scene)


async def asked(app: App, line: Line | None = None, **more: object) -> list[Message]:
    line = line or Line()
    await app(scope(**more), line.receive, line.send)
    return line.sent


def is_replay(sent: list[Message]) -> bool:
    return (b"idempotency-replayed", b"true") in sent[0]["headers"]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_connections_pass_untouched(kind: str) -> None:
    async def scene(dedup: AsyncDedup) -> None:
        seen: list[Scope] = []

        async def app(scope: Scope, _: Receive, __: Send) -> None:
            seen.append(scope)

        given: Scope = {"type": kind}
        await IdempotencyMiddleware(app, dedup, WebOptions(scope=all_clients))(given, Line().receive, Line().send)
        assert seen == [given]
        assert seen[0] is given

    play(scene)


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


def test_a_large_answer_is_sent_on_as_soon_as_it_is_too_large() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        line = Line()
        counts: list[int] = []

        async def inner(_: Scope, __: Receive, send: Send) -> None:
            for message in (START, part(b"aa"), part(b"bb"), part(b"cc"), last(b"")):
                await send(message)
                counts.append(len(line.sent))

        await asked(IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients, answer_max=3)), line)
        assert counts == [0, 0, 3, 4, 5]
        assert b"".join(message.get("body", b"") for message in line.sent) == b"aabbcc"

    play(scene)


def test_a_client_that_leaves_during_a_large_answer_does_not_stop_the_work() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        done: list[bool] = []

        async def inner(_: Scope, __: Receive, send: Send) -> None:
            for message in (START, part(b"aaaa"), part(b"bbbb"), last(b"")):
                await send(message)
            done.append(True)

        app = IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients, answer_max=3))
        await asked(app, Line(breaks_at=1))
        (start, _) = await asked(app)
        assert (done, start["status"]) == ([True], 409)

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


def test_the_application_gets_the_whole_request_and_then_the_end_of_its_client() -> None:
    async def scene(dedup: AsyncDedup) -> None:
        heard: list[Message] = []

        async def inner(_: Scope, receive: Receive, send: Send) -> None:
            heard.extend([await receive(), await receive(), await receive()])
            await send(START)
            await send(last(b"x"))

        parts: list[dict[str, Any]] = [
            {"type": "http.request", "body": b"a", "more_body": True},
            {"type": "http.request", "body": b"b", "more_body": False},
        ]
        await asked(IdempotencyMiddleware(inner, dedup, WebOptions(scope=all_clients)), Line(*parts))
        assert heard == [*parts, {"type": "http.disconnect"}]

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
