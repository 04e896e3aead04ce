"""Celery's settings for tasks that are small, must not be lost, and may arrive twice; and what beat sends, how often.

The order's record is the truth and a message is a hint, so nothing here is needed for correctness; it saves work and
finds lost messages sooner. Celery ignores a name that it does not know, so a test asks it about each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kombu import Exchange, Queue

if TYPE_CHECKING:
    from segmented.celery.settings import WorkerSettings

SOFT_SHUTDOWN_SECONDS: Final = 10.0
PROCESS_START_SECONDS: Final = 20.0
"""More than the time-outs of a first contact with the stock and with the database together."""
INTERRUPTING_POOLS: Final = frozenset({"prefork", "gevent"})
"""Those that can end a task from outside; for the others an attempt is a warning in the log and nothing else."""
DELIVERY: Final[dict[str, Any]] = {
    # Acknowledged after the effect, so that a killed worker's order is delivered again; the default acknowledges
    # what was in the hands of a child that died, or that was ended at its time limit.
    "acks_late": True,
    "reject_on_worker_lost": True,
    "acks_on_timeout": False,
    # The record in the pool is the result.
    "ignore_result": True,
    "store_errors_even_if_ignored": False,
}
"""Options of each of our tasks, whatever the app's own settings are."""
CHORES: Final = ("segmented.sweep", "segmented.expire", "segmented.relay", "segmented.audit")


def celery_settings(settings: WorkerSettings) -> dict[str, Any]:
    """Return what workers and publishers must agree on."""
    return {
        **_queues(settings),
        **_deliveries(settings),
        **_pool(settings),
        **_broker(settings),
        # No results are stored, so beat has none to clean up.
        "result_expires": None,
        # Events and remote control cost a quarter of the throughput, and nothing here listens.
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_enable_remote_control": False,
        "worker_hijack_root_logger": True,
        "worker_redirect_stdouts": False,
        # A message that cannot be read is kept, and ends nobody.
        "worker_consumer": "segmented.celery.consumer:KeepingConsumer",
        "task_serializer": "json",
        "accept_content": ["json"],
        # In memory, without a file in the current folder: the schedule is the same at each start.
        "beat_scheduler": "celery.beat:Scheduler",
    }


def _queues(settings: WorkerSettings) -> dict[str, Any]:
    return {
        "task_default_queue": settings.queue,
        # The periodic tasks have their own, so that a sale's backlog does not hold up what finds its lost messages.
        "task_queues": [
            Queue(name, Exchange(name, "direct"), routing_key=name) for name in (settings.queue, settings.chores_queue)
        ],
        "task_routes": {chore: {"queue": settings.chores_queue} for chore in CHORES},
    }


def _deliveries(settings: WorkerSettings) -> dict[str, Any]:
    return {
        **{f"task_{option}": value for option, value in DELIVERY.items()},
        # No soft limit: its exception would come in the middle of any line, and the task would count as done.
        "task_time_limit": settings.task_time_limit,
        # Messages are popped one at a time whatever this says, and a small number strands little in a kill.
        "worker_prefetch_multiplier": 2,
        # Tasks that are put off wait in the worker's memory, unacknowledged: not too many of them.
        "worker_eta_task_limit": 1_000,
    }


def _pool(settings: WorkerSettings) -> dict[str, Any]:
    return {
        # Most of an order's time is a database's commit, and little of it Python: threads, and a process a core.
        "worker_pool": settings.pool,
        "worker_concurrency": settings.concurrency,
        # A child opens its connections before it says that it lives; the default of 4 s would kill one that waits.
        "worker_proc_alive_timeout": PROCESS_START_SECONDS,
        # SIGQUIT (or SIGTERM with REMAP_SIGTERM=SIGQUIT) lets the orders in hand end, but not for ever.
        "worker_soft_shutdown_timeout": min(SOFT_SHUTDOWN_SECONDS, settings.task_time_limit),
        # What was in hand when the broker went away will be delivered to somebody else.
        "worker_cancel_long_running_tasks_on_connection_loss": settings.pool in INTERRUPTING_POOLS,
    }


def _broker(settings: WorkerSettings) -> dict[str, Any]:
    return {
        "broker_url": settings.broker_url,
        "broker_transport_options": {
            # One value for all who use the queue: the one with the shortest decides for all.
            "visibility_timeout": settings.visibility_timeout,
            # How often, in seconds, and after how many of those looks: the defaults find a lost message minutes late.
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            # A broker that stands still is noticed; without these a worker would wait for it for ever.
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        # A broker that is not there yet, or goes away, is waited for, as long as it takes: there is nothing else to do.
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_pool_limit": 10,
        # A publisher learns within a second that the broker is away: the order is in the outbox by then.
        "task_publish_retry": True,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5},
    }


def schedule(settings: WorkerSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's `beat_schedule`; a task whose seconds are 0 is not in it.

    No message has an `expires`: a worker whose clock is ahead of beat's would drop every one of them, and nothing would
    find lost messages. What a night without workers has piled up is dropped by its number instead, by the tasks.
    """
    seconds = (settings.sweep_every, settings.expire_every, settings.relay_every, settings.audit_every)
    return {task: {"task": task, "schedule": every} for task, every in zip(CHORES, seconds, strict=True) if every > 0}
