"""RabbitMQ as the broker: no order is lost or doubled while workers, and the broker itself, are killed."""

import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from segmented import Gate, Pool, RedisStore
from segmented.servers import ValkeyServer
from tests.support.contract.parking import wait_until
from tests.support.pools.both_sides import judged, sql_rows
from tests.support.processes import Logged
from tests.support.rings import require, require_module
from tests.support.servers.rabbitmq import BIN, RabbitServer
from tests.support.workers.worker_processes import Running, clean_environment, running

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SKU: Final = "mug"
ORDERS: Final = 600
STOCK: Final = 550
KILLS: Final = 6
"""Of workers; after half of them the broker is killed, too."""
SOON: Final = 120.0
SUBMITTER: Final = """
import os, sys
from segmented import Order, Outbox, Pool, RedisStore
from segmented.celery import publisher

with RedisStore.from_url(os.environ["SEGMENTED_URL"]) as store, publisher() as sender:
    pool = Pool(store, "mug", outbox=Outbox(sender))
    for page in range(0, int(sys.argv[1]), 10):
        pool.submit_many(Order(f"o-{number}") for number in range(page, page + 10))
        print(page, flush=True)
"""
STEP: Final = """
import time

def work(begun):
    time.sleep(0.005)
"""


@pytest.fixture
def rabbit(tmp_path: Path) -> Iterator[RabbitServer]:
    require("RabbitMQ", found=RabbitServer.is_installed(), missing=f"{BIN} has no rabbitmq-server")
    server = RabbitServer(tmp_path / "rabbit")
    try:
        server.start()
        yield server
    finally:
        server.end()


class Fleet:
    """Two workers and beat, of which each worker that is killed is replaced."""

    def __init__(self, folder: Path, settings: dict[str, str], stack: ExitStack) -> None:
        self._folder, self._settings, self._stack = folder, settings, stack
        self._started = 0
        self._workers = [self._start("worker", "--loglevel", "INFO") for _ in range(2)]
        self._start("beat", "--loglevel", "WARNING", "--pidfile=")

    def kill_one(self) -> None:
        self._workers[0].signal(signal.SIGKILL)
        self._workers = [self._workers[1], self._start("worker", "--loglevel", "INFO")]

    def _start(self, *words: str) -> Running:
        self._started += 1
        folder = self._folder / f"process-{self._started}"
        folder.mkdir()
        return self._stack.enter_context(running(folder, self._settings, *words))


def has_decided(database: str, least: int) -> bool:
    return len(sql_rows(database, "SELECT order_id FROM segmented_orders")) >= least


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_no_order_is_lost_or_doubled_while_workers_and_rabbitmq_are_killed(
    kind: str, rabbit: RabbitServer, valkey: ValkeyServer, postgres_database: str, tmp_path: Path
) -> None:
    require_module("Celery", "celery")
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "steps.py").write_text(STEP)
    settings = {
        "SEGMENTED_URL": valkey.url,
        "SEGMENTED_BROKER": rabbit.url,
        "SEGMENTED_DATABASE": postgres_database,
        "SEGMENTED_QUEUE_TYPE": kind,
        "SEGMENTED_STEP": "steps:work",
        "SEGMENTED_ENVELOPE_MAX": "10",
    }
    environment = clean_environment(tmp_path, settings)
    settings["PYTHONPATH"] = f"{environment['PYTHONPATH']}:{tmp_path / 'steps'}"
    with ExitStack() as stack:
        store = stack.enter_context(RedisStore.from_url(valkey.url))
        gate = stack.enter_context(Gate(postgres_database))
        gate.create()
        pool = Pool(store, SKU, gate=gate)
        pool.open(stock=STOCK, segments=4)
        fleet = Fleet(tmp_path, settings, stack)
        words = [sys.executable, "-c", SUBMITTER, str(ORDERS)]
        submitter = Logged(words, tmp_path / "submitter", cwd=tmp_path, environment=environment)
        stack.callback(submitter.kill)
        for number in range(KILLS):
            wait_until(partial(has_decided, postgres_database, number * STOCK // (KILLS + 1) + 1), seconds=SOON)
            if number == KILLS // 2:
                rabbit.kill()
                rabbit.start()
            fleet.kill_one()
        assert submitter.process.wait(SOON) == 0, submitter.said()
        with redis.Redis.from_url(valkey.url, decode_responses=True) as server:
            outbox = f"seg:{{{SKU}:0}}:outbox"
            wait_until(lambda: server.zcard(outbox) == 0, seconds=SOON)
            records: Any = server.hgetall(f"seg:{{{SKU}:0}}:orders")
        assert {name: record[0] for name, record in records.items()} == {f"o-{each}": "c" for each in range(STOCK)}
        assert judged(valkey.url, postgres_database) == (STOCK, STOCK, 0)
        assert pool.audit().is_clean
