"""The servers of a session: a fresh Valkey per run, on its own core if there are two, and one PostgreSQL for all."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import text

from bench.engine.environment import public, redis_of
from bench.proxy import delayed
from segmented.errors import InvalidInput, SegmentedError
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stores.redis import RedisStore
from segmented.stores.redis.addresses import Deployment, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.engine.cell import Cell
    from bench.engine.grid import PlannedCell

SPARE_CONNECTIONS: Final = 8
ANSWER_SECONDS: Final = 2.0
CORES_TO_PIN: Final = 2


@dataclass(frozen=True, slots=True)
class RunServers:
    """The servers of one run."""

    url: str
    """URL through the proxy, if the cell has one."""
    meter_url: str
    database: str | None

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
        with self._redis() as url, self._delayed(url, cell) as seen:
            yield RunServers(seen, url, self._database if planned.needs_database else None)

    @contextmanager
    def _redis(self) -> Iterator[str]:
        if self._url is not None:
            yield self._url
            return
        with ValkeyServer.start() as server:
            self._pin(server.pid)
            yield server.url

    @contextmanager
    def _delayed(self, url: str, cell: Cell) -> Iterator[str]:
        if not (cell.rtt_ms or cell.proxied):
            yield url
            return
        with delayed(url, cell.rtt_ms, cores=self.cores[-1:] if self.is_pinned else ()) as seen:
            yield seen

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
        message = f"--url {address.shown}: only a single server can be used"
        raise InvalidInput(message)


def _ask_database(url: str) -> dict[str, Any]:
    engine = connect(url, pool_size=1)
    try:
        if engine.dialect.name != "postgresql":  # before anything is created in it
            message = f"--database: the bench commits to PostgreSQL, and this is {engine.dialect.name}"
            raise InvalidInput(message)
        Gate(engine).create()
        with engine.connect() as connection:
            config = {str(name): str(value) for name, value, _ in connection.execute(text("SHOW ALL"))}
    finally:
        engine.dispose()
    kept = {name: public(name, value) for name, value in sorted(config.items())}
    return {"name": "postgresql", "version": config["server_version"], "config": kept}
