"""A proxy before a real server that loses replies, holds requests back, or is gone: what networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

CHUNK: Final = 65_536
WAIT_SECONDS: Final = 20.0


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
        self._swallow: tuple[bytes, int] = (b"", 0)
        self._held: bytes | None = None
        self._open = threading.Event()
        self._open.set()
        self.holding = threading.Event()
        """Set once a request is being held back."""
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self.vanish()
        self._listener.close()

    def swallow_replies(self, count: int, *, to: bytes) -> None:
        """Let the server run the next `count` requests that contain `to`, and cut the line instead of the reply."""
        self._swallow = (to, count)

    def hold(self, request: bytes) -> None:
        """Keep back each request that contains these bytes, until `let_go`."""
        self.holding.clear()
        self._open.clear()
        self._held = request

    def let_go(self) -> None:
        """Pass on what was held back."""
        self._held = None
        self._open.set()

    def vanish(self) -> None:
        """Cut every line and refuse new ones."""
        with self._guard:
            self._gone = True
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def come_back(self) -> None:
        """Accept lines again."""
        self._gone = False

    def on_request(self, link: _Link, request: bytes) -> None:
        held = self._held
        if held is not None and held in request:
            self.holding.set()
            self._open.wait(WAIT_SECONDS)
        trigger, count = self._swallow
        if count and trigger in request:
            self._swallow = (trigger, count - 1)
            link.is_swallowing = True
        link.to_server(request)

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
        for pump in (self._requests, self._replies):
            threading.Thread(target=pump, name="proxy-link", daemon=True).start()

    def to_server(self, request: bytes) -> None:
        self._upstream.sendall(request)

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
                self._client.sendall(reply)
        self.cut()
