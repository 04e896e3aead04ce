"""A TCP relay on loopback: what stands between a program and its server, to misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Self

CHUNK: Final = 65_536


class Relay:
    """Listens on a port of its own; `_accept` runs in a thread. All is closed at the end of a `with` statement."""

    def __init__(self) -> None:
        """Begin to listen: whatever `_accept` needs has to be there."""
        self._sockets: list[socket.socket] = []
        self._guard = threading.Lock()
        self._is_over = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        found: int = self._listener.getsockname()[1]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._is_over = True
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _keep(self, end: socket.socket) -> None:
        """Have it closed at the end; raises OSError where that has come, for what was accepted a moment too late."""
        with self._guard:
            if not self._is_over:
                self._sockets.append(end)
                return
        end.close()
        message = "the relay is closed"
        raise OSError(message)

    def _accept(self) -> None:
        raise NotImplementedError
