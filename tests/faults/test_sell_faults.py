"""`segmented sell` when something is killed, lost or interrupted in the middle: every order is decided exactly once."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import redis
from pydantic import SecretStr

from segmented.celery.selling.fleet import Fleet
from segmented.celery.selling.servers import Servers, queue_name
from segmented.celery.settings import WorkerSettings
from segmented.errors import SegmentedError
from segmented.keys import shard_keys
from segmented.servers import ValkeyServer
from tests.support.long_run import in_the_long_run
from tests.support.processes import alive
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

if TYPE_CHECKING:
    from pathlib import Path


OPTIONS: Final = ("--stock", "3000", "--segments", "20", "--republish-after", "2")
SHORT_LEASES: Final = {"SEGMENTED_SEGMENT_TTL": "2"}
"""Seconds after which what a killed worker had in hand is finished by another; ten by default."""
ORDERS: Final = 2_000
MIDDLE: Final = 300
"""Ledger entries after which something happens: about 150 orders are decided then."""


@pytest.fixture
def client(valkey: ValkeyServer) -> redis.Redis:
    return redis.Redis.from_url(valkey.url)


def reached(client: redis.Redis, sequence: int) -> bool:
    """Has the sale written so many ledger entries?"""
    return int(client.hget(shard_keys("default").meta, "sequence") or 0) >= sequence


def check(sold: Sold, *, replayed: int | None = 0) -> None:
    """The sale is complete and every promise held."""
    assert sold.exit_code == 0, sold
    counts = sold.counts
    assert counts["orders"] == counts["confirmed_orders"] + counts["refused_orders"] == ORDERS
    assert (counts["confirmed_units"], counts["sql_units"]) == (3_000, 3_000)
    assert (counts["oversold"], counts["refused_wrongly"], counts["audit"]) == (0, 0, "clean")
    assert len({line["order_id"] for line in sold.results}) == ORDERS
    if replayed is not None:
        assert counts["replayed_orders"] == replayed


def test_workers_that_are_killed_in_mid_sale_lose_nothing(
    tmp_path: Path, own_servers: tuple[str, ...], client: redis.Redis
) -> None:
    with selling(tmp_path, first_orders(tmp_path, ORDERS), *OPTIONS, *own_servers, environment=SHORT_LEASES) as process:
        for killed in range(1, 4):
            until(partial(reached, client, killed * MIDDLE))
            kill(workers_of(process.pid)[0].pid)
        sold = ended(process, tmp_path)
    check(sold)
    assert sold.counts["workers_restarted"] == 3


def test_messages_that_the_broker_loses_are_published_again(
    tmp_path: Path, own_servers: tuple[str, ...], client: redis.Redis
) -> None:
    queue = queue_name(own_servers[1], own_servers[3])
    broker = redis.Redis.from_url(own_servers[1].replace("db=0", "db=1"))
    with selling(tmp_path, first_orders(tmp_path, ORDERS), *OPTIONS, *own_servers, environment=SHORT_LEASES) as process:
        until(lambda: reached(client, MIDDLE))
        lost = broker.delete(queue)
        sold = ended(process, tmp_path)
    check(sold)
    assert lost == 1
    assert sold.counts["published_again"] > 0
    assert broker.exists(queue) == 0


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), *in_the_long_run((signal.SIGTERM, 143))])
def test_a_sale_that_is_interrupted_is_finished_by_a_second_run(
    tmp_path: Path, own_servers: tuple[str, ...], client: redis.Redis, number: signal.Signals, exit_code: int
) -> None:
    file = first_orders(tmp_path, ORDERS)
    with selling(tmp_path, file, *OPTIONS, *own_servers, environment=SHORT_LEASES) as process:
        until(lambda: reached(client, MIDDLE))
        started = processes_of(process.pid)
        process.send_signal(number)
        stopped = ended(process, tmp_path)
    assert stopped.exit_code == exit_code
    assert stopped.errors.endswith("of 2,000 orders decided; the same command finishes the sale\n")
    assert (stopped.counts, stopped.results, alive(started)) == ({}, [], [])
    confirmed = client.hget(shard_keys("default").meta, "confirmed")
    again = sell(tmp_path, file, *OPTIONS, *own_servers, environment=SHORT_LEASES)
    check(again, replayed=None)
    assert 0 < again.counts["replayed_orders"] < ORDERS
    assert 0 < int(confirmed or 0) < 3_000


def test_a_sale_on_a_redis_of_ones_own_says_before_and_after_that_half_of_it_is_temporary(
    tmp_path: Path, own_servers: tuple[str, ...], client: redis.Redis
) -> None:
    url = own_servers[: own_servers.index("--url") + 2][-2:]
    with selling(tmp_path, first_orders(tmp_path, ORDERS), *OPTIONS, *url, environment=SHORT_LEASES) as process:
        assert process.stderr is not None
        _, words = process.stderr.readline(), process.stderr.readline()
        until(lambda: reached(client, MIDDLE))
        process.send_signal(signal.SIGINT)
        stopped = ended(process, tmp_path)
    assert words.startswith("--database is not given, so that half of the sale is temporary: ")
    assert stopped.exit_code == 130
    assert stopped.errors.endswith("was temporary, so a second run on this --url will be refused\n")
    assert int(client.hget(shard_keys("default").meta, "confirmed") or 0) > 0


def test_a_command_that_is_killed_leaves_no_process_and_a_second_run_finishes(
    tmp_path: Path, data_folder: Path
) -> None:
    require_embedded()
    file = first_orders(tmp_path, ORDERS)
    options = (*OPTIONS, "--data", str(data_folder))
    with selling(tmp_path, file, *options, environment=SHORT_LEASES) as process:
        until(lambda: len(workers_of(process.pid)) == 2)
        started = processes_of(process.pid)
        words = [process.stderr.readline()] if process.stderr else []
        with redis.Redis(unix_socket_path=stock_server_of(process.pid)) as client:
            until(lambda: reached(client, MIDDLE))
        kill(process.pid)
        process.wait()
    assert words == [f"{file}: columns not used: ordered_on\n"]
    assert len(started) >= 6  # two workers, two servers and their guards
    until(lambda: not alive(started))
    check(sell(tmp_path, file, *options, environment=SHORT_LEASES), replayed=None)


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


def test_a_worker_that_only_dies_is_started_again_five_times() -> None:
    with Fleet(WorkerSettings(url=SecretStr("redis://127.0.0.1:1/0"), broker_on_stock_server=True), 1) as fleet:
        fleet.start()
        for times in range(1, 6):
            kill(fleet.pids[0])
            until(partial(restarted, fleet, times))
        kill(fleet.pids[0])
        with pytest.raises(SegmentedError, match=r"^worker 1 was killed by SIGKILL; its last output:"):
            until(lambda: restarted(fleet, 6))
