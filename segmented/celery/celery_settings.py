"""Celery's settings for tasks that are small, must not be lost, and may arrive twice; and the beat schedule.

The order's record is the truth and a message is a hint, so correctness needs none of these settings: they save work and
find lost messages sooner. Celery ignores unknown names, so a test checks each name. Older versions know fewer:

| Celery before | lacks | then |
| --- | --- | --- |
| 5.7 | `acks_on_timeout` | its older name decides about failures too, which our tasks catch |
| 5.6 | `worker_eta_task_limit` | all deferred tasks of a queue may wait in one worker |
| 5.5 | `worker_soft_shutdown_timeout` | SIGQUIT ends orders at once; they are delivered again |
| kombu 5.6 | `unacked_restore_*` | a lost message is found up to minutes later, by the sweep |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from celery import Task
from kombu import Exchange, Queue

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

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
