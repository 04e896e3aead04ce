"""Where workers come from: a process that has loaded their code, and nothing else, and forks one within milliseconds.

A worker begins with more than a second of imports. A thousand of them would take most of a long run, and two kills in a
row would leave nobody at work. Each is a process of its own, in a session of its own, with its own connections.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from bench.orders_torture.lines import LOG

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
"""Nothing that reads the environment: a worker gets its own."""
OPTIONS: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")


class Nursery:
    """Starts workers."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """Start them in `folder`, with this environment. The forking process starts with the first of them."""
        self._environment = dict(environment)
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))

    def start(self, name: str, log: Path, said: Path) -> ForkServerProcess:
        """Start one that logs messages to `log`, and prints to `said`."""
        environment = {**self._environment, LOG: str(log)}
        process = self._context.Process(target=_be_worker, args=(name, environment, str(self._folder), str(said)))
        process.start()
        return process


def _be_worker(name: str, environment: dict[str, str], folder: str, said: str) -> None:
    os.setsid()  # a terminal's Ctrl-C reaches the command alone
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    sys.argv = ["workers"]

    from segmented.celery.app import app  # noqa: PLC0415  # its settings come from the environment, which was not there before

    app.worker_main(["worker", *OPTIONS, "--hostname", f"{name}@torture"])


def _end_with_starter() -> None:
    starter = multiprocessing.parent_process()
    if starter is not None:
        wait([starter.sentinel])
    os._exit(1)
