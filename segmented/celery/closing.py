"""A worker's process closes its connections at its end, in any app that runs the tasks."""

from __future__ import annotations

from celery.signals import worker_process_shutdown, worker_shutdown

from segmented.celery.connections import disconnect


@worker_process_shutdown.connect
@worker_shutdown.connect
def close_connections(**_: object) -> None:
    """Close the process's connections: a pool's child at its own end, any other worker at the worker's end."""
    disconnect()
