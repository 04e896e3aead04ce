"""Trace context of orders and tasks, from the program that submits them to a real worker."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from pydantic import SecretStr

from segmented import Outbox, Pool, RedisStore
from segmented.celery import settings as current
from segmented.celery.messages import publisher
from segmented.celery.settings import WorkerSettings
from segmented.dedup.celery import Once, unique
from segmented.events import traces
from segmented.servers import ValkeyServer
from segmented.testing.plugin import WorkerFactory
from tests.support.workers.selling import until

APP = "tests.support.workers.traced_app"
SKU = "concert"


@dataclass(frozen=True)
class Shop:
    """A program that submits, and its spans."""

    app: Any
    tracer: Tracer
    exporter: InMemorySpanExporter

    def spans(self) -> list[str]:
        return [f"0x{span.context.span_id:016x}" for span in self.exporter.get_finished_spans() if span.context]


@pytest.fixture
def shop(segmented_server: ValkeyServer, segmented_broker: ValkeyServer) -> Iterator[Shop]:
    app = Celery("shop", broker=f"redis+socket://{segmented_broker.url.removeprefix('unix://')}", set_as_current=False)
    app.conf.task_default_queue = "segmented"
    app.conf.once_url = segmented_server.url
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces.install(provider)
    current.use(WorkerSettings(url=SecretStr(segmented_server.url), broker=SecretStr(segmented_broker.url)))
    yield Shop(app, provider.get_tracer("shop"), exporter)
    current.use(None)
    traces.uninstall()


def started(worker: WorkerFactory, folder: Path) -> Path:
    """Start a worker with traces; return the file of its spans."""
    spans = folder / "spans"
    spans.touch()
    worker(APP, environment={"SEGMENTED_EVENTS": "opentelemetry", "TRACED_SPANS": str(spans)})
    return spans


def written(spans: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in spans.read_text().splitlines()]


@pytest.mark.usefixtures("segmented_database")
def test_a_workers_span_has_one_submitters_span_as_parent_and_many_as_links(
    shop: Shop, segmented_store: RedisStore, segmented_worker: WorkerFactory, tmp_path: Path
) -> None:
    may_send, send = threading.Event(), shop.app.send_task

    def send_once_allowed(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  # Celery's
        may_send.wait()
        return send(*arguments, **options)

    shop.app.send_task = send_once_allowed
    publishes = publisher(shop.app)
    pool = Pool(segmented_store, SKU, outbox=Outbox(publishes, decides="in the worker", publish_after=60))
    pool.open(stock=10, segments=1)
    for name in ("first", "second", "third"):
        with shop.tracer.start_as_current_span(name):
            pool.submit(name)
        if name == "first":  # its envelope is on the way before the others come
            until(lambda: "0 waiting" in repr(publishes))
    may_send.set()
    publishes.close()
    spans = started(segmented_worker, tmp_path)
    until(lambda: len(written(spans)) == 2)
    first, second, third = shop.spans()
    alone, together = sorted(written(spans), key=lambda span: span["attributes"]["messaging.batch.message_count"])
    assert (alone["parent_id"], alone["links"]) == (first, [])
    assert {link["context"]["span_id"] for link in together["links"]} == {second, third}
    assert together["attributes"] == {
        "messaging.system": "celery",
        "messaging.operation.type": "process",
        "messaging.batch.message_count": 2,
        "segmented.sku": SKU,
    }


@pytest.mark.usefixtures("segmented_database")
def test_a_task_that_runs_once_continues_the_trace_of_its_first_call(
    shop: Shop, segmented_worker: WorkerFactory, tmp_path: Path
) -> None:
    def body(key: str) -> str:
        return key

    charge = shop.app.task(body, base=Once, once=unique("{key}", keep=60), name="charge")
    with shop.tracer.start_as_current_span("checkout"):
        charge.delay("o1")
    with shop.tracer.start_as_current_span("again"):
        repeat: Any = charge.delay("o1")
    assert repeat.is_repeat
    spans = started(segmented_worker, tmp_path)
    until(lambda: written(spans))
    [span] = written(spans)
    assert (span["name"], span["parent_id"]) == ("process charge", shop.spans()[0])
