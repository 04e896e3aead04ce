"""Celery apps that process submitted orders: the user's own app with these tasks added, or a ready-made one.

The ready-made one touches a file whose time says that its worker goes on, for a liveness probe.

Its settings are for tasks that are small, must not be lost, and may arrive twice. The order's record is the truth and a
message is a hint, so correctness needs none of these settings: they save work and find lost messages sooner. Celery
ignores unknown names, so a test checks each name. Older versions know fewer:

| Celery before | lacks | then |
| --- | --- | --- |
| 5.7 | `acks_on_timeout` | its older name decides about failures too, which our tasks catch |
| 5.6 | `worker_eta_task_limit` | all deferred tasks of a queue may wait in one worker |
| 5.5 | `worker_soft_shutdown_timeout` | SIGQUIT ends orders at once; they are delivered again |
| kombu 5.6 | `unacked_restore_*` | a lost message is found up to minutes later, by the sweep |
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from celery import Celery, Task, bootsteps
from celery.worker import state
from kombu import Exchange, Queue

from segmented.celery import settings as current
from segmented.celery.settings import WorkerSettings, check_apart, ending_a_command
from segmented.errors import InvalidInput

SOFT_SHUTDOWN_SECONDS: Final = 10.0
PROCESS_START_SECONDS: Final = 20.0
"""More than the time-outs of a first contact with the stock and with the database together."""
INTERRUPTING_POOLS: Final = frozenset({"prefork", "gevent"})
"""Pools that can end a task from outside; with the others an attempt only logs a warning."""
STRATEGY: Final = "segmented.celery.consumer:strategy"
"""The function that checks a message before Celery begins its task."""
ACKS_ON_TIMEOUT: Final = "acks_on_timeout" if hasattr(Task, "acks_on_timeout") else "acks_on_failure_or_timeout"
DELIVERY: Final[dict[str, Any]] = {
    # Acknowledged after the effect, so that a killed worker's order is delivered again. The default acknowledges
    # the orders in the hands of a child that died or was ended at its time limit.
    "acks_late": True,
    "reject_on_worker_lost": True,
    ACKS_ON_TIMEOUT: False,
    # The record in the pool is the result.
    "ignore_result": True,
    "store_errors_even_if_ignored": False,
}
"""How each of these tasks is delivered, whatever the app's own settings are."""
TASK_OPTIONS: Final[dict[str, Any]] = {**DELIVERY, "Strategy": STRATEGY}
"""Options of each of these tasks."""
AUDIT_SECONDS: Final = 10.0
"""Between two slices of an audit: each goes on where the last one ended, and looks only at pools that are due."""
CHORES: Final = (
    "segmented.sweep",
    "segmented.expire",
    "segmented.finish_transfers",
    "segmented.relay",
    "segmented.forget",
    "segmented.audit",
)
TASK_MODULES: Final = ("segmented.celery.tasks", "segmented.celery.chores")
LIFETIME: Final = "segmented.celery.lifetime"
EVERY: Final = 1.0
"""Seconds between two touches of the health file."""


def celery_settings(settings: WorkerSettings) -> dict[str, Any]:
    """Return the settings on which workers and publishers must agree."""
    return {
        **_queues(settings),
        **_deliveries(settings),
        **_pool(settings),
        **_broker(settings),
        # No results are stored, so beat has none to clean up.
        "result_expires": None,
        # Events and remote control cost a quarter of the throughput, and nothing here uses them.
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_enable_remote_control": False,
        "worker_hijack_root_logger": True,
        "worker_redirect_stdouts": False,
        # A message that cannot be read is kept, and ends no worker.
        "worker_consumer": "segmented.celery.consumer:KeepingConsumer",
        "task_serializer": "json",
        "accept_content": ["json"],
        # In memory, without a file in the current folder: the schedule is the same at each start.
        "beat_scheduler": "celery.beat:Scheduler",
    }


def _queues(settings: WorkerSettings) -> dict[str, Any]:
    arguments = {"x-queue-type": settings.queue_type} if settings.queue_type != "classic" else None
    return {
        "task_default_queue": settings.queue,
        # The periodic tasks have their own queue, so that a sale's backlog does not delay the search for lost messages.
        "task_queues": [
            Queue(name, Exchange(name, "direct"), routing_key=name, queue_arguments=arguments)
            for name in (settings.queue, settings.chores_queue)
        ],
        "task_routes": {chore: {"queue": settings.chores_queue} for chore in CHORES},
    }


def _deliveries(settings: WorkerSettings) -> dict[str, Any]:
    return {
        **{f"task_{option}": value for option, value in DELIVERY.items()},
        # No soft limit: its exception could come in the middle of any line, and the task would count as done.
        "task_time_limit": settings.task_time_limit,
        # Messages are fetched one at a time whatever this says, and after a kill a small number strands few.
        "worker_prefetch_multiplier": 2,
        # Deferred tasks wait in the worker's memory, unacknowledged: not too many of them.
        "worker_eta_task_limit": 1_000,
    }


def _pool(settings: WorkerSettings) -> dict[str, Any]:
    return {
        # Most of an order's time is a database commit, and little of it Python: threads, and one process per core.
        "worker_pool": settings.pool,
        "worker_concurrency": settings.concurrency,
        # A child opens its connections before it reports ready; the default of 4 s would kill one that waits.
        "worker_proc_alive_timeout": PROCESS_START_SECONDS,
        # SIGQUIT (or SIGTERM with REMAP_SIGTERM=SIGQUIT) lets current orders finish, but not forever.
        "worker_soft_shutdown_timeout": min(SOFT_SHUTDOWN_SECONDS, settings.task_time_limit),
        # Orders in progress when the broker connection breaks will be delivered to another worker.
        "worker_cancel_long_running_tasks_on_connection_loss": settings.pool in INTERRUPTING_POOLS,
    }


def _broker(settings: WorkerSettings) -> dict[str, Any]:
    return {
        "broker_url": settings.broker_url,
        "broker_transport_options": {
            # All users of the queue need the same value: the shortest one decides for all.
            "visibility_timeout": settings.visibility_timeout,
            # Seconds between checks, and their number: the defaults find a lost message minutes late.
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            # A stalled broker is detected; without these a worker would wait for it forever.
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        # A worker waits for a missing broker as long as it takes: it has nothing else to do.
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_limit": 10,
        # A publisher detects a missing broker within a second: the order is in the outbox by then.
        "task_publish_retry": True,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5},
    }


def schedule(settings: WorkerSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's `beat_schedule`; a task with 0 seconds is not in it.

    No message has an `expires`: a worker whose clock is ahead of beat's would drop every one of them, and nothing would
    find lost messages. Instead the tasks drop messages that piled up during a night without workers, by their number.
    """
    # The database that is used when none is named would get the ledgers of pools that are relayed to another one.
    has_database = "database" in settings.model_fields_set
    relay_every = settings.relay_every if has_database else 0.0
    forget_every = settings.forget_every if has_database and settings.forget_after is not None else 0.0
    seconds = (
        settings.sweep_every,
        settings.expire_every,
        settings.transfers_every,
        relay_every,
        forget_every,
        min(settings.audit_every, AUDIT_SECONDS),
    )
    return {task: {"task": task, "schedule": every} for task, every in zip(CHORES, seconds, strict=True) if every > 0}


def add_tasks(app: Celery, settings: WorkerSettings | None = None) -> None:
    """Add the tasks that finish submitted orders to an app, and the periodic tasks to its beat schedule.

    The app keeps its broker, queues, routes, serializer and worker settings: `task_routes` decides where messages go,
    and the default queue takes the rest. The tasks themselves set late acknowledgement and store no result. `settings`
    names the stock and the order database; without it the variables SEGMENTED_URL, SEGMENTED_DATABASE and the others
    are read when the app is configured.

    Raises InvalidInput if the environment has a wrong value or the app's broker is on the stock's server; the `celery`
    command ends with the sentence instead.
    """
    if not isinstance(app, Celery):
        raise InvalidInput(f"add_tasks takes a Celery app, not {type(app).__name__}")
    if settings is not None:
        current.use(settings)
    if getattr(app, "configured", False):  # celery-types lacks it
        _add(app.conf)
    app.on_after_configure.connect(_add, weak=False)  # again whenever a configuration is loaded


def make_app(name: str) -> Celery:
    """Return an app that only processes orders, with all its settings from the environment.

    Its workers open their connections before they take a message, exit with one sentence if they cannot, and keep
    messages that cannot be read.
    """
    settings = current.settings()
    app = Celery(name, include=[LIFETIME])
    with ending_a_command():
        app.conf.update(celery_settings(settings))
    add_tasks(app)
    app.steps["worker"].add(HealthFile)
    return app


def check_broker(source: Any) -> None:  # noqa: ANN401  # as below
    """Raise InvalidInput if the broker of an app's configuration is not separate from the stock."""
    for broker in filter(None, (source.broker_read_url, source.broker_write_url)):
        urls = broker if isinstance(broker, str) else ";".join(broker)
        check_apart(current.settings(), urls, "the broker of the Celery app")


def _add(source: Any, **_: object) -> None:  # noqa: ANN401  # Celery's settings, untyped
    """Complete the app's configuration; `source` is the configuration that was just loaded."""
    source.include = [*source.include, *(module for module in TASK_MODULES if module not in source.include)]
    source.beat_schedule = {**schedule(current.settings()), **source.beat_schedule}
    with ending_a_command():
        check_broker(source)


class HealthFile(bootsteps.StartStopStep):
    """The step of Celery's worker that touches the file of `SEGMENTED_HEALTH_PATH` every second.

    It stops doing so while a message has been in the worker's hands for longer than the visibility timeout: then its
    step hangs, or the process of the pool that has it does not run. If the main process itself stands still, nobody
    touches the file either.
    """

    requires = ("celery.worker.components:Timer",)

    _repeated: Any = None

    def start(self, parent: Any) -> None:  # noqa: ANN401  # Celery's worker, untyped
        """Touch the file from now on, if the settings name one."""
        said = current.settings()
        self._since: dict[str, float] = {}
        if said.health_path is not None:
            file, longest = Path(said.health_path), said.visibility_timeout
            self._look(file, longest)
            self._repeated = parent.timer.call_repeatedly(EVERY, self._look, (file, longest))

    def stop(self, _: Any) -> None:  # noqa: ANN401  # as above
        """Let the file age while the messages in hand are finished."""
        if self._repeated is not None:
            self._repeated.cancel()

    def _look(self, file: Path, longest: float) -> None:
        """Touch the file unless a message has been here too long. Messages with a time in the future do not count."""
        now = time.monotonic()
        self._since = {request.id: self._since.get(request.id, now) for request in tuple(state.reserved_requests)}
        if all(now - since <= longest for since in self._since.values()):
            file.touch()
