"""Serves the resource to contenders: a Unix socket, one JSON object a line each way, one contender a connection.

A contender identifies itself (`hello`), then sends `enter`, `write`, `leave` and `miss`; the server answers each with
one object. When a connection ends, its open accesses end too: a killed holder has left.
"""

from __future__ import annotations

import json
import selectors
import socket
from typing import TYPE_CHECKING, Any, Final, Self

from bench.torture.resource import AccessRequest

if TYPE_CHECKING:
    from pathlib import Path

    from bench.torture.resource import Resource
    from segmented.clock import Clock

CHUNK: Final = 65_536
BACKLOG: Final = 1_024


class ResourceServer:
    """Serves the resource in one thread, so that the log is totally ordered."""

    def __init__(self, path: Path, resource: Resource, clock: Clock) -> None:
        """Listen at `path`."""
        self._resource = resource
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(BACKLOG)
        self._listener.settimeout(0.0)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()

    def serve(self, seconds: float) -> None:
        """Wait up to `seconds` for requests, and answer those that are ready."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if key.data is None:
                self._accept()
            else:
                self._serve(key.data)

    def client_counts(self) -> dict[int, int]:
        """Return how many contenders of each process are connected and have identified themselves."""
        found: dict[int, int] = {}
        for key in self._selector.get_map().values():
            if key.data is not None and key.data.process:
                found[key.data.process] = found.get(key.data.process, 0) + 1
        return found

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(1.0)  # an answer is a few bytes: it always fits
        self._selector.register(
            connection, selectors.EVENT_READ, ClientConnection(connection, self._resource, self._clock)
        )

    def _serve(self, connection: ClientConnection) -> None:
        if not connection.serve():
            self._selector.unregister(connection.connection)
            connection.end()


class ClientConnection:
    """One contender's connection, and its open accesses."""

    def __init__(self, connection: socket.socket, resource: Resource, clock: Clock) -> None:
        """Serve `connection`."""
        self.connection = connection
        self.process = 0
        self._resource = resource
        self._clock = clock
        self._rest = b""
        self._open: set[int] = set()

    def serve(self) -> bool:
        """Answer the requests received, and return whether the connection is still open."""
        try:
            chunk = self.connection.recv(CHUNK)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self.connection.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
        except OSError:  # killed between request and answer
            return False
        return bool(chunk)

    def end(self) -> None:
        """Close the connection, and end its open accesses."""
        self.connection.close()
        now = self._clock.now()
        for access in sorted(self._open):
            self._resource.die(access, now=now)

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        now = self._clock.now()
        match said.pop("do"):
            case "hello":
                self.process = said["process"]
                return {}
            case "enter":
                access = self._resource.enter(AccessRequest(**said), process=self.process, now=now)
                if access is not None:
                    self._open.add(access)
                return {"access": access}
            case "write":
                return {"is_accepted": self._resource.write(**said, now=now)}
            case "leave":
                self._open.discard(said["access"])
                return {"is_accepted": self._resource.leave(**said, now=now)}
            case "miss":
                self._resource.miss(**said, now=now)
        return {}
