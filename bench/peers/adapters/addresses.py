"""Addresses as constructor arguments of redis-py's clients: a client made by `from_url` has no retries."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit


def settings(url: str) -> dict[str, Any]:
    """Return the constructor's arguments for a URL of a socket or a port."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {"unix_socket_path": parts.path}
    return {"host": parts.hostname, "port": parts.port}
