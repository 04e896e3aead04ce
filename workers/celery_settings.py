"""Celery's settings for tasks that are small, must not be lost, and may arrive twice.

The order's record is the truth and a message is a hint, so nothing here is needed for correctness; it saves work and
finds lost messages sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from workers.settings import WorkerSettings

VISIBILITY_SECONDS: Final = 60
"""After which a message that no worker acknowledged is delivered again: longer than any task takes."""


def celery_settings(settings: WorkerSettings) -> dict[str, Any]:
    """Return what workers and publishers must agree on."""
    return {
        "broker_url": settings.broker_url,
        "task_default_queue": settings.queue,
        # Acknowledged after the effect, so that a killed worker's order is delivered again.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        # Messages are popped one at a time whatever this says, and a small number strands little in a kill.
        "worker_prefetch_multiplier": 2,
        # Most of an order's time is a database's commit, and little of it Python: threads, and a process a core.
        "worker_pool": "threads",
        "worker_concurrency": settings.concurrency,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_SECONDS,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        "visibility_timeout": VISIBILITY_SECONDS,
        "broker_connection_retry_on_startup": True,
        "task_publish_retry_policy": {"max_retries": 3, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.5},
        # The record in the pool is the result.
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        # Events and remote control cost a quarter of the throughput, and nothing here listens.
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_enable_remote_control": False,
        "worker_eta_task_limit": 1_000,
        "worker_hijack_root_logger": True,
        "worker_redirect_stdouts": False,
        "task_serializer": "json",
        "accept_content": ["json"],
    }
