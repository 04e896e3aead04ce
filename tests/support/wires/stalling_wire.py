"""A TCP relay before a Valkey server that stands still at one request: time to kill whoever waits for the reply."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.wires.relay import CHUNK, Relay

if TYPE_CHECKING:
    from segmented.servers import ValkeyServer


class StallingWire(Relay):
    """Relays bytes both ways, up to the first request that contains a text; nothing is passed on from then on."""

    def __init__(self, server: ValkeyServer, text: bytes, *, is_request_passed: bool) -> None:
        """Keep that request back, or, with `is_request_passed`, its reply."""
        self._path = urlsplit(server.url).path
        self._text = text
        self._is_request_passed = is_request_passed
        self.stalled = threading.Event()
        self.replied = threading.Event()
        super().__init__()

    @property
    def url(self) -> str:
        """The server's URL by way of this wire."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._keep(client)
                server = socket.socket(socket.AF_UNIX)
                self._keep(server)
                server.connect(self._path)
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._replies, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := client.recv(CHUNK)) and not self.stalled.is_set():
                is_it = self._text in data
                if is_it:
                    self.stalled.set()
                if not is_it or self._is_request_passed:
                    server.sendall(data)

    def _replies(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                if self.stalled.is_set():
                    self.replied.set()
                    return
                client.sendall(data)
