"""A TCP relay in front of a PostgreSQL server that can lose a reply or stop passing anything on."""

from __future__ import annotations

import contextlib
import socket
import threading

from sqlalchemy import URL, make_url

from tests.support.wires.relay import CHUNK, Relay


class FaultyWire(Relay):
    """Relays bytes both ways until it is told to misbehave."""

    def __init__(self, database: str) -> None:
        """Stand in front of the server of `database`, a URL."""
        self._behind = make_url(database)
        self._lose_replies_after: bytes | None = None
        self._frozen = threading.Event()
        self.lost = threading.Event()
        super().__init__()

    @property
    def url(self) -> str:
        """The database's URL by way of this wire."""
        through = self._behind.difference_update_query(["host", "port"]).set(host="127.0.0.1", port=self.port)
        return through.render_as_string(hide_password=False)

    def lose_reply_to(self, text: bytes) -> None:
        """Close the connection in place of the reply to the next request that contains `text`. Once."""
        self._lose_replies_after = text

    def freeze(self) -> None:
        """Pass nothing on any more, in either direction, and close nothing."""
        self._frozen.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._keep(client)
                if self._frozen.is_set():
                    continue
                server = _connected(self._behind)
                self._keep(server)
                losing = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, losing), daemon=True).start()
                threading.Thread(target=self._replies, args=(server, client, losing), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := client.recv(CHUNK)) and not self._frozen.is_set():
                if self._lose_replies_after is not None and self._lose_replies_after in data:
                    self._lose_replies_after = None
                    losing.set()
                server.sendall(data)
            if not data:
                server.close()

    def _replies(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(CHUNK)) and not self._frozen.is_set():
                if losing.is_set():
                    client.shutdown(socket.SHUT_RDWR)
                    self.lost.set()
                    return
                client.sendall(data)


def _connected(url: URL) -> socket.socket:
    host = url.query.get("host", url.host)
    if isinstance(host, str) and host.startswith("/"):
        found = socket.socket(socket.AF_UNIX)
        found.connect(f"{host}/.s.PGSQL.{url.query.get('port', url.port or 5432)}")
        return found
    return socket.create_connection((str(host), url.port or 5432))
