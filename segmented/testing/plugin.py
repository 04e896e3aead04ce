"""The pytest plugin `segmented`: private servers, audited pools, and workers that can be killed at any point.

Importing it imports no driver, no server and no Celery: each fixture does so when a test uses it. If the environment
lacks something, the test is skipped with one sentence.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from segmented.errors import InvalidInput
from segmented.imports import needs
from segmented.models.ids import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from segmented.orders import Gate
    from segmented.servers import PostgresServer, ValkeyServer
    from segmented.stock import Pool
    from segmented.stores.redis import RedisStore
    from segmented.testing.worker_process import WorkerProcess

NAMED_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Book:
    """A pool, with its order database if it has one."""

    pool: Pool
    gate: Gate | None

    def faults(self) -> list[str]:
        """Return the faults, one sentence each. Orders in progress are not faults."""
        report = self.pool.audit()
        found = [str(drift) for drift in report.drift[:NAMED_MAX]]
        if report.drift_count > NAMED_MAX:
            found.append(f"and {report.drift_count - NAMED_MAX} more")
        if report.oversold:
            found.append(f"{report.oversold} {plural(report.oversold, 'unit')} oversold")
        if report.refused_wrongly:
            orders = plural(report.refused_wrongly, "order")
            found.append(f"{report.refused_wrongly} {orders} refused although there were enough units")
        if self.gate is not None:
            sold = self.gate.totals(self.pool.sku).sold
            state = self.pool.state()
            if not state.confirmed <= sold <= state.confirmed + state.reserved:
                found.append(
                    f"the order database has {sold} {plural(sold, 'unit')} sold, the pool {state.confirmed} confirmed "
                    f"and {state.reserved} reserved"
                )
        return found


def unbalanced(books: list[Book]) -> str:
    """Return one text about all pools whose books do not balance, or nothing."""
    faults = {book.pool.sku: book.faults() for book in books}
    return "\n".join(
        f"the books of pool {sku!r} do not balance: {'; '.join(found)}" for sku, found in faults.items() if found
    )


CONNECTIONS_MAX: Final = 100
PREFIX: Final = "SEGMENTED_"
DEFAULT_APP: Final = "segmented.celery.app"

_books_key: Final = pytest.StashKey["list[Book]"]()
_workers_key: Final = pytest.StashKey["list[WorkerProcess]"]()
_numbers = itertools.count(1)


class PoolFactory(Protocol):
    """The type of `segmented_pool`."""

    def __call__(
        self,
        *,
        stock: int = ...,
        segments: int = ...,
        gate: Gate | None = ...,
        limit_per_customer: int | None = ...,
        audited: bool = ...,
    ) -> Pool:
        """Open a pool with a new sku; with a `gate`, also in its database."""
        ...


class WorkerFactory(Protocol):
    """The type of `segmented_worker`."""

    def __call__(
        self,
        app: str = ...,
        *,
        pool: str = ...,
        concurrency: int = ...,
        environment: Mapping[str, str] | None = ...,
        clock_offset: float = ...,
        options: Sequence[str] = ...,
        kill_at: str | None = ...,
        pause_at: str | None = ...,
    ) -> WorkerProcess:
        """Start a worker and wait until it takes messages."""
        ...


# --- servers ---


@pytest.fixture(scope="session")
def _segmented_valkeys() -> Iterator[Callable[[str], ValkeyServer]]:
    """Return the session's servers by name; a server that a test has stopped or killed is replaced."""
    servers = import_module("segmented.servers")
    running: dict[str, ValkeyServer] = {}

    def get(name: str) -> ValkeyServer:
        server = running.get(name)
        if server is not None and (not server.folder.exists() or server.wait(0)):
            running.pop(name).stop()
        if name not in running:
            try:
                running[name] = servers.ValkeyServer.start()
            except InvalidInput as error:
                pytest.skip(str(error))
        return running[name]

    yield get
    for server in running.values():
        server.stop()


def _emptied(server: ValkeyServer) -> ValkeyServer:
    redis = import_module("redis")
    os.kill(server.pid, signal.SIGCONT)  # a test may have left it paused
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
    return server


@pytest.fixture
def segmented_server(_segmented_valkeys: Callable[[str], ValkeyServer]) -> ValkeyServer:
    """Return the session's private Valkey for stock, locks and records, emptied before each test."""
    return _emptied(_segmented_valkeys("stock"))


@pytest.fixture
def segmented_broker(_segmented_valkeys: Callable[[str], ValkeyServer]) -> ValkeyServer:
    """Return another private Valkey of the session, for messages, emptied before each test."""
    return _emptied(_segmented_valkeys("broker"))


@pytest.fixture
def segmented_broker_url(segmented_broker: ValkeyServer) -> str:
    """Return the broker's address in Celery's form for a socket."""
    return segmented_broker.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")


@pytest.fixture(scope="session")
def _segmented_postgres() -> Iterator[PostgresServer]:
    _require("psycopg", "segmented_database")
    servers = import_module("segmented.servers")
    try:
        server: PostgresServer = servers.PostgresServer.start(max_connections=CONNECTIONS_MAX)
    except InvalidInput as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def segmented_database(_segmented_postgres: PostgresServer) -> Iterator[str]:
    """Yield the URL of an empty PostgreSQL database for this test, and remove it afterwards."""
    sqlalchemy = import_module("sqlalchemy")
    name = f"test_{next(_numbers)}"
    url = _segmented_postgres.url
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    yield sqlalchemy.make_url(url).set(database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def segmented_gate(segmented_database: str) -> Iterator[Gate]:
    """Yield the order database of this test, with its tables."""
    orders = import_module("segmented.orders")
    with orders.Gate(orders.connect(segmented_database)) as gate:
        gate.create()
        yield gate


@pytest.fixture
def segmented_store(segmented_server: ValkeyServer) -> Iterator[RedisStore]:
    """Yield a store on `segmented_server`, and close it after the test."""
    with import_module("segmented.stores.redis").RedisStore.from_url(segmented_server.url) as store:
        yield store


# --- pools ---


@pytest.fixture
def segmented_pool(request: pytest.FixtureRequest, segmented_store: RedisStore) -> PoolFactory:
    """Return a function that opens pools on `segmented_store`; the test fails if one does not balance at its end."""
    books: list[Book] = request.node.stash.setdefault(_books_key, [])

    def make(
        *,
        stock: int = 10,
        segments: int = 2,
        gate: Gate | None = None,
        limit_per_customer: int | None = None,
        audited: bool = True,
    ) -> Pool:
        stock_module, sku = import_module("segmented.stock"), f"sku-{next(_numbers)}"
        pool: Pool = stock_module.Pool(segmented_store, sku)
        if gate is None:
            pool.open(stock=stock, segments=segments, limit_per_customer=limit_per_customer)
        else:
            stock_module.Pool(segmented_store, sku, gate=gate).open(
                stock=stock, segments=segments, limit_per_customer=limit_per_customer
            )
        if audited:
            books.append(import_module("segmented.testing.plugin").Book(pool, gate))
        return pool

    return make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Audit the pools of a passed test as its last step: fixtures still exist, and a fault counts as its failure."""
    result = yield
    books = item.stash.get(_books_key, [])
    if books:
        found = import_module("segmented.testing.plugin").unbalanced(books)
        if found:
            pytest.fail(found, pytrace=False)
    return result


# --- workers ---


@pytest.fixture
def segmented_worker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    segmented_server: ValkeyServer,
    segmented_broker: ValkeyServer,
    segmented_broker_url: str,
) -> Iterator[WorkerFactory]:
    """Yield a function that starts real workers, each in its own session; all are ended after the test."""
    _require("celery", "segmented_worker")
    worker_process = import_module("segmented.testing.worker_process")
    started: list[WorkerProcess] = request.node.stash.setdefault(_workers_key, [])

    def start(
        app: str = DEFAULT_APP,
        *,
        pool: str = "threads",
        concurrency: int = 1,
        environment: Mapping[str, str] | None = None,
        clock_offset: float = 0.0,
        options: Sequence[str] = (),
        kill_at: str | None = None,
        pause_at: str | None = None,
    ) -> WorkerProcess:
        given = {
            f"{PREFIX}URL": segmented_server.url,
            f"{PREFIX}BROKER": segmented_broker.url,
            f"{PREFIX}POOL": pool,
            f"{PREFIX}CONCURRENCY": str(concurrency),
            "CELERY_BROKER_URL": segmented_broker_url,
        }
        if app == DEFAULT_APP or "segmented_database" in request.fixturenames:
            given[f"{PREFIX}DATABASE"] = request.getfixturevalue("segmented_database")
        launch = worker_process.Launch(
            app,
            tmp_path_factory.mktemp("segmented-worker"),
            pool=pool,
            concurrency=concurrency,
            environment={**_inherited(), **given, **(environment or {})},
            clock_offset=clock_offset,
            options=options,
        )
        worker: WorkerProcess = worker_process.WorkerProcess(launch, kill_at=kill_at, pause_at=pause_at)
        started.append(worker)
        worker.wait_ready()
        return worker

    yield start
    _closed(started)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End the workers of a test before its servers and databases."""
    trouble = _closed(item.stash.get(_workers_key, []))
    result = yield
    if trouble:
        raise trouble[0]
    return result


def _closed(started: list[WorkerProcess]) -> list[Exception]:
    """Close all workers even if one fails, and return the errors."""
    trouble: list[Exception] = []
    for worker in started:
        try:
            worker.close()
        except Exception as error:  # noqa: BLE001  # after any error, the other workers must end, too
            trouble.append(error)
    return trouble


def _inherited() -> dict[str, str]:
    """Return our environment without worker settings and with our import path, for imports of test modules."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _require(package: str, fixture: str) -> None:
    if find_spec(package) is None:
        pytest.skip(needs(fixture, package))
