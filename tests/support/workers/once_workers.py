"""Real Celery workers for the tests of deduplication: started, frozen, killed, and what they did, in a file."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from celery import Celery
from celery.result import AsyncResult

from segmented.celery.settings import kombu_url
from segmented.dedup.celery.settings import close_stores
from segmented.servers import ValkeyServer
from tests.support.paths import ROOT
from tests.support.processes import Logged
from tests.support.workers.once_app import build
from tests.support.workers.once_steps import ENOUGH, Fail, Setup
from tests.support.workers.selling import until

SOON: Final = 100.0


def close_app(app: Celery) -> None:
    """Close an app whose server is about to end: handles that outlive it ask it nothing."""
    backend: Any = app.backend
    backend.result_consumer._pubsub = None  # noqa: SLF001  # it has no other word for it
    app.close()


class Worker(Logged):
    """One worker with its pool, in a session of its own."""

    def __init__(self, setup: Setup, said: Path, *, pool: str, concurrency: int, options: tuple[str, ...]) -> None:
        few = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO")
        who = ("--pool", pool, "--concurrency", str(concurrency), "--hostname", f"{said.stem}@here")
        super().__init__(
            [sys.executable, "-m", "celery", "-A", "tests.support.workers.once_app", "worker", *few, *who, *options],
            said,
            cwd=ROOT,
            environment={**os.environ, "PYTHONPATH": str(ROOT), **setup.environment()},
        )

    def is_ready(self) -> bool:
        return " ready." in self.said()

    def done(self) -> int:
        """Return how many deliveries it has dealt with."""
        return sum(self.said().count(end) for end in ("] succeeded", "] ignored", "] retry:", "] raised"))

    def ends_of(self, message: str) -> int:
        """Return how many deliveries of a message have ended."""
        said = [line for line in self.said().splitlines() if f"[{message}] " in line]
        return sum(end in line for line in said for end in ("] succeeded", "] ignored", "] raised"))

    def died(self) -> None:
        """Wait for its end at the point where it is to fail."""
        assert self.process.wait(SOON) == -signal.SIGKILL, self.said()


class OnceSide:
    """A broker, a result backend and records on a server of their own; a publisher; and workers as they are started."""

    def __init__(
        self,
        server: ValkeyServer,
        folder: Path,
        *,
        visibility: float = 3600.0,
        lease: float = 0.0,
        **conf: Any,  # noqa: ANN401  # settings of Celery
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.log = folder / "effects.log"
        broker, backend, records = (server.url.replace("db=0", f"db={number}") for number in range(3))
        self.setup = Setup(
            kombu_url(broker), kombu_url(backend), records, str(self.log), visibility, lease=lease, conf=conf
        )
        self.app = build(self.setup)
        self.broker = redis.Redis.from_url(broker, decode_responses=True)
        self.records = redis.Redis.from_url(records, decode_responses=True)
        self._workers: list[Worker] = []

    def task(self, name: str) -> Any:  # noqa: ANN401  # a task
        return self.app.tasks[name]

    def changed(
        self,
        *,
        fail: Fail = "",
        clock_ahead: float = 0.0,
        lease: float | None = None,
        **conf: Any,  # noqa: ANN401  # settings of Celery
    ) -> Setup:
        lease = self.setup.lease if lease is None else lease
        return replace(self.setup, fail=fail, clock_ahead=clock_ahead, lease=lease, conf={**self.setup.conf, **conf})

    def start(
        self, setup: Setup | None = None, *, pool: str = "solo", concurrency: int = 1, options: tuple[str, ...] = ()
    ) -> Worker:
        said = self._folder / f"worker{len(self._workers)}.log"
        worker = Worker(setup or self.setup, said, pool=pool, concurrency=concurrency, options=options)
        self._workers.append(worker)
        return worker

    def start_ready(self, setup: Setup | None = None, *, pool: str = "solo", concurrency: int = 1) -> Worker:
        worker = self.start(setup, pool=pool, concurrency=concurrency)
        self.wait_for(worker.is_ready)
        return worker

    def enough(self, *, is_so: bool = True) -> None:
        """Let the bodies end that were called with a negative number of seconds; or keep those that begin now."""
        said = self._folder / f"{self.log.name}{ENOUGH}"
        said.touch() if is_so else said.unlink(missing_ok=True)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop the workers in their tracks, so that what is published meanwhile waits, however long that takes."""
        living = [worker for worker in self._workers if worker.process.poll() is None]
        for worker in living:
            worker.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for worker in living:
                worker.signal(signal.SIGCONT)

    # --- what was done ---

    def lines(self, *, task: str = "", key: str = "", what: str = "begin") -> list[str]:
        """Return the noted beginnings, or ends, of a task's bodies with a key, as the values they were called with."""
        if not self.log.exists():
            return []
        found = [line.split(" ") for line in self.log.read_text().splitlines()]
        return [line[2] for line in found if line[3] == what and task in {"", line[0]} and key in {"", line[1]}]

    def runs(self, key: str) -> int:
        return len(self.lines(key=key))

    def runs_by_key(self) -> Counter[str]:
        if not self.log.exists():
            return Counter()
        return Counter(line.split(" ")[1] for line in self.log.read_text().splitlines() if line.endswith(" begin"))

    def wait_for(self, is_so: Callable[[], object], seconds: float = SOON) -> None:
        try:
            until(is_so, seconds=seconds)
        except AssertionError:
            said = "\n".join(f"--- {index}\n{worker.said()[-2500:]}" for index, worker in enumerate(self._workers))
            pytest.fail(f"not in time; workers said\n{said}")

    def queued(self) -> int:
        return int(self.broker.llen("celery"))

    def unacknowledged(self) -> int:
        return int(self.broker.hlen("unacked"))

    def is_quiet(self) -> bool:
        """Is there no message left? (A message that is just being fetched is in neither place.)"""
        return not self.queued() and not self.unacknowledged()

    def ends_of(self, message: str) -> int:
        return sum(worker.ends_of(message) for worker in self._workers)

    def forget_result(self, handle: AsyncResult[Any]) -> None:
        """Let the result backend forget it."""
        backend: Any = self.app.backend
        backend.delete(backend.get_key_for_task(handle.id))

    def is_waiting(self, handle: AsyncResult[Any]) -> bool:
        """Has the message its key, and has not begun?"""
        return handle.id in self._held("seat")

    def is_running(self, handle: AsyncResult[Any]) -> bool:
        """Has a holder the message, be it a dead one?"""
        return handle.id in self._held("run")

    def _held(self, what: str) -> list[object]:
        hashes = [name for name in self.records.scan_iter() if self.records.type(name) == "hash"]
        return [self.records.hget(name, what) for name in hashes]

    def received(self) -> int:
        """Return how many deliveries all workers have had."""
        return sum(worker.said().count(" received\n") for worker in self._workers)

    def close(self) -> None:
        # Handles in a circle go while their server lives. Celery 5.3 has a backend for each thread that published, and
        # a handle of one that outlives its server waits 20 s for it.
        gc.collect()
        for worker in self._workers:
            worker.kill()
        close_app(self.app)
        close_stores()
        self.broker.close()
        self.records.close()


def publisher(setup: Setup, task: str, *arguments: object, crowd: int = 1) -> subprocess.Popen[str]:
    """Start a process that publishes; it prints the handle's id of each of its `crowd` of processes."""
    command = [sys.executable, "-m", "tests.support.workers.once_publisher", str(crowd), task, *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **setup.environment()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
