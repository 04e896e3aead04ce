"""Embedded servers: a real Valkey and a real PostgreSQL on sockets, which end with the process that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.servers.postgres import PostgresServer
    from segmented.servers.valkey import ValkeyServer

__all__ = ["PostgresServer", "ValkeyServer"]

LATE: Final = {"PostgresServer": "segmented.servers.postgres", "ValkeyServer": "segmented.servers.valkey"}
"""Imported lazily: finding a running server does not need the programs to start one."""

if not TYPE_CHECKING:  # a type checker would accept any name otherwise
    __getattr__, __dir__ = late(__name__, LATE)
