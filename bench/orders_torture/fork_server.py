"""Starts workers from a fork server: a process that has only loaded their code, and forks a worker in milliseconds.

A worker starts with more than a second of imports. A thousand starts would take most of a long run, and two kills in a
row would leave no worker running. Each worker is its own process, in its own session, with its own connections.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from bench.orders_torture.event_log import LOG

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

PRELOADED: Final = (
    *("celery", "celery.apps.worker", "celery.bin.celery", "celery.bin.worker", "celery.concurrency.thread"),
    *("celery.loaders.app", "celery.worker.consumer", "celery.worker.strategy", "kombu.transport.redis"),
    *("psycopg", "pydantic_settings", "redis.cluster", "sqlalchemy.dialects.postgresql.psycopg"),
    *(
        "sqlalchemy.dialects.sqlite",
        "segmented",
        "segmented.orders",
        "segmented.stores.redis",
        "segmented.celery.settings",
    ),
)
"""Modules that do not read the environment: each worker gets its own."""
OPTIONS: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")


class WorkerForkServer:
    """Forks workers."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """Fork workers in `folder`, with this environment. The fork server starts with the first worker."""
        self._environment = dict(environment)
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))

    def start(self, name: str, log: Path, output: Path) -> ForkServerProcess:
        """Start a worker that logs messages to `log`, and prints to `output`."""
        environment = {**self._environment, LOG: str(log)}
        process = self._context.Process(target=_be_worker, args=(name, environment, str(self._folder), str(output)))
        process.start()
        return process


def _be_worker(name: str, environment: dict[str, str], folder: str, output: str) -> None:
    os.setsid()  # a terminal's Ctrl-C reaches only the command
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    sys.argv = ["workers"]

    from segmented.celery.app import app  # noqa: PLC0415  # its settings come from the environment, which was not there before

    app.worker_main(["worker", *OPTIONS, "--hostname", f"{name}@torture"])


def _end_with_starter() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        wait([starter.sentinel])
    os._exit(1)
