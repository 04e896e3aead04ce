"""Events of real sales and locks, as metrics of prometheus-client and of OpenTelemetry."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry, Counter

from segmented import (
    AsyncLock,
    AsyncPool,
    AsyncRedisStore,
    Dedup,
    Lock,
    Outbox,
    Pool,
    RedisStore,
    events,
    protocol as op,
)
from segmented.errors import AcquireTimeout, InvalidInput, LeaseLost, PoolFrozen
from segmented.events.hub import METRICS, OTHER, VALUES_MAX, Bounded, prometheus_name
from segmented.keys import lock_keys, shard_keys
from segmented.models import Order, SoldOut
from segmented.plans import run_sync
from segmented.watch.reading import readings_plan
from segmented.watch.reports import ReportSink
from tests.support.paths import ROOT
from tests.support.reference import metrics_page
from tests.support.workers.selling import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.servers import ValkeyServer

SKU = "concert"
ANSWERS = "segmented_order_answers_total"


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    """A registry that events go to during the test."""
    registry = CollectorRegistry()
    events.install(events.PrometheusSink(registry))
    yield registry
    events.install()


def answers(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Return how many answers had each outcome and reason."""
    events.flush()
    samples = [one for family in registry.collect() for one in family.samples if one.name == ANSWERS]
    return {(one.labels["outcome"], one.labels["reason"]): one.value for one in samples}


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    events.flush()
    return registry.get_sample_value(name, labels)


def test_a_sale_is_counted_by_outcome_and_reason(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU, sold_out_mark=0)
        pool.open(stock=3, segments=1)
        pool.reserve("a", quantity=2)
        pool.reserve("a", quantity=2)
        pool.reserve("b", quantity=2)
        pool.confirm("a")
        with pool.grant(Order("c"), timeout=0):
            assert not pool.grant(Order("d"), timeout=0)
        pool.close()
        pool.reserve("e")
    assert answers(registry) == {
        ("reserved", ""): 1,
        ("repeated", ""): 1,
        ("refused", "sold_out"): 2,
        ("confirmed", ""): 2,
        ("granted", ""): 1,
        ("refused", "closed"): 1,
    }
    assert value(registry, "segmented_order_units_total", sku=SKU, outcome="confirmed") == 3
    assert (value(registry, "segmented_lock_held_seconds_total", kind="segment") or 0) > 0
    assert value(registry, "segmented_store_connections_total") == 1


def test_a_batch_is_counted_order_by_order(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=5, segments=1)
        pool.reserve_many([Order("a", 2), Order("b")])
        pool.reserve_many([Order("a", 2), Order("c", 2), Order("d")])
    assert answers(registry) == {("reserved", ""): 3, ("repeated", ""): 1, ("refused", "sold_out"): 1}
    assert value(registry, "segmented_order_units_total", sku=SKU, outcome="reserved") == 5


def test_refusals_by_the_local_mark_are_counted(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU, sold_out_mark=60.0)
        pool.open(stock=1, segments=1)
        pool.reserve("a")
        refusals = [pool.reserve(f"b{number}") for number in range(3)]
    assert [one.by_mark for one in refusals if isinstance(one, SoldOut)] == [False, True, True]
    assert answers(registry)["refused", "sold_out"] == 3


def test_an_asyncio_sale_and_its_locks_are_counted(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    async def sale() -> None:
        async with await AsyncRedisStore.from_url(valkey.url) as store:
            pool = AsyncPool(store, SKU)
            await pool.open(stock=5, segments=1)
            await asyncio.gather(*(pool.reserve(f"a{number}") for number in range(5)))
            lock = AsyncLock(store, "job")
            async with lock:
                waiting = asyncio.create_task(lock.acquire(timeout=20))
                while not store.wakeups.is_waited_for(lock_keys("job").freed):  # noqa: ASYNC110  # nobody tells it
                    await asyncio.sleep(0)
            await (await waiting).release()

    asyncio.run(sale())
    assert answers(registry) == {("reserved", ""): 5}
    assert value(registry, "segmented_lock_acquisitions_total", kind="lock") == 2
    assert value(registry, "segmented_lock_wait_duration_seconds_count", kind="lock", outcome="acquired") == 1


def test_a_wait_that_gives_up_has_its_timeout_as_duration(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        lock = Lock(store, "job")
        with lock, pytest.raises(AcquireTimeout):
            lock.acquire(timeout=0.05)
    assert value(registry, "segmented_lock_wait_duration_seconds_sum", kind="lock", outcome="gave_up") == 0.05


def test_submitted_orders_are_counted_from_queue_to_dead_letter(
    registry: CollectorRegistry, valkey: ValkeyServer
) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU, outbox=Outbox(decides="in the worker", publish_after=0.001))
        pool.open(stock=2, segments=1)
        pool.submit("a")
        taken = store.execute(op.TakeOrders(SKU, ("a",), "worker", 10_000, 10_000, 10_000, 1))
        assert taken.lease() is not None
        store.execute(op.PutOff(SKU, ("a",), "worker", 0, counts=True, begun_max=1, reason="no"))
        pool.submit("b")
        until(lambda: store.execute(op.ReadOutbox(SKU)).due == 1)
        store.execute(op.SweepOutbox(SKU, 10, None, 1_000, 1_000, 10_000, 5))
    assert answers(registry) == {("queued", ""): 2, ("begun", ""): 1}
    assert value(registry, "segmented_dead_letters_total", kind="order") == 1
    assert value(registry, "segmented_outbox_swept_total", sku=SKU, finding="republished") == 1
    assert value(registry, "segmented_lock_acquisitions_total", kind="segment") == 1


def test_repeats_of_a_call_are_told_apart_from_its_run(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        dedup = Dedup(store, "mails")
        for _ in range(3):
            dedup.call("o1", lambda: "sent")
    events.flush()
    samples = [one for family in registry.collect() for one in family.samples if "once_messages_total" in one.name]
    assert {one.labels["decision"]: one.value for one in samples} == {"begun": 1, "answered": 2}


def test_a_pool_that_lost_changes_is_counted_once(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        pool = Pool(store, SKU)
        pool.open(stock=2, segments=1)
        pool.reserve("a")
        store.client.hset(shard_keys(SKU).meta, "sequence", 0)
        for _ in range(2):
            with pytest.raises(PoolFrozen):
                pool.reserve("b")
    assert value(registry, "segmented_pool_freezes_total", sku=SKU) == 1
    assert answers(registry)["failed", "PoolFrozen"] == 2


def test_a_revoked_lease_is_a_loss(registry: CollectorRegistry, valkey: ValkeyServer) -> None:
    with RedisStore.from_url(valkey.url) as store:
        lease = Lock(store, "job", ttl=30).acquire()
        store.client.flushall()
        with pytest.raises(LeaseLost):
            lease.release()
    assert value(registry, "segmented_lease_losses_total", kind="lock") == 1


def test_a_sink_gets_nothing_from_a_store_that_was_created_before(valkey: ValkeyServer) -> None:
    registry = CollectorRegistry()
    with RedisStore.from_url(valkey.url) as store:
        events.install(events.PrometheusSink(registry))
        try:
            pool = Pool(store, SKU)
            pool.open(stock=1, segments=1)
            assert pool.reserve("a")
            assert answers(registry) == {}
        finally:
            events.install()


def test_a_registry_with_one_of_the_names_is_refused_and_unchanged() -> None:
    registry = CollectorRegistry()
    Counter("segmented_store_retries", "of the user", registry=registry)
    with pytest.raises(InvalidInput) as refused:
        events.PrometheusSink(registry)
    assert str(refused.value) == (
        "the registry has a metric 'segmented_store_retries_total' already: install one PrometheusSink in a process, "
        "or give it a registry of its own"
    )
    assert [family.name for family in registry.collect()] == ["segmented_store_retries"]


def test_a_sink_that_fails_is_logged_once_and_the_sale_goes_on(
    valkey: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
            raise RuntimeError(name, amount, labels)

        observe = count

    events.install(Broken())
    try:
        with RedisStore.from_url(valkey.url) as store:
            pool = Pool(store, SKU)
            pool.open(stock=2, segments=1)
            assert pool.reserve("a")
            events.flush()
            assert pool.reserve("b")
            events.flush()
    finally:
        events.install()
    assert [one.getMessage() for one in caplog.records] == ["Broken failed, and further failures of it are not logged"]


def test_opentelemetry_gets_the_answers_with_the_attributes_that_are_not_empty(valkey: ValkeyServer) -> None:
    reader = InMemoryMetricReader()
    events.install(events.OpenTelemetrySink(MeterProvider([reader])))
    try:
        with RedisStore.from_url(valkey.url) as store:
            pool = Pool(store, SKU)
            pool.open(stock=1, segments=1)
            pool.reserve("a")
            pool.reserve("b")
    finally:
        events.install()
    found = reader.get_metrics_data()
    assert found is not None
    metrics = {one.name: one for one in found.resource_metrics[0].scope_metrics[0].metrics}
    points = metrics["segmented.order.answers"].data.data_points
    assert metrics["segmented.order.answers"].unit == "{order}"
    assert [(dict(point.attributes or {}), getattr(point, "value", None)) for point in points] == [
        ({"segmented.sku": SKU, "segmented.outcome": "reserved"}, 1),
        ({"segmented.sku": SKU, "segmented.outcome": "refused", "segmented.reason": "sold_out"}, 1),
    ]


def test_an_endpoint_of_opentelemetry_that_hangs_delays_no_order(valkey: ValkeyServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        endpoint = f"http://127.0.0.1:{hanging.getsockname()[1]}/v1/metrics"
        exporter = OTLPMetricExporter(endpoint=endpoint, timeout=1)
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=10)])
        events.install(events.OpenTelemetrySink(provider))
        try:
            with RedisStore.from_url(valkey.url) as store:
                pool = Pool(store, SKU)
                pool.open(stock=100, segments=4)
                assert pool.reserve("first")
                events.flush()
                connection, _ = hanging.accept()  # the exporter waits for an answer from here on
                assert all(pool.reserve(f"o{number}") for number in range(99))
                assert not pool.reserve("more")
                connection.close()
        finally:
            events.install()
            provider.shutdown(timeout_millis=2_000)


def test_a_label_from_outside_has_a_bounded_number_of_values() -> None:
    skus = Bounded()
    assert len({skus[f"sku-{number}"] for number in range(10 * VALUES_MAX)}) == VALUES_MAX + 1
    assert skus["one more"] == OTHER


def test_the_reference_page_is_what_the_tables_say() -> None:
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8") == metrics_page(), (
        "`make docs` writes it"
    )


def test_every_metric_has_the_name_of_the_table(registry: CollectorRegistry) -> None:
    shown = {family.name + ("_total" if family.type == "counter" else "") for family in registry.collect()}
    assert shown == {prometheus_name(name) for name in METRICS}


HANGING: Final = """
import os
import threading

from segmented import events


class Sink:
    def __init__(self):
        self.entered, self.goes_on, self.second = threading.Event(), threading.Event(), threading.Event()
        self.calls = 0

    def count(self, name, amount, labels):
        self.calls += 1
        self.entered.set()
        (self.second.set if self.calls > 1 else self.goes_on.wait)()
        if self.calls > 2:
            threading.Event().wait()


sink = Sink()
events.install(sink)
events.count("segmented.store.retries")
sink.entered.wait()
child = os.fork()  # while the sink hangs
if not child:
    os._exit(0)
os.waitpid(child, 0)
sink.goes_on.set()
events.count("segmented.store.retries")
print(sink.second.wait(60), flush=True)
events.count("segmented.store.retries")
"""


def test_a_sink_that_hangs_outlives_a_fork_and_keeps_no_program_from_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], cwd=ROOT, capture_output=True, text=True, timeout=120)  # noqa: PLW1510  # compared below
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_failing_sink_that_cannot_be_hashed_stops_no_other(registry: CollectorRegistry) -> None:
    @dataclass
    class Broken:
        def count(self, name: str, amount: float, labels: tuple[str, ...]) -> None:
            raise RuntimeError(name, amount, labels)

        observe = count

    counted = CollectorRegistry()
    events.install(Broken(), events.PrometheusSink(counted))
    events.count("segmented.store.retries")
    assert value(counted, "segmented_store_retries_total") == 1
    assert value(registry, "segmented_store_retries_total") == 0


def test_a_process_reports_what_it_refuses_by_reason(valkey: ValkeyServer) -> None:
    sink = ReportSink(valkey.url)
    events.install(sink)
    try:
        with RedisStore.from_url(valkey.url) as store:
            pool = Pool(store, SKU)
            pool.open(stock=1, segments=1)
            assert [type(pool.reserve(f"order-{number}", quantity=2)) for number in range(3)] == [SoldOut] * 3
            events.flush()
            assert sink.report().refused == {SKU: {"sold_out": 3}}
            until(lambda: run_sync(readings_plan([SKU], {}), store).pools[0].refused == {"sold_out": 3})
    finally:
        events.install()
        sink.close()
    assert "segmented-reports" not in {thread.name for thread in threading.enumerate()}
    assert repr(sink).startswith("<ReportSink to ")
