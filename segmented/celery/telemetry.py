"""Metrics and logs of a worker, as its settings say: one address for all processes of a prefork pool."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final

from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    task_postrun,
    task_prerun,
    worker_process_init,
    worker_process_shutdown,
)

from segmented import events
from segmented.celery.current import settings
from segmented.errors import InvalidInput
from segmented.events import traces
from segmented.events.logs import write_json
from segmented.watch.reports import ReportSink

if TYPE_CHECKING:
    import logging

    from segmented.celery.settings import WorkerSettings
    from segmented.events import Sink

SKU_SHOWN: Final = 60
SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus-client's own variable: the folder in which processes keep their numbers for the one that shows them."""


def begin(said: WorkerSettings, *, is_prefork: bool) -> None:
    """Install the sinks of the settings and serve their metrics. Call it before the first store is created.

    Raises InvalidInput for a package that is not installed, and for an address that cannot be listened on.
    """
    if not said.events or events.is_on():
        return
    if is_prefork and "prometheus" in said.events:
        _share()
    try:
        sinks = tuple(_sink(name, said) for name in said.events)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"SEGMENTED_EVENTS: {error}") from None
    events.install(*sinks)
    for sink in sinks:
        if isinstance(sink, ReportSink):
            _report_tasks(sink, is_prefork=is_prefork)
    if "opentelemetry" in said.events:
        traces.install()
    if said.metrics_address is not None:
        _serve(said.metrics_address)


def _sink(name: str, said: WorkerSettings) -> Sink:
    if name == "watch":
        return ReportSink(said.url.get_secret_value())
    return events.PrometheusSink() if name == "prometheus" else events.OpenTelemetrySink()


def _report_tasks(sink: ReportSink, *, is_prefork: bool) -> None:
    """Report what runs in the processes that take messages: those of the pool, or this one."""

    def begun(task_id: str, task: Any, args: Any, **_: object) -> None:  # noqa: ANN401  # Celery's signature
        name = task.name.removeprefix("segmented.")
        body = args[0] if args else None
        sku = body.get("sku") if isinstance(body, dict) else body
        sink.begin(task_id, f"{name} {sku[:SKU_SHOWN]}" if isinstance(sku, str) else name)

    task_prerun.connect(begun, weak=False)
    task_postrun.connect(lambda task_id, **_: sink.end(task_id), weak=False)
    if is_prefork:
        worker_process_init.connect(lambda **_: sink.work(), weak=False)
    else:
        sink.work()


def _share() -> None:
    """Let the processes of the pool keep their numbers in one folder, unless the user has named one."""
    if SHARED in os.environ:
        return
    if "prometheus_client" in sys.modules:
        message = f"the metrics of a prefork pool need the variable {SHARED}, set to an empty folder before the start"
        raise InvalidInput(message)
    os.environ[SHARED] = tempfile.mkdtemp(prefix="segmented-metrics-")


def _serve(address: str) -> None:
    from prometheus_client import REGISTRY, CollectorRegistry, start_http_server  # noqa: PLC0415  # an extra
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415  # as above

    host, _, port = address.rpartition(":")
    registry = REGISTRY
    if SHARED in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # its package has no types here
    try:
        start_http_server(int(port), addr=host.strip("[]"), registry=registry)
    except OSError as error:
        message = f"SEGMENTED_METRICS_ADDRESS: cannot listen on {address} ({error.strerror}): choose another port"
        raise InvalidInput(message) from None


@worker_process_shutdown.connect
def deliver_the_rest(**_: object) -> None:
    """Deliver what has happened: a child of a pool ends without its exit functions."""
    events.flush()


@after_setup_logger.connect
@after_setup_task_logger.connect
def write_logs(logger: logging.Logger, **_: Any) -> None:  # noqa: ANN401  # Celery's signature
    """Write logs as the settings say, after Celery has set up its own handlers."""
    if settings().log_format == "json":
        write_json(logger)
