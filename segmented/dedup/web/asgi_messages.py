"""The messages of one ASGI request: the body read ahead, the answer held back until it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from segmented.dedup.web.answers import Answer, Unkept
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.dedup.run import AsyncRun
    from segmented.dedup.web.guard import Guard

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(Exception):
    """The client went away in the middle of its request."""


class Intake:
    """Reads a request's body ahead, and gives it to the application again."""

    def __init__(self, receive: Receive, size_max: int) -> None:
        """Read at most `size_max` bytes, and what came with the last of them."""
        self._receive = receive
        self._size_max = size_max
        self._read: list[Message] = []

    async def read(self, length: str) -> bytes | None:
        """Return the body; None when it is too large. `length` is what its header says."""
        if length.isdecimal() and int(length) > self._size_max:
            return None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            self._read.append(message)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._size_max:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def receive(self) -> Message:
        """Give the application what was read, and then what comes."""
        return self._read.pop(0) if self._read else await self._receive()


class Outlet:
    """Collects an answer, has it kept, and then sends it; one that is not kept is sent as it comes."""

    def __init__(self, run: AsyncRun, key: str, guard: Guard, send: Send) -> None:
        """Decide the run by the answer."""
        self._run, self._key, self._guard, self._send = run, key, guard, send
        self._held: list[Message] = []
        """The beginning of the answer, and its body so far."""
        self._size = 0
        self._is_passing = False
        self._outcome_if_passing: Unkept | None = None
        self._is_over = False
        self._is_client_gone = False

    async def send(self, message: Message) -> None:
        """Take a message of the application's."""
        kind = message["type"]
        if kind == "http.response.start" and not self._is_over:
            self._held.append(message)
            if not self._guard.options.keeps(message["status"]):
                await self._pass()
        elif kind == "http.response.body" and self._held and not self._is_over:
            await self._take(message)
        else:
            await self._forward(message)

    async def failed(self, error: BaseException) -> None:
        """Note that the application raised: the next request with the key runs again, or is told so."""
        await self._end(self._guard.crashed(error))

    async def left(self) -> None:
        """Note that the application returned; if its answer was not whole, its server has to say so."""
        if not self._is_over:
            await self._end(None)
            if not self._is_passing:
                await self._pass()

    async def _take(self, message: Message) -> None:
        self._size += len(message.get("body", b""))
        if not self._is_passing and self._size > self._guard.options.answer_max:
            self._outcome_if_passing = Unkept(self._held[0]["status"])
            await self._pass()
        is_last = not message.get("more_body", False)
        if self._is_passing:
            if is_last:
                await self._end(self._outcome_if_passing)
            await self._forward(message)
            return
        self._held.append(message)
        if is_last:
            await self._end(self._answer())
            await self._pass()

    def _answer(self) -> Answer:
        start, *parts = self._held
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ()))
        return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in parts))

    async def _pass(self) -> None:
        self._is_passing = True
        for message in self._held:
            await self._forward(message)
        del self._held[1:]

    async def _forward(self, message: Message) -> None:
        if self._is_client_gone:
            return
        try:
            await self._send(message)
        except OSError:  # as ASGI has it for a client that went away; the work goes on to its end
            self._is_client_gone = True

    async def _end(self, outcome: Answer | Unkept | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            if outcome is None:
                await self._run.abandon()
            else:
                await self._run.finish(self._guard.form(outcome))
        except SegmentedError as error:
            self._guard.not_ended(self._key, error)


def answer_messages(answer: Answer) -> Iterator[dict[str, Any]]:
    """Give an answer as ASGI has it."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    yield {"type": "http.response.start", "status": answer.status, "headers": headers}
    yield {"type": "http.response.body", "body": answer.body, "more_body": False}
