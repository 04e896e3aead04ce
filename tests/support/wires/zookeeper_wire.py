"""A wire between a kazoo client and ZooKeeper that loses replies, holds requests back, goes dead, or is cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK: Final = 65_536
LOOPBACK: Final = "127.0.0.1"
HELD_SECONDS: Final = 30.0
OPCODES: Final = {"create": 15, "delete": 2, "list": 8, "read": 4, "sync": 9}


def is_request(kind: str, text: str = "/segmented/") -> Callable[[bytes], bool]:
    """Recognise a request by its kind and a part of its path."""
    code = struct.pack("!i", OPCODES[kind])
    return lambda data: code in data and text.encode() in data


class ZooKeeperWire:
    """Passes bytes on until it is told otherwise."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._ends: list[socket.socket] = []
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        self._losing: Callable[[bytes], bool] | None = None
        self._cuts_after = False
        self.lost = threading.Event()
        """Set once a reply was lost."""
        self._holding: Callable[[bytes], bool] | None = None
        self._let_go = threading.Event()
        self.held = threading.Event()
        """Set once a request is held back."""
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.let_go()
        self.cut()
        self._listener.close()

    def lose_reply_to(self, request: Callable[[bytes], bool], *, and_refuse: bool = False) -> None:
        """Close the connection in place of the reply to the next such request, and refuse new ones if asked to."""
        self.lost.clear()
        self._cuts_after = and_refuse
        self._losing = request

    def hold(self, request: Callable[[bytes], bool]) -> None:
        """Keep the next such request, and what follows it, back until `let_go`."""
        self.held.clear()
        self._let_go.clear()
        self._holding = request

    def let_go(self) -> None:
        """Pass on what was held back."""
        self._holding = None
        self._let_go.set()

    def freeze(self) -> None:
        """Pass nothing on any more, in either direction, and close nothing: the network is gone."""
        self._flows.clear()

    def thaw(self) -> None:
        """Pass everything on again."""
        self._flows.set()

    def cut(self) -> None:
        """Close every connection and refuse new ones."""
        with self._guard:
            self._is_cut = True
            ends, self._ends = self._ends, []
        for end in ends:
            _close(end)

    def mend(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._server_port))
            except OSError:
                client.close()
                continue
            with self._guard:
                if self._is_cut:
                    _close(client)
                    _close(server)
                    continue
                self._ends += [client, server]
            losing = threading.Event()
            for pump in (self._requests, self._replies):
                threading.Thread(target=pump, args=(client, server, losing), name="wire-pump", daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK):
                self._flows.wait(HELD_SECONDS)
                if self._holding is not None and self._holding(data):
                    self._holding = None
                    self.held.set()
                    self._let_go.wait(HELD_SECONDS)
                if self._losing is not None and self._losing(data):
                    self._losing = None
                    losing.set()
                server.sendall(data)
        _close(client)
        _close(server)

    def _replies(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(CHUNK):
                self._flows.wait(HELD_SECONDS)
                if losing.is_set():
                    self._is_cut = self._cuts_after
                    self.lost.set()
                    break
                client.sendall(data)
        _close(client)
        _close(server)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
