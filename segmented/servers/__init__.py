"""Embedded servers: a real Valkey and a real PostgreSQL, started on a socket and gone with the process that did it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.imports import late

if TYPE_CHECKING:
    from segmented.servers.postgres import PostgresServer
    from segmented.servers.valkey import ValkeyServer

__all__ = ["PostgresServer", "ValkeyServer"]

LATE: Final = {"PostgresServer": "segmented.servers.postgres", "ValkeyServer": "segmented.servers.valkey"}
"""Imported when asked for: who only looks for a running server needs no program to start one."""

if not TYPE_CHECKING:  # for a type checker every other name would exist, too
    __getattr__, __dir__ = late(__name__, LATE)
