"""Embedded servers: a real Valkey and a real PostgreSQL on sockets, which end with the process that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.servers.postgres import PostgresServer as PostgresServer
    from segmented.servers.valkey import ValkeyServer as ValkeyServer

LATE: Final = {"PostgresServer": "segmented.servers.postgres", "ValkeyServer": "segmented.servers.valkey"}
"""Imported lazily: finding a running server does not need the programs to start one."""

if not TYPE_CHECKING:  # a type checker would otherwise accept any name
    __getattr__, __dir__, __all__ = late(__name__, LATE)
