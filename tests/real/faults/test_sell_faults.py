"""`segmented sell` when something is killed, lost or interrupted in the middle: every order is decided exactly once."""

import signal
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import redis
from pydantic import SecretStr

from segmented.celery.selling.sale import Fleet
from segmented.celery.selling.servers import Servers, queue_name
from segmented.celery.settings import WorkerSettings
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from tests.support.processes import alive
from tests.support.workers.sale_steps import FOLDER, LIMIT
from tests.support.workers.selling import (
    Sold,
    ended,
    first_orders,
    kill,
    processes_of,
    require_embedded,
    sell,
    selling,
    stock_server_of,
    until,
    workers_of,
)

STOCK: Final = 3_000
OPTIONS: Final = ("--stock", str(STOCK), "--segments", "20", "--republish-after", "2")
STEPS: Final = "tests.support.workers.sale_steps"
ORDERS: Final = 2_000
BEGUN: Final = 600
"""Orders of the file after which workers stand still until the test has interfered: two messages of 250 are finished
before, and it takes about twice as many orders to be sold out."""
MORE: Final = 400
"""Orders more, with which workers can finish what they have in hand."""
MIDDLE: Final = 200
"""Confirmed units after which something happens."""


@pytest.fixture
def client(valkey: ValkeyServer) -> redis.Redis:
    return redis.Redis.from_url(valkey.url)


class Pace:
    """How many orders of the file workers may begin. Each worker has one thread, so messages keep their order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {
            "SEGMENTED_STEP": f"{STEPS}:limited",
            "SEGMENTED_CONCURRENCY": "1",
            FOLDER: str(folder),
        }
        self.limit(BEGUN)

    def limit(self, orders: int) -> None:
        written = self._folder / "next"
        written.write_text(str(orders))
        written.replace(self._folder / LIMIT)

    def go_on(self) -> None:
        """Let workers begin all orders, also those that are delivered again."""
        self.limit(1_000_000)


@pytest.fixture
def pace(tmp_path: Path) -> Pace:
    return Pace(tmp_path)


def reached(client: redis.Redis, units: int) -> bool:
    """Return whether the sale has confirmed so many units."""
    return int(client.hget(shard_keys("default").meta, "confirmed") or 0) >= units


def check(sold: Sold, *, replayed: int | None = 0) -> None:
    """The sale is complete and every promise held."""
    assert sold.exit_code == 0, sold
    counts = sold.counts
    assert counts["orders"] == counts["confirmed_orders"] + counts["refused_orders"] == ORDERS
    assert (counts["confirmed_units"], counts["sql_units"]) == (STOCK, STOCK)
    assert (counts["oversold"], counts["refused_wrongly"], counts["audit"]) == (0, 0, "clean")
    assert len({line["order_id"] for line in sold.results}) == ORDERS
    if replayed is not None:
        assert counts["replayed_orders"] == replayed


@pytest.mark.long
def test_messages_that_the_broker_loses_are_published_again(
    tmp_path: Path, own_servers: tuple[str, ...], client: redis.Redis, pace: Pace
) -> None:
    queue = queue_name(own_servers[1], own_servers[3])
    broker = redis.Redis.from_url(own_servers[1].replace("db=0", "db=1"))
    with selling(
        tmp_path, first_orders(tmp_path, ORDERS), *OPTIONS, *own_servers, environment=pace.environment
    ) as process:
        until(lambda: reached(client, MIDDLE) and broker.exists(queue))
        lost = broker.delete(queue)
        pace.go_on()
        sold = ended(process, tmp_path)
    check(sold)
    assert lost == 1
    assert sold.counts["published_again"] > 0
    assert broker.exists(queue) == 0


def test_a_sale_that_is_interrupted_is_finished_by_a_second_run(
    tmp_path: Path,
    own_servers: tuple[str, ...],
    client: redis.Redis,
    pace: Pace,
) -> None:
    file = first_orders(tmp_path, ORDERS)
    with selling(tmp_path, file, *OPTIONS, *own_servers, environment=pace.environment) as process:
        until(lambda: reached(client, MIDDLE))
        started = processes_of(process.pid)
        process.send_signal(signal.SIGINT)
        pace.limit(BEGUN + MORE)
        stopped = ended(process, tmp_path)
    assert stopped.exit_code == 130
    assert stopped.errors.endswith("of 2,000 orders decided; the same command finishes the sale\n")
    assert (stopped.counts, stopped.results, alive(started)) == ({}, [], [])
    confirmed = client.hget(shard_keys("default").meta, "confirmed")
    pace.go_on()
    again = sell(tmp_path, file, *OPTIONS, *own_servers, environment=pace.environment)
    check(again, replayed=None)
    assert 0 < again.counts["replayed_orders"] < ORDERS
    assert 0 < int(confirmed or 0) < STOCK


def test_a_command_that_is_killed_leaves_no_process_and_a_second_run_finishes(
    tmp_path: Path, data_folder: Path, pace: Pace
) -> None:
    require_embedded()
    file = first_orders(tmp_path, ORDERS)
    options = (*OPTIONS, "--data", str(data_folder))
    with selling(tmp_path, file, *options, environment=pace.environment) as process:
        until(lambda: len(workers_of(process.pid)) == 2)
        started = processes_of(process.pid)
        words = [process.stderr.readline()] if process.stderr else []
        with redis.Redis(unix_socket_path=stock_server_of(process.pid)) as client:
            until(lambda: reached(client, MIDDLE))
        kill(process.pid)
        process.wait()
    assert words == [f"{file}: columns not used: ordered_on\n"]
    assert len(started) >= 7  # two workers and what they fork from, two servers and their guards
    until(lambda: not alive(started))
    pace.go_on()
    check(sell(tmp_path, file, *options, environment=pace.environment), replayed=None)


def test_a_sale_whose_workers_decide_nothing_ends_and_says_so(tmp_path: Path, own_servers: tuple[str, ...]) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\nb,1\n")
    options = ("--stock", "9", "--segments", "2", "--republish-after", "1", *own_servers)
    sold = sell(tmp_path, file, *options, environment={"SEGMENTED_STEP": f"{STEPS}:later"})
    assert (sold.exit_code, sold.counts["undecided_orders"], sold.counts["confirmed_orders"]) == (1, 2, 0)
    assert "the machine that packs is away" in sold.printed


def test_an_order_that_was_begun_too_often_is_not_waited_for(tmp_path: Path, own_servers: tuple[str, ...]) -> None:
    file = tmp_path / "orders.csv"
    file.write_text("order_id,quantity\na,1\nb,1\n")
    sold = sell(
        tmp_path,
        file,
        *("--stock", "9", "--segments", "2", "--republish-after", "600", *own_servers),
        environment={"SEGMENTED_STEP": f"{STEPS}:fail_of_a", "SEGMENTED_ATTEMPTS_MAX": "1"},
    )
    assert (sold.exit_code, sold.counts["undecided_orders"], sold.counts["confirmed_orders"]) == (1, 1, 1)
    assert [line["outcome"] for line in sold.results] == ["undecided", "confirmed"]
    assert "orders of 'default' in the dead-letter set: 1; 'segmented orders dead default' lists them" in sold.printed


def test_an_embedded_server_that_dies_is_noticed() -> None:
    require_embedded()
    with ValkeyServer.start() as valkey:
        running = Servers(WorkerSettings(url=SecretStr(valkey.url), broker_on_stock_server=True), (valkey,))
        running.look()
        pid = valkey.pid
        valkey.kill()
        with pytest.raises(SegmentedError, match=rf"^Valkey \(process {pid}\) has stopped by itself"):
            running.look()


def restarted(fleet: Fleet, times: int) -> bool:
    """Look after the workers; have they been started again so many times?"""
    fleet.look()
    return fleet.restarted == times


def test_a_worker_that_cannot_start_ends_the_sale_with_its_last_words() -> None:
    require_embedded()
    with ValkeyServer.start(config={"maxmemory-policy": "allkeys-lru"}) as valkey:
        settings = WorkerSettings(url=SecretStr(valkey.url), broker_on_stock_server=True)
        with Fleet(settings, 1) as fleet:
            fleet.start()
            with pytest.raises(SegmentedError, match=r"^worker 1 ended with code 2; its last output:\n") as failed:
                until(lambda: restarted(fleet, 1))
    assert "which may evict locks and stock" in str(failed.value)


def test_a_worker_that_only_dies_is_started_again_five_times(valkey: ValkeyServer) -> None:
    with Fleet(WorkerSettings(url=SecretStr(valkey.url), broker_on_stock_server=True), 1) as fleet:
        fleet.start()
        for times in range(1, 6):
            kill(fleet.pids[0])
            until(partial(restarted, fleet, times))
        kill(fleet.pids[0])
        with pytest.raises(SegmentedError, match=r"^worker 1 was killed by SIGKILL; its last output:"):
            until(lambda: restarted(fleet, 6))
