"""Recovery: seconds until another worker has finished the orders of a killed worker, at default settings."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Final

from bench.workers.app_names import APP, LOADING, QUEUE
from bench.workers.checker import faults
from bench.workers.context import DECIDING
from bench.workers.processes import POOL
from segmented.errors import SegmentedError
from segmented.models import Order
from segmented.testing.worker_process import Launch, WorkerProcess

if TYPE_CHECKING:
    from bench.workers.context import BenchContext
    from segmented.models.submitted import Deciding
    from segmented.stock import Pool

DEATH: Final = "before:SettleMany"
"""The point at which the worker dies: it has begun its orders, and none of them is confirmed."""
ENVELOPE: Final = 10
ENVELOPES: Final = 10
DEATH_SECONDS: Final = 30.0
FINISH_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.01
PAUSE_SECONDS: Final = 0.05


def part_name(decides: Deciding) -> str:
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
            context.broken.setdefault(part_name(decides), fault)
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
        envelopes = [[f"r-{next(numbers)}" for _ in range(ENVELOPE)] for _ in range(ENVELOPES)]
        pool.submit_many([Order(order_id, 1) for envelope in envelopes for order_id in envelope])
        context.processes.ask({"do": "orders", "queue": QUEUE, "sku": pool.sku, "envelopes": envelopes})
        sent += ENVELOPE * ENVELOPES
        if time.monotonic() > deadline:
            message = f"no worker died within {DEATH_SECONDS:g} s"
            raise SegmentedError(message)
        time.sleep(PAUSE_SECONDS)
    return sent
