"""Metrics and logs of real workers: all children of a prefork pool behind one address, and lines of JSON."""

import json
import socket
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from segmented.plans import run_sync
from segmented.protocol import ProcessReport
from segmented.testing.worker_process import WorkerTrouble
from segmented.watch.reading import readings_plan
from tests.fixtures.order_floors import OrderSystemFactory
from tests.support.servers.nodes import free_ports
from tests.support.workers.order_floor import STEP_IN_WORKER, WITH_STEP
from tests.support.workers.selling import until


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Return the samples that a worker shows, by name and sorted values of labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {(one.name, *sorted(one.labels.values())): one.value for one in samples}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_all_processes_of_a_worker_count_behind_one_address(open_system: OrderSystemFactory, pool: str) -> None:
    (port,) = free_ports(1)
    address = {"SEGMENTED_EVENTS": "prometheus", "SEGMENTED_METRICS_ADDRESS": f"127.0.0.1:{port}"}
    system = open_system(WITH_STEP, environment=address)
    system.worker(pool=pool, concurrency=2)
    system.submit([(f"o{number}", 1) for number in range(20)])
    system.until_decided()
    confirmed = ("segmented_order_answers_total", "", "confirmed", system.pool.sku)
    until(lambda: scraped(port).get(confirmed) == 20, seconds=20)
    assert scraped(port)["segmented_order_units_total", "confirmed", system.pool.sku] == 20


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_reports_its_messages_to_those_who_watch(open_system: OrderSystemFactory, pool: str) -> None:
    system = open_system(WITH_STEP, environment={"SEGMENTED_EVENTS": "watch"})
    system.worker(pool=pool, concurrency=2)
    system.submit([(f"o{number}", 1) for number in range(20)])
    system.until_decided()
    store = system.pool.store

    def workers() -> tuple[ProcessReport, ...]:
        return run_sync(readings_plan([system.pool.sku], {}), store).workers

    until(lambda: len(workers()) == (2 if pool == "prefork" else 1), seconds=20)
    until(lambda: sum(one.taken for one in workers()) > 0 and not any(one.doing for one in workers()), seconds=20)
    assert {one.taken_ago_ms is None for one in workers() if one.taken} == {False}


def test_an_address_in_use_ends_the_worker_with_one_sentence(open_system: OrderSystemFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        environment = {"SEGMENTED_EVENTS": "prometheus", "SEGMENTED_METRICS_ADDRESS": address}
        system = open_system(WITH_STEP, environment=environment)
        with pytest.raises(WorkerTrouble) as trouble:
            system.worker()
    assert f"SEGMENTED_METRICS_ADDRESS: cannot listen on {address} (Address already in use)" in str(trouble.value)


def test_a_workers_log_is_json_with_the_fields_of_each_event(open_system: OrderSystemFactory) -> None:
    system = open_system(STEP_IN_WORKER, environment={"SEGMENTED_LOG_FORMAT": "json"})
    worker = system.worker()
    system.submit([("o1", 1)])
    system.until_decided()
    until(lambda: "succeeded" in worker.log())
    lines = [json.loads(line) for line in worker.log().splitlines() if line.startswith("{")]
    assert {"at", "level", "logger", "message"} <= set.intersection(*map(set, lines))
