"""The servers that a benchmark runs on, and the conditions of a measurement: versions, machine, commit.

The servers are private embedded ones, or those that the caller names.
"""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from bench.cpu import core_count
from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Engine

SPARE_CONNECTIONS: Final = 8
"""Connections beyond one per buyer: for the meter, the audit and this process."""
PACKAGES: Final = ("segmented-locks", "locust", "gevent", "redis", "sqlalchemy", "psycopg", "hdrhistogram")
CHECKOUT: Final = Path(__file__).resolve().parents[1]
GIT_SECONDS: Final = 5.0


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
    settings = {"aof": "on" if info.get("aof_enabled") else "off", "io_threads": str(info.get("io_threads_active", 0))}
    return dict([named_version(info)]), settings


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


def conditions(servers: Servers) -> dict[str, Any]:
    """Return versions, cores, commit and the other conditions."""
    return {
        **machine_conditions(servers.versions),
        "settings": servers.settings,
        "model": "closed loop: every buyer orders again at once",
        "placement": "generator and embedded servers share the cores",
    }


def server_conditions(url: str, *packages: str) -> dict[str, Any]:
    """Return the conditions of a benchmark on one server; `packages` lists additional packages that matter."""
    with RedisStore.from_url(url) as store:
        server = dict([named_version(store.client.info("server"))])
    return machine_conditions(server, *packages) | {"transport": url.partition("://")[0]}


def machine_conditions(versions: Mapping[str, str], *packages: str) -> dict[str, Any]:
    """Return the machine, the commit and all versions; `versions` are those of the servers."""
    return {
        "versions": {"python": platform.python_version(), **package_versions(*packages), **versions},
        "cores": core_count(),
        "commit": commit(),
        "cpu_model": cpu_model(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def named_version(info: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the version of a server, from its INFO."""
    name = str(info.get("server_name", "redis"))
    return name, str(info.get(f"{name}_version", info["redis_version"]))


def package_versions(*more: str) -> dict[str, str]:
    """Return the versions of the packages that the figures depend on."""
    found = {}
    for package in (*PACKAGES, *more):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def commit() -> str | None:
    """Return the commit of this code, with `-dirty` if there are changes; None outside a repository."""
    if not (CHECKOUT / ".git").exists():
        return None
    with suppress(OSError, subprocess.SubprocessError):
        return git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").decode().strip() or None
    return None


def git(*words: str, seconds: float = GIT_SECONDS) -> bytes:
    """Run git in this checkout and return its output. Raises OSError and SubprocessError."""
    command = ["git", *words]  # git is found on the path
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=True, timeout=seconds).stdout  # noqa: S603  # words of ours


def cpu_model() -> str:
    """Return the processor's name if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
