"""A worker of the ready-made app opens its connections first, keeps unreadable messages, and can end with its starter.

It shows its metrics and writes its logs as the settings say: one address for all processes of a prefork pool. Start-up
errors exit here: Celery lets SystemExit pass, but only logs other exceptions of its signals.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from celery.concurrency import get_implementation
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    task_postrun,
    task_prerun,
    task_rejected,
    task_unknown,
    worker_init,
    worker_process_init,
    worker_process_shutdown,
)

from segmented import events
from segmented.celery.connections import connections, disconnect, open_when_there
from segmented.celery.messages import keep_rejected, keep_unknown
from segmented.celery.settings import EXIT_UNREACHABLE, EXIT_WRONG, end, settings
from segmented.celery.tasks import on_outcome, step, store_with
from segmented.errors import InvalidInput, SegmentedError
from segmented.events import traces
from segmented.events.logs import write_json
from segmented.files import check_writable
from segmented.watch.reports import ReportSink

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings
    from segmented.events import Sink

GRACE_SECONDS: Final = 5.0
"""Seconds to finish the current order once the starter is gone."""
EXIT_ABANDONED: Final = 1
SKU_SHOWN: Final = 60
SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus-client's own variable: the folder in which processes keep their numbers for the one that shows them."""

log = logging.getLogger(__name__)

task_unknown.connect(keep_unknown)
task_rejected.connect(keep_rejected)


class _Worker(Protocol):
    """Options of Celery's worker, which it announces before it creates its pool."""

    pool_cls: Any
    concurrency: int | str


@worker_init.connect
def begin(sender: _Worker, **_: object) -> None:
    """Open the connections before the first message is requested, so that a wrong address fails at the start."""
    if settings().ends_with_stdin:
        threading.Thread(target=_end_with_stdin, name="segmented-starter", daemon=True).start()
    kind = get_implementation(sender.pool_cls).__module__
    if kind == "celery.concurrency.gevent":
        _require_patches()
    try:
        if settings().health_path is not None:
            check_writable(Path(settings().health_path or ""), "SEGMENTED_HEALTH_PATH")
        observe(settings(), is_prefork=kind == "celery.concurrency.prefork")
        step()
        on_outcome()
        store_with()
        at_once = sender.concurrency  # `auto` means the number of processors
        open_when_there(pool_size=at_once if isinstance(at_once, int) else os.cpu_count() or settings().concurrency)
    except InvalidInput as error:
        end(error, EXIT_WRONG)
    except SegmentedError as error:
        end(error, EXIT_UNREACHABLE)
    if kind == "celery.concurrency.prefork":
        disconnect()  # it was only a test: no child may inherit the connections


@worker_process_init.connect
def begin_child(**_: object) -> None:
    """Open the connections of a pool's child. If that fails now, the first order tries again."""
    try:
        connections()
    except SegmentedError as error:
        log.warning("this process has no connections yet: %s", error)


def _require_patches() -> None:
    from gevent import monkey  # noqa: PLC0415  # its pool was requested, so it is installed

    if not monkey.is_module_patched("socket"):
        message = (
            "SEGMENTED_POOL is gevent: say `-P gevent` on the command line, too, or Celery prepares nothing for it"
        )
        end(InvalidInput(message), EXIT_WRONG)


def _end_with_stdin() -> None:
    """Wait until the pipe closes, also by a SIGKILL of the starter; then end, within a time limit."""
    stdin = sys.stdin.fileno()
    select.select([stdin], [], [])  # under gevent, a read alone would block all greenlets
    while os.read(stdin, 4_096):
        select.select([stdin], [], [])
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_SECONDS)
    os._exit(EXIT_ABANDONED)


def observe(said: WorkerSettings, *, is_prefork: bool) -> None:
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
