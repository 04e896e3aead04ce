"""A bare socket to a server: the least that a client in Python can do."""

from __future__ import annotations

import socket
from typing import Self
from urllib.parse import urlsplit


class BareSocket:
    """One connection, one command at a time, each with a short reply."""

    def __init__(self, url: str) -> None:
        """Connect to the server at `unix://path` or `redis://host:port`, without a password."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self._line = socket.socket(socket.AF_UNIX)
            self._line.connect(parts.path)
        else:
            self._line = socket.create_connection((parts.hostname or "localhost", parts.port or 6379))

    def ask(self, *words: str) -> bytes:
        """Send a command and return its raw reply, of at most 4 KiB."""
        sizes = b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
        self._line.sendall(b"*%d\r\n" % len(words) + sizes)
        return self._line.recv(4096)

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._line.close()
