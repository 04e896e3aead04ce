"""Embedded servers: a real Valkey and a real PostgreSQL, started on a socket and gone with the process that did it."""

from __future__ import annotations

from segmented.servers.postgres import PostgresServer
from segmented.servers.valkey import ValkeyServer

__all__ = ["PostgresServer", "ValkeyServer"]
