"""Two waits: for the outcome of a single order when the system is idle, and for other workers after one was killed.

Idle latency: one order after another, from `pool.submit` until `handle.wait` returns its outcome. Recovery: seconds
until another worker has finished the orders of a killed worker, at default settings.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Final

from bench.micro.workers.context import DECIDING, faults
from bench.micro.workers.processes import APP, LOADING, POOL, QUEUE
from segmented.errors import SegmentedError
from segmented.models import Order
from segmented.testing.worker_process import Launch, WorkerProcess

if TYPE_CHECKING:
    from bench.micro.workers.context import BenchContext
    from segmented.models.submitted import Deciding
    from segmented.stock import Pool

WARM_UP: Final = 20
DEATH: Final = "before:SettleMany"
"""The point at which the worker dies: it has begun its orders, and none of them is confirmed."""
BATCH: Final = 10
BATCHES: Final = 10
DEATH_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.01
PAUSE_SECONDS: Final = 0.05


def latency_part(decides: Deciding) -> str:
    """Return the name of the part."""
    return f"idle latency, decided {decides}"


def measure_latency(context: BenchContext) -> dict[Deciding, list[float]]:
    """Return the seconds of every order; rounds of both ways of deciding alternate."""
    found: dict[Deciding, list[float]] = {decides: [] for decides in DECIDING}
    for number in range(context.sizes.rounds):
        context.progress("idle latency", number, context.sizes.rounds)
        for decides in DECIDING:
            with context.pool(decides) as pool:
                ids = [f"i-{index}" for index in range(WARM_UP + context.sizes.latencies)]
                seconds = context.processes.ask(
                    {"do": "latency", "sku": pool.sku, "decides": decides, "order_ids": ids}
                )
                found[decides] += seconds[WARM_UP:]
                if fault := faults(pool, len(ids)):
                    context.broken.setdefault(latency_part(decides), fault)
    return found


def recovery_part(decides: Deciding) -> str:
    """Return the name of the part."""
    return f"recovery, decided {decides}"


def measure_recovery(context: BenchContext) -> dict[Deciding, list[float]]:
    """Return the seconds after each kill."""
    found: dict[Deciding, list[float]] = {decides: [] for decides in DECIDING}
    if context.sizes.kills:
        context.processes.start_beat()
        context.processes.ask(
            {"do": "empty", "queue": LOADING, "count": 0}
        )  # starts the publisher: orders must not wait for that
    for number in range(context.sizes.kills):
        context.progress("kills", number, context.sizes.kills)
        decides = DECIDING[number % len(DECIDING)]
        found[decides].append(_kill(context, decides, number))
    return found


def _kill(context: BenchContext, decides: Deciding, number: int) -> float:
    folder = context.processes.folder / f"victim-{number}"
    folder.mkdir()
    launch = Launch(APP, folder, pool=POOL, environment=context.processes.given)
    with context.pool(decides) as pool, closing(WorkerProcess(launch, kill_at=DEATH)) as victim:
        victim.wait_ready()
        death = _Death(victim)
        sent = _send_until_dead(context, pool, victim)
        began = death.at()
        while pool.state().confirmed < sent and time.monotonic() < began + FINISH_SECONDS:
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        if fault := faults(pool, sent):
            context.broken.setdefault(recovery_part(decides), fault)
    return seconds


class _Death:
    """The time of a worker's end, recorded by a thread while orders are published."""

    def __init__(self, victim: WorkerProcess) -> None:
        self._victim = victim
        self._at = 0.0
        self._thread = threading.Thread(target=self._look, name="bench-death", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while self._victim.is_running:
            time.sleep(LOOK_SECONDS)
        self._at = time.monotonic()

    def at(self) -> float:
        """Return the local time of the worker's end."""
        self._thread.join()
        return self._at


def _send_until_dead(context: BenchContext, pool: Pool, victim: WorkerProcess) -> int:
    """Submit orders until the victim, which shares the queue with the other workers, has received an envelope."""
    deadline = time.monotonic() + DEATH_SECONDS
    numbers = count()
    sent = 0
    while victim.is_running:
        envelopes = [[f"r-{next(numbers)}" for _ in range(BATCH)] for _ in range(BATCHES)]
        pool.submit_many([Order(order_id, 1) for envelope in envelopes for order_id in envelope])
        context.processes.ask({"do": "orders", "queue": QUEUE, "sku": pool.sku, "envelopes": envelopes})
        sent += BATCH * BATCHES
        if time.monotonic() > deadline:
            message = f"no worker died within {DEATH_SECONDS:g} s"
            raise SegmentedError(message)
        time.sleep(PAUSE_SECONDS)
    return sent
