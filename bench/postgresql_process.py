"""Finds the main process of the PostgreSQL server of an engine, if it runs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psutil
from sqlalchemy import text

if TYPE_CHECKING:
    from sqlalchemy import Engine

LOCAL_HOSTS: Final = {"", "localhost", "127.0.0.1", "::1"}


def find_postgresql_process(engine: Engine) -> psutil.Process | None:
    """Return the parent of the answering backend; None for SQLite and for a remote server."""
    if engine.dialect.name != "postgresql":
        return None
    hosts = {engine.url.host or "", *([engine.url.query["host"]] if "host" in engine.url.query else [])}
    if not all(isinstance(host, str) and (host in LOCAL_HOSTS or host.startswith("/")) for host in hosts):
        return None
    with engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        try:
            backend = psutil.Process(pid)
            parent = backend.parent()
        except psutil.Error:
            return None
    if parent is None or "postgres" not in backend.name() or "postgres" not in parent.name():
        return None  # the same id by chance: the server runs in a container or behind a tunnel
    return parent
