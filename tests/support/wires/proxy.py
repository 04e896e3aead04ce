"""A proxy before a real server that loses replies, holds requests back, or is gone: what networks do."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

CHUNK: Final = 65_536
WAIT_SECONDS: Final = 20.0
COMMAND: Final = re.compile(rb"(?:^|\r\n)\*\d+\r\n")


class Proxy:
    """Passes bytes on between clients and the server's socket, until it is told otherwise."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._guard = threading.Lock()
        self._links: list[_Link] = []
        self._gone = False
        self.swallowed = 0
        self._swallow: tuple[re.Pattern[bytes], int] = (re.compile(b""), 0)
        self._held: re.Pattern[bytes] | None = None
        self._holds_one = False
        self._held_replies: re.Pattern[bytes] | None = None
        self._answer: tuple[re.Pattern[bytes], bytes] | None = None
        self.answered = 0
        self.delay_seconds = 0.0
        """Each request is passed on this much later."""
        self._open = threading.Event()
        self._open.set()
        self.holding = threading.Event()
        """Set once a request or a reply is being held back."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self.vanish()
        self._listener.close()

    def swallow_replies(self, count: int, *, to: bytes) -> None:
        """Let the server run the next `count` requests that match `to`, and cut the line instead of the reply."""
        self._swallow = (re.compile(to), count)

    def hold(self, request: bytes) -> None:
        """Keep back each request that matches the pattern, until `let_go`."""
        self.holding.clear()
        self._open.clear()
        self._holds_one = False
        self._held = re.compile(request)

    def hold_next(self, request: bytes) -> None:
        """Keep back the next request that matches the pattern, and no other, until `let_go`."""
        self.hold(request)
        self._holds_one = True

    def hold_replies(self, to: bytes) -> None:
        """Let the server run each request that matches, and keep what it replies on that line back, until `let_go`."""
        self.holding.clear()
        self._open.clear()
        self._held_replies = re.compile(to)

    def answer(self, reply: bytes, *, to: bytes) -> None:
        """Answer each command of the next request that matches with `reply`; the server does not see them."""
        self._answer = (re.compile(to), reply)

    def let_go(self) -> None:
        """Pass on what was held back."""
        self._held = self._held_replies = None
        self._open.set()

    def vanish(self) -> None:
        """Cut every line and refuse new ones."""
        self._gone = True
        self.cut()

    def cut(self) -> None:
        """Cut every line; new ones are welcome."""
        with self._guard:
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def come_back(self) -> None:
        """Accept lines again."""
        self._gone = False

    def on_request(self, link: _Link, request: bytes) -> None:
        if self.delay_seconds:
            threading.Event().wait(self.delay_seconds)
        held = self._held
        if held is not None and held.search(request):
            self._held = None if self._holds_one else held
            self.holding.set()
            self._open.wait(WAIT_SECONDS)
        answer = self._answer
        if answer is not None and answer[0].search(request):
            self._answer = None
            self.answered += 1
            link.to_client(answer[1] * len(COMMAND.findall(request)))
            return
        link.is_held = self._held_replies is not None and self._held_replies.search(request) is not None
        trigger, count = self._swallow
        if count and trigger.search(request):
            self._swallow = (trigger, count - 1)
            link.is_swallowing = True
        link.to_server(request)

    def on_reply(self, link: _Link) -> None:
        if link.is_held:
            self.holding.set()
            self._open.wait(WAIT_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._guard:
                if self._gone:
                    client.close()
                    continue
                self._links.append(_Link(self, client, self._server))


class _Link:
    """One client's line to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: Path) -> None:
        self._proxy, self._client = proxy, client
        self._upstream = socket.socket(socket.AF_UNIX)
        self._upstream.connect(str(server))
        self.is_swallowing = False
        self.is_held = False
        for pump in (self._requests, self._replies):
            threading.Thread(target=pump, name="proxy-link", daemon=True).start()

    def to_server(self, request: bytes) -> None:
        self._upstream.sendall(request)

    def to_client(self, reply: bytes) -> None:
        self._client.sendall(reply)

    def cut(self) -> None:
        for end in (self._client, self._upstream):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self) -> None:
        with contextlib.suppress(OSError):
            while request := self._client.recv(CHUNK):
                self._proxy.on_request(self, request)
        self.cut()

    def _replies(self) -> None:
        with contextlib.suppress(OSError):
            while reply := self._upstream.recv(CHUNK):
                if self.is_swallowing:
                    self._proxy.swallowed += 1
                    break
                self._proxy.on_reply(self)
                self._client.sendall(reply)
        self.cut()
