"""The server behind a proxy. It does not import the library, so that the proxy starts at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_PORT: Final = 6379


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server: a socket's path, or host and port."""

    path: str | None = None
    host: str = "localhost"
    port: int = DEFAULT_PORT

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Connect. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path is not None:
            await loop.create_unix_connection(protocol, self.path)
        else:
            await loop.create_connection(protocol, self.host, self.port)
