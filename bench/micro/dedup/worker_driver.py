"""Drives the worker: starts it, sends it bursts of tasks, reads how long they took, and counts round trips."""

from __future__ import annotations

import json
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import redis

from bench.children import close_process, start_child
from bench.micro.dedup.context import BROKER, at_database
from bench.micro.dedup.tasks import GO, SAID, WAIT_SECONDS, make_app
from bench.micro.stock.context import Counter
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from celery import Celery

LEAVE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of tasks of one kind, per task. Times are in microseconds."""

    published: float
    published_cpu: float
    """CPU time of this process."""
    published_trips: float
    """Scripts that the server ran for the publisher."""
    worked: float
    """From the first start to the last end, by the worker's clock."""
    worked_cpu: float
    """CPU time of the worker's process."""
    worked_trips: float
    """Scripts that the server ran for the worker."""
    server: float
    """The server's time in the worker's scripts."""


class WorkerDriver:
    """Sends tasks to a running worker."""

    def __init__(self, url: str, app: Celery, worker: subprocess.Popen[str]) -> None:
        """Drive `worker`, and publish with `app`."""
        self._app = app
        self._worker = worker
        self._client = redis.Redis.from_url(at_database(url, BROKER))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    def burst(self, kind: str, items: list[str]) -> Burst:
        """Hold the worker, publish one task per item, and release the worker. Each item is used only once."""
        task, count = self._app.tasks[kind], len(items)
        self._app.tasks["hold"].apply_async()
        self._next_message()
        counter = Counter(self._client)
        began, began_cpu = time.perf_counter(), time.process_time()
        for item in items:
            task.apply_async((item,))
        published, published_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        published_trips, _ = counter.of()
        self._app.tasks["mark"].apply_async()
        counter = Counter(self._client)
        self._client.lpush(GO, "go")
        worked, cpu = json.loads(self._next_message())
        trips, server = counter.of()
        each = 1e6 / count
        return Burst(
            published * each,
            published_cpu * each,
            published_trips / count,
            worked * each,
            cpu * each,
            trips / count,
            server / count,
        )

    def _next_message(self) -> str:
        """Wait for the worker's next message. Raises SegmentedError if there is none in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline and self._worker.poll() is None:
            said: Any = self._client.blpop([SAID], 1)
            if said is not None:
                return str(said[1].decode())
        message = f"the worker of the benchmark said nothing for {WAIT_SECONDS} s, or ended"
        raise SegmentedError(message)

    def close(self) -> None:
        """Close the connection to the server."""
        self._client.close()


@contextmanager
def running_worker(url: str) -> Iterator[WorkerDriver]:
    """Start a worker, yield its driver, and end the worker."""
    app = make_app(url)
    with tempfile.TemporaryFile() as errors:
        worker = start_child(("-m", "bench.micro.dedup.tasks", url), errors=errors, output=errors)
        driver = WorkerDriver(url, app, worker)
        try:
            yield driver
        except SegmentedError as error:
            errors.seek(0)
            error.add_note(errors.read()[-1_000:].decode(errors="replace"))
            raise
        finally:
            driver.close()
            close_process(worker, seconds=LEAVE_SECONDS)
            app.close()
