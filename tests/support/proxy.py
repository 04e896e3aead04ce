"""A TCP proxy between a client and a real server that injects the faults of a network."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from typing import Final, Self
from urllib.parse import urlsplit

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 65_536
HOLD_SECONDS: Final = 60.0
"""A proxy passes on what it holds after this time even without `let_go`."""
COMMAND: Final = re.compile(rb"(?:^|\r\n)\*\d+\r\n")
OPCODES: Final = {"create": 15, "delete": 2, "list": 8, "read": 4, "sync": 9}
NOTHING: Final = re.compile(rb"(?!)")


class Proxy:
    """Listens on a TCP port and passes bytes both ways, except for the faults that a test asks for.

    Each pattern is a regular expression, searched for in a chunk of bytes from the client. The end of a `with`
    statement closes every socket, and drops what is held.
    """

    def __init__(self, server: str | tuple[str, int]) -> None:
        """Create a proxy for the server at the path of a Unix socket or at a host and a port, and begin to listen."""
        self._server = server
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._links: list[_Link] = []
        self._refuses = False
        self.refused = 0
        """The number of refused connections."""
        self._swallows = NOTHING
        self._swallow_count = 0
        self._refuses_after = False
        self.swallowed = 0
        """How many replies were lost."""
        self.lost = threading.Event()
        """Set once a reply was lost."""
        self._holds, self._holds_one = NOTHING, False
        self._holds_replies_to = NOTHING
        self._let_go = threading.Event()
        self.holding = threading.Event()
        """Set once a request or a reply is held."""
        self.delay_seconds = 0.0
        """Each request is passed on this much later."""
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()
        _close(self._listener)
        self.let_go()
        self.thaw()

    def swallow_replies(self, count: int, *, to: bytes, and_refuse: bool = False) -> None:
        """Let the server run the next `count` requests that match `to`, and cut the connection instead of the reply.

        With `and_refuse`, refuse new connections from then on.
        """
        self.lost.clear()
        self._refuses_after = and_refuse
        self._swallows, self._swallow_count = re.compile(to), count

    def hold(self, request: bytes) -> None:
        """Keep back each request that matches, and what follows it on its connection, until `let_go`."""
        self._begin_to_hold()
        self._holds, self._holds_one = re.compile(request), False

    def hold_next(self, request: bytes) -> None:
        """Keep back the next request that matches, and what follows it on its connection, until `let_go`."""
        self._begin_to_hold()
        self._holds, self._holds_one = re.compile(request), True

    def hold_replies(self, to: bytes) -> None:
        """Let the server run each request that matches, and keep back its reply, until `let_go`."""
        self._begin_to_hold()
        self._holds_replies_to = re.compile(to)

    def _begin_to_hold(self) -> None:
        self.holding.clear()
        self._let_go.clear()

    def let_go(self) -> None:
        """Pass on what is held."""
        self._holds = self._holds_replies_to = NOTHING
        self._let_go.set()

    def freeze(self) -> None:
        """Pass nothing on, in either direction, and close nothing, until `thaw`."""
        self._flows.clear()

    def thaw(self) -> None:
        """Pass everything on again."""
        self._flows.set()

    def cut(self) -> None:
        """Cut every connection, and accept new ones."""
        with self._guard:
            links, self._links = self._links, []
        for link in links:
            link.cut()

    def vanish(self) -> None:
        """Cut every connection, and refuse new ones until `come_back`."""
        with self._guard:
            self._refuses = True
        self.cut()

    def come_back(self) -> None:
        """Accept connections again."""
        self._refuses = False

    def on_request(self, link: _Link, request: bytes) -> None:
        """Pass a request on, or do to it what the test asked for."""
        self._flows.wait()
        if self.delay_seconds:
            threading.Event().wait(self.delay_seconds)
        held = self._holds
        if held.search(request):
            if self._holds_one:
                self._holds = NOTHING
            self._hold()
        link.is_held = self._holds_replies_to.search(request) is not None
        if self._swallow_count and self._swallows.search(request):
            self._swallow_count -= 1
            link.is_swallowed = True
        link.server.sendall(request)

    def on_reply(self, link: _Link, reply: bytes) -> None:
        """Pass a reply on, or do to it what the test asked for; raises ConnectionAbortedError to cut the connection."""
        self._flows.wait()
        if link.is_swallowed:
            self._refuses = self._refuses or self._refuses_after
            self.swallowed += 1
            self.lost.set()
            raise ConnectionAbortedError
        if link.is_held:
            self._hold()
        link.client.sendall(reply)

    def _hold(self) -> None:
        self.holding.set()
        self._let_go.wait(HOLD_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connected()
            except OSError:
                _close(client)
                continue
            link = _Link(client, server)
            with self._guard:
                if self._refuses:
                    self.refused += 1
                    link.cut()
                    continue
                self._links.append(link)
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(link,), name="proxy-pump", daemon=True).start()

    def _connected(self) -> socket.socket:
        found = socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET)
        try:
            found.connect(self._server)
        except OSError:
            found.close()
            raise
        return found

    def _requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while request := link.client.recv(CHUNK):
                self.on_request(link, request)
        link.cut()

    def _replies(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while reply := link.server.recv(CHUNK):
                self.on_reply(link, reply)
        link.cut()


class _Link:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_swallowed = False
        self.is_held = False

    def cut(self) -> None:
        _close(self.client)
        _close(self.server)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


class RedisProxy(Proxy):
    """A proxy before a Redis server that can also answer in its place."""

    def __init__(self, url: str) -> None:
        """Create a proxy for the server at a `unix://` URL."""
        super().__init__(urlsplit(url).path)
        self.url = f"redis://{LOOPBACK}:{self.port}"
        self._answers, self._reply = NOTHING, b""
        self.answered = 0
        """How many requests were answered in the server's place."""

    def answer(self, reply: bytes, *, to: bytes) -> None:
        """Answer each command of the next request that matches with `reply`; the server does not see them."""
        self._answers, self._reply = re.compile(to), reply

    def on_request(self, link: _Link, request: bytes) -> None:
        """Answer a request, or do with it as any proxy."""
        if not self._answers.search(request):
            super().on_request(link, request)
            return
        self._answers = NOTHING
        self.answered += 1
        link.client.sendall(self._reply * len(COMMAND.findall(request)))


class PostgresProxy(Proxy):
    """A proxy before a PostgreSQL server."""

    def __init__(self, database: str) -> None:
        """Create a proxy for the server of `database`, a URL of SQLAlchemy's."""
        from sqlalchemy import make_url  # noqa: PLC0415  # other libraries' environments run the rows without it

        behind = make_url(database)
        host, port = str(behind.query.get("host", behind.host)), behind.port or 5432
        path = f"{host}/.s.PGSQL.{behind.query.get('port', port)}"
        super().__init__(path if host.startswith("/") else (host, port))
        through = behind.difference_update_query(["host", "port"]).set(host=LOOPBACK, port=self.port)
        self.url = through.render_as_string(hide_password=False)
        """The database's URL by way of this proxy."""


def zookeeper_request(kind: str, path: str = "/segmented/") -> bytes:
    """Return a pattern of ZooKeeper's requests of this kind whose node's path contains `path`."""
    code = re.escape(struct.pack("!i", OPCODES[kind]))
    return b"(?s)(?=.*" + code + b").*" + re.escape(path.encode())
