"""The app of the benchmark's workers: the library's app with all its settings, and one task that does nothing.

So the same processes run the empty task and the orders. `python -m bench.micro.workers.app` is the publisher, which
submits orders like any program. It is a separate process because it reads the workers' settings from its environment.
Each request is one line of JSON, and so is each answer. It ends when its standard input ends, and so does Celery's beat
for the app: `python -m bench.micro.workers.app beat`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celery.signals import worker_ready

from bench.micro.workers import BEAT, CONSUMER, EMPTY, READY
from segmented import Outbox, Pool, RedisStore
from segmented.celery import publisher
from segmented.celery.app import app
from segmented.celery.messages import TASK, Envelope
from segmented.celery.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from segmented.models.submitted import BegunOrder, Deciding

__all__ = ["app"]
WAIT_SECONDS: Final = 30.0
PAUSE_SECONDS: Final = 0.01
"""Pause between two orders of the idle latency."""
if CONSUMER in os.environ:
    app.conf.worker_consumer = os.environ[CONSUMER]


@app.task(name=EMPTY)
def empty() -> None:
    """Do nothing."""


@worker_ready.connect
def tell(**_: object) -> None:
    """Create the file that shows that the worker takes messages."""
    if READY in os.environ:
        Path(os.environ[READY]).touch()


def hold(order: BegunOrder) -> None:
    """Sleep for the milliseconds with which the order's id begins: the step of `segmented bench celery`."""
    time.sleep(float(order.order.order_id.partition("-")[0]) / 1000)


def load_orders(queue: str, sku: str, envelopes: Iterable[list[str]]) -> None:
    """Publish messages with these orders to a queue."""
    for order_ids in envelopes:
        body = Envelope(sku, tuple(order_ids)).body()
        app.send_task(TASK, args=(body,), queue=queue, ignore_result=True)


def load_empty(queue: str, count: int) -> None:
    """Publish messages of the empty task."""
    for _ in range(count):
        app.send_task(EMPTY, queue=queue, ignore_result=True)


def latencies(store: RedisStore, sku: str, decides: Deciding, order_ids: Iterable[str]) -> list[float]:
    """Submit one order after another, and return the seconds until the outcome of each is known here."""
    pool = Pool(store, sku, outbox=Outbox(publisher(), decides))
    found = []
    for order_id in order_ids:
        time.sleep(PAUSE_SECONDS)
        began = time.perf_counter()
        outcome = pool.submit(order_id).wait(WAIT_SECONDS)
        found.append(time.perf_counter() - began)
        if outcome is None:
            return []  # the checker reports what is missing
    return found


def main() -> None:
    """Process requests until standard input ends."""
    with RedisStore.from_url(settings().url.get_secret_value()) as store:
        for line in sys.stdin:
            said: dict[str, Any] = json.loads(line)
            answer: object = None
            match said.pop("do"):
                case "orders":
                    load_orders(**said)
                case "empty":
                    load_empty(**said)
                case _:
                    answer = latencies(store, **said)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(0)


if __name__ == "__main__":
    if BEAT in sys.argv:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        app.start(argv=[BEAT, "--loglevel", "WARNING", "--pidfile="])
    else:
        main()
