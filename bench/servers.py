"""The servers that a benchmark runs on: private embedded ones, or those that the caller names."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import text

from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

SPARE_CONNECTIONS: Final = 8
"""Connections beyond one per buyer: for the meter, the audit and this process."""


@dataclass(frozen=True, slots=True)
class Servers:
    """The addresses of the servers, and their versions and settings."""

    url: str
    database: str
    versions: dict[str, str]
    settings: dict[str, str]
    """Settings that affect durability and speed."""


@contextmanager
def running(url: str | None, database: str | None, *, buyers: int) -> Iterator[Servers]:
    """Start the servers that were not named, check both, and stop what was started. Raises InvalidInput."""
    connections = buyers + SPARE_CONNECTIONS
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(ValkeyServer.start()).url
        if database is None:
            database = stack.enter_context(PostgresServer.start(max_connections=connections)).url
        redis_version, redis_settings = _ask_redis(url)
        database_version, database_settings = _ask_database(database, connections)
        yield Servers(url, database, redis_version | database_version, redis_settings | database_settings)


def _ask_redis(url: str) -> tuple[dict[str, str], dict[str, str]]:
    with RedisStore.from_url(url) as store:
        info = store.client.info()
        name = str(info.get("server_name", "redis"))
        return (
            {name: str(info.get(f"{name}_version", info["redis_version"]))},
            {"aof": "on" if info.get("aof_enabled") else "off", "io_threads": str(info.get("io_threads_active", 0))},
        )


def _ask_database(database: str, connections: int) -> tuple[dict[str, str], dict[str, str]]:
    engine = connect(database, pool_size=1)
    try:
        Gate(engine).create()
        if engine.dialect.name == "postgresql":
            return _ask_postgresql(engine, connections)
        with engine.connect() as connection:
            version = connection.execute(text("SELECT sqlite_version()")).scalar_one()
        return {"sqlite": str(version)}, {"synchronous": "full"}
    finally:
        engine.dispose()


def _ask_postgresql(engine: Engine, connections: int) -> tuple[dict[str, str], dict[str, str]]:
    names = ("fsync", "synchronous_commit", "max_connections", "server_version")
    with engine.connect() as connection:
        found = {name: str(connection.execute(text(f"SHOW {name}")).scalar_one()) for name in names}
    allowed = int(found["max_connections"])
    if allowed < connections:
        message = f"the order database allows {allowed} connections, and this measurement may need {connections}"
        raise InvalidInput(message)
    return {"postgresql": found.pop("server_version")}, found
