"""The session time that a server grants: it limits the requested time (by default to between 2 and 20 ticks).

kazoo receives the granted time but does not expose it. So this module requests the same time once more, on a separate
connection that it closes immediately. It uses only kazoo's public names, except for the client's requested time.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException
from kazoo.protocol.serialization import CloseInstance, Connect

from segmented.errors import StoreUnavailable

if TYPE_CHECKING:
    from kazoo.client import KazooClient

NEW_SESSION: tuple[int, bytes] = (0, bytes(16))
LENGTH = struct.Struct("!i")
HEADER = struct.Struct("!ii")


def granted_seconds(client: KazooClient, timeout: float) -> float:
    """Ask the client's servers one after the other, within `timeout` seconds in all."""
    hosts: list[tuple[str, int]] = list(client.hosts)
    failure: Exception | None = None
    for address in hosts:
        try:
            with closing(_connected(client, address, timeout / len(hosts))) as line:
                return _asked(line, client._session_timeout)  # noqa: SLF001  # kazoo has no other place for it
        except (OSError, KazooException, struct.error) as error:
            failure = error
    message = f"ZooKeeper at {', '.join(f'{host}:{port}' for host, port in hosts)} does not report its session time"
    raise StoreUnavailable(message) from failure


def _connected(client: KazooClient, address: tuple[str, int], timeout: float) -> Any:  # noqa: ANN401  # a socket, by kazoo
    line = client.handler.create_connection(
        address,
        hostname=address[0],
        timeout=timeout,
        use_ssl=client.use_ssl,
        ca=client.ca,
        certfile=client.certfile,
        keyfile=client.keyfile,
        keyfile_password=client.keyfile_password,
        verify_certs=client.verify_certs,
        check_hostname=client.check_hostname,
    )
    line.settimeout(timeout)
    return line


def _asked(line: Any, session_ms: int) -> float:  # noqa: ANN401  # a socket, by kazoo
    session_id, password = NEW_SESSION
    _send(line, bytes(Connect(0, 0, session_ms, session_id, password, False).serialize()))  # noqa: FBT003  # kazoo's own
    granted, _ = Connect.deserialize(_received(line), 0)
    _send(line, HEADER.pack(1, CloseInstance.type))
    _received(line)  # the session ends before the connection
    return float(granted.time_out) / 1000


def _send(line: Any, message: bytes) -> None:  # noqa: ANN401  # a socket, by kazoo
    line.sendall(LENGTH.pack(len(message)) + message)


def _received(line: Any) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    (length,) = LENGTH.unpack(_exactly(line, LENGTH.size))
    return _exactly(line, length)


def _exactly(line: Any, length: int) -> bytes:  # noqa: ANN401  # a socket, by kazoo
    parts = b""
    while len(parts) < length:
        part = line.recv(length - len(parts))
        if not part:
            message = "the connection was closed before the answer"
            raise ConnectionError(message)
        parts += part
    return parts
