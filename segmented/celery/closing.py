"""A worker's process closes its connections at its end, in whatever app the tasks run."""

from __future__ import annotations

from celery.signals import worker_process_shutdown, worker_shutdown

from segmented.celery.connections import disconnect


@worker_process_shutdown.connect
@worker_shutdown.connect
def close_connections(**_: object) -> None:
    """Close what this process opened: a pool's child at its own end, any other worker at the worker's."""
    disconnect()
