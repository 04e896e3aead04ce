"""The servers that a benchmark runs on, and the conditions of a measurement: versions, machine, commit.

The servers are private embedded ones, or those that the caller names.

Cores used between two readings: by the generator (this process), Redis, PostgreSQL and the whole machine. The main
process of the PostgreSQL server of an engine is found if it runs on this machine.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from sqlalchemy import text

from segmented.errors import InvalidInput
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import redis
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
        with RedisStore.from_url(url) as store:
            info = store.client.info()
        versions, settings = _ask_database(database, connections)
        aof, threads = "on" if info.get("aof_enabled") else "off", str(info.get("io_threads_active", 0))
        whole = {"aof": aof, "io_threads": threads} | settings
        yield Servers(url, database, dict([named_version(info)]) | versions, whole)


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


# --- CPU time ---

NANOSECONDS: Final = 1_000_000_000
LOCAL_HOSTS: Final = {"", "localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU seconds used so far, at a local time."""

    at: float
    generator: float
    redis: float
    database: float | None
    machine: float
    steal: float
    """Time that the hypervisor gave to others."""

    @property
    def others(self) -> float:
        """Cores used by the system and other programs. A server on another machine makes it too small."""
        return max(0.0, self.machine - self.generator - self.redis - (self.database or 0.0))

    def since(self, before: CpuReading) -> CpuReading:
        """Return the cores used between two readings; `at` becomes the seconds between them."""
        seconds = self.at - before.at
        used: dict[str, Any] = {
            name: None if was is None or now is None else (now - was) / seconds
            for name, now in asdict(self).items()
            for was in (getattr(before, name),)
        }
        return CpuReading(**used | {"at": seconds})


UNUSED: Final = ("idle", "iowait", "steal", "guest", "guest_nice")
"""The system's times that this machine did not use; guests' times are in `user` and `nice` already."""


class CpuMeter:
    """Reads CPU times. Redis reports its own, even remotely; PostgreSQL is measured only on this machine."""

    def __init__(self, client: redis.Redis, engine: Engine | None) -> None:
        """Find the processes of the database."""
        self._client = client
        self._postmaster = None if engine is None else find_postgresql_process(engine)

    def read(self) -> CpuReading:
        """Read all of them now."""
        server = self._client.info("cpu")
        return CpuReading(
            at=time.monotonic(),
            generator=time.process_time(),
            redis=float(server["used_cpu_user"]) + float(server["used_cpu_sys"]),
            database=None if self._postmaster is None else _tree_seconds(self._postmaster),
            machine=busy_seconds(),
            steal=float(getattr(psutil.cpu_times(), "steal", 0.0)),
        )


def _tree_seconds(root: psutil.Process) -> float:
    """Sum the live processes, and the times that the root inherited from ended ones."""
    times = root.cpu_times()
    seconds = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0) + own_seconds(root)
    for child in root.children(recursive=True):
        with suppress(psutil.Error):  # it ended in between: the root has its time
            seconds += own_seconds(child)
    return float(seconds)


def own_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a single-threaded process.

    Linux also reports nanoseconds. The usual figure is in hundredths of a second, which a backend uses only after many
    orders: for 200 backends in a short sale it would be 0.
    """
    try:
        nanoseconds = int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        nanoseconds = 0
    if nanoseconds:
        return nanoseconds / NANOSECONDS
    times = process.cpu_times()
    return float(times.user + times.system)


def busy_seconds() -> float:
    """Return the CPU seconds of everything on this machine, without those that its hypervisor gave to others."""
    times = psutil.cpu_times()
    return float(sum(times) - sum(getattr(times, name, 0.0) for name in UNUSED))


class OtherLoad:
    """Cores that other programs used: neither this process, nor its children, which the embedded servers are."""

    def __init__(self) -> None:
        """Start counting."""
        self._at, self._used = time.monotonic(), busy_seconds() - _family_seconds()

    def cores(self) -> float:
        """Return the mean number of cores used so far."""
        used = busy_seconds() - _family_seconds() - self._used
        return max(0.0, used / (time.monotonic() - self._at))


def _family_seconds() -> float:
    """Return the CPU seconds of this process and its children, ended ones included."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):  # it ended in between: its parent has its time
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def machine_core_count() -> int:
    """Count all cores of the machine, whatever this process is pinned to: `busy_seconds` covers all of them."""
    return os.cpu_count() or 1


def core_count() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
