"""The app as `celery -A segmented.celery.app` runs it: pools, from the first connection on, and what it refuses."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import redis
import sqlalchemy
from celery import Celery
from pydantic import SecretStr

from segmented import protocol as op
from segmented.celery.apps import celery_settings
from segmented.celery.settings import WorkerSettings
from segmented.orders import Gate, connect
from segmented.servers import PostgresServer, ValkeyServer
from segmented.stock import Pool
from segmented.stores.redis import RedisStore
from tests.support.paths import ROOT
from tests.support.processes import END_SECONDS
from tests.support.rings import require_module
from tests.support.servers.deployments import Cluster
from tests.support.servers.nodes import free_ports
from tests.support.workers.selling import until
from tests.support.workers.worker_processes import clean_environment, refused, running, working

ON_STOCK_SERVER: Final = (
    "SEGMENTED_BROKER is on the server of SEGMENTED_URL, where a full queue stops the sale: name another server, "
    "or set SEGMENTED_BROKER_ON_STOCK_SERVER=1"
)
SKU: Final = "mug-of-lifetimes"
"""Others may have a mug on the session's cluster."""
POOLS: Final = {
    "prefork": ((), {"SEGMENTED_POOL": "prefork", "SEGMENTED_CONCURRENCY": "2"}),
    "gevent": (("-P", "gevent"), {"SEGMENTED_POOL": "gevent"}),
}


def settings_of(url: str, database: str, broker: str | None = None) -> WorkerSettings:
    return WorkerSettings(
        url=SecretStr(url),
        database=SecretStr(database),
        broker=SecretStr(broker or broker_of(url)),
        broker_on_stock_server=broker is None,
    )


def said(url: str, database: str, broker: str | None = None) -> dict[str, str]:
    return settings_of(url, database, broker).environment()


@contextmanager
def sold(url: str, database: str, broker: str | None = None) -> Iterator[None]:
    """Open a pool of ten; send orders that workers of the block take; see that each has its effect once."""
    with Gate(connect(database)) as gate, RedisStore.from_url(url) as store:
        gate.create()
        pool = Pool(store, SKU)
        Pool(pool.store, pool.sku, gate=gate).open(stock=10, segments=1)
        with Celery("publisher", set_as_current=False) as publisher:
            publisher.conf.update(celery_settings(settings_of(url, database, broker)))
            with publisher.connection_for_write() as connection:
                for number in range(4):
                    publisher.send_task("segmented.take_order", (SKU, f"order-{number}", 2), connection=connection)
        yield

        def decided() -> int:
            return sum(entry.kind == "confirmed" for entry in store.execute(op.ReadLedger(SKU, 0, 100)))

        until(lambda: decided() == 4)
        assert gate.totals(SKU).sold == 8
        assert pool.audit().is_clean


def clients(url: str) -> list[str]:
    """Return the other connections to the server."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        own = client.client_id()
        return [f"{line['db']} {line['cmd']}" for line in client.client_list() if int(line["id"]) != own]


def database_connections(server: PostgresServer) -> int:
    engine = sqlalchemy.create_engine(server.url, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'segmented'"
        return int(connection.execute(sqlalchemy.text(count)).scalar_one())


@pytest.mark.parametrize("kind", ["prefork", pytest.param("gevent", marks=pytest.mark.long)])
def test_orders_are_taken_and_connections_are_closed(
    kind: str, tmp_path: Path, private_valkey: ValkeyServer, private_postgres: PostgresServer
) -> None:
    """Four orders for one segment, so that some wait for others, which brings in the store's own listener."""
    if kind == "gevent":
        require_module("gevent", "gevent")
    options, more = POOLS[kind]
    url, database = private_valkey.url, private_postgres.url
    with working(tmp_path, {**said(url, database), **more}, *options) as worker:
        with sold(url, database):
            pass
        until(lambda: clients(url) != [])
        if kind == "prefork":
            until(lambda: database_connections(private_postgres) == 2)  # a child each, and none of the parent
        assert database_connections(private_postgres) > 0
        worker.end()
        assert "Traceback" not in worker.said()
    until(lambda: clients(url) == [])
    until(lambda: database_connections(private_postgres) == 0)
    assert list((tmp_path / "home").iterdir()) == []


def is_healthy(file: Path) -> bool:
    """Run the probe of the example, for a shorter time."""
    probe = f"test -n \"$(find {file} -newermt '-3 seconds')\""
    return subprocess.run(["/bin/sh", "-c", probe], check=False, timeout=END_SECONDS).returncode == 0


def test_a_worker_whose_pool_process_stands_still_is_unhealthy_until_it_goes_on(
    tmp_path: Path, valkey: ValkeyServer, postgres_database: str
) -> None:
    with Gate(connect(postgres_database)) as gate:
        gate.create()
    file = tmp_path / "health"
    times = {"TASK_TIME_LIMIT": "1", "VISIBILITY_TIMEOUT": "2", "SEGMENT_TIMEOUT": "0.5"}
    settings = said(valkey.url, postgres_database) | {f"SEGMENTED_{name}": value for name, value in times.items()}
    settings |= {"SEGMENTED_POOL": "prefork", "SEGMENTED_CONCURRENCY": "1", "SEGMENTED_HEALTH_PATH": str(file)}
    with working(tmp_path, settings) as worker:
        until(lambda: is_healthy(file))
        main = worker.process.pid
        (child,) = map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())
        os.kill(child, signal.SIGSTOP)
        with sold(valkey.url, postgres_database):
            until(lambda: not is_healthy(file))
            os.kill(child, signal.SIGCONT)
        until(lambda: is_healthy(file))


def test_a_health_path_that_cannot_be_written_ends_the_worker_with_a_sentence(
    tmp_path: Path, valkey: ValkeyServer, postgres_database: str
) -> None:
    settings = said(valkey.url, postgres_database) | {"SEGMENTED_HEALTH_PATH": str(tmp_path / "none" / "health")}
    code, words = refused(tmp_path, settings, "worker")
    assert (code, "SEGMENTED_HEALTH_PATH" in words) == (2, True)


def test_a_worker_that_ends_by_an_error_ends_with_one(tmp_path: Path, valkey: ValkeyServer) -> None:
    made = settings_of(valkey.url, f"sqlite:///{tmp_path / 'orders.sqlite'}")
    app = ("-A", "tests.support.workers.ending_app", "worker", "--loglevel", "INFO")
    with running(tmp_path, made.environment(), *app) as worker, Celery(broker=made.broker_url) as publisher:
        until(worker.is_ready)
        publisher.send_task("end", queue="segmented")
        assert worker.process.wait(END_SECONDS) == 1
        assert "Unrecoverable error: RuntimeError('a bug of the consumer')" in worker.said()


def test_a_stock_on_a_cluster_has_a_broker_of_its_own(
    cluster: Cluster, tmp_path: Path, valkey: ValkeyServer, postgres_database: str
) -> None:
    url = cluster.url
    with (
        working(tmp_path, said(url, postgres_database, valkey.url)),
        sold(url, postgres_database, valkey.url),
    ):
        pass


def test_a_server_that_comes_later_is_waited_for(
    tmp_path: Path, valkey: ValkeyServer, start_valkey: Callable[..., ValkeyServer], postgres_database: str
) -> None:
    (port,) = free_ports(1)
    settings = said(f"redis://127.0.0.1:{port}/0", postgres_database, valkey.url)
    with running(tmp_path, settings, "worker", "--loglevel", "INFO") as worker:
        until(lambda: "waiting up to 60 s for a server: no server answers at redis://127.0.0.1" in worker.said())
        start_valkey(config={"port": str(port), "bind": "127.0.0.1"})
        until(worker.is_ready)
        worker.end()


@pytest.mark.parametrize(
    ("command", "settings", "sentence"),
    [
        (
            "worker",
            {"SEGMENTED_DATABSE": "x"},
            "SEGMENTED_DATABSE is not a worker setting: did you mean SEGMENTED_DATABASE?",
        ),
        (
            "beat",
            {"SEGMENTED_URL": "redis://:secret@stock/0", "SEGMENTED_BROKER": "redis://:secret@stock/1"},
            ON_STOCK_SERVER,
        ),
    ],
)
def test_wrong_settings_are_one_sentence_and_exit_code_two(
    command: str, settings: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    assert refused(tmp_path, settings, command) == (2, f"segmented: {sentence}\n")


def test_a_wrong_password_ends_the_worker_with_two(
    tmp_path: Path, start_valkey: Callable[..., ValkeyServer], postgres_database: str
) -> None:
    server = start_valkey(config={"requirepass": "right"})
    url = server.url.replace("unix://", "unix://:wrong@")
    code, words = refused(tmp_path, said(url, postgres_database), "worker")
    assert code == 2
    assert (
        words
        == f"segmented: {server.url.replace('unix://', 'unix://:***@')} refused the password or account of the URL\n"
    )


def test_a_fork_gets_connections_of_its_own(tmp_path: Path, valkey: ValkeyServer, postgres_database: str) -> None:
    """What the parent had open works on, and the child's say is its own, whatever was open at the fork."""
    script = """
import os
from segmented import protocol as op
from sqlalchemy import text
from segmented.celery.connections import connections, disconnect

def backend(made):
    with made.engine.connect() as connection:
        return connection.execute(text("SELECT pg_backend_pid()")).scalar_one()

parent = connections()
parent.pool("mug").open(stock=1, segments=1)
before = backend(parent)
parent.store.execute(op.ReadPool("mug"))
child = os.fork()
if child == 0:
    mine = connections()
    mine.store.execute(op.ReadPool("mug"))
    is_apart = mine is not parent and backend(mine) != before
    disconnect()
    os._exit(0 if is_apart else 1)
_, status = os.waitpid(child, 0)
assert connections() is parent
parent.store.execute(op.ReadPool("mug"))
print(status, backend(parent) == before)
disconnect()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=ROOT,
        env=clean_environment(tmp_path, said(valkey.url, postgres_database)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 True\n", "")


def broker_of(url: str) -> str:
    return url.replace("db=0", "db=1")
