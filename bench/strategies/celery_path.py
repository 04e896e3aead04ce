"""The whole path through Celery: a buyer submits an order, a message queues it for a worker, and the buyer waits.

Two real worker processes process one message after another; the broker is on its own server. The worker takes the units
under the lock of a segment and runs the slow step once per order, whatever the size of the message. So the workers
limit the rate: two orders are in the slow step at once, and the other buyers wait in the queue.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, cast

from celery import Celery

from bench.micro.workers import PROCESSES, BenchProcesses, environment
from bench.sections import Section
from bench.strategies.base import WAIT_SECONDS, GaveUp, Refused, Sold
from bench.strategies.pooled import PooledStrategy
from segmented.celery.messages import TASK, Envelope
from segmented.celery.settings import kombu_url
from segmented.models import Decided, Settled, SoldOut
from segmented.servers import ValkeyServer
from segmented.stock import EnvelopePublisher, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.sections import Kind
    from bench.strategies.base import Answer, StrategyContext
    from segmented.models import Order
    from segmented.models.submitted import BegunOrder

KIND: Final = "BENCH_SECTION_KIND"
MILLISECONDS: Final = "BENCH_SECTION_MS"
STEP: Final = "bench.strategies.celery_path:step"
QUEUE = "segmented"
"""The queue that workers serve by default."""


def told(section: Section) -> dict[str, str]:
    """Return the environment variables that configure the step."""
    return {KIND: section.kind, MILLISECONDS: str(section.ms), "SEGMENTED_STEP": STEP}


@cache
def _section() -> Section:
    return Section(cast("Kind", os.environ[KIND]), float(os.environ[MILLISECONDS]))


def step(_: BegunOrder) -> None:
    """Spend the time."""
    _section().run()


class CeleryOne(PooledStrategy):
    """One message per order."""

    name: ClassVar[str] = "celery-one"
    summary: ClassVar[str] = "orders submitted to two Celery workers, a message each; segment locks in the workers"
    envelope_max: ClassVar[int] = 1
    has_skus: ClassVar[bool] = False  # each object starts workers

    def __init__(self, context: StrategyContext) -> None:
        """Create a strategy without workers; `open` starts them."""
        super().__init__(context)
        self._started = ExitStack()

    @property
    def lanes(self) -> int:
        """The number of workers, or fewer if there are fewer segments or buyers."""
        return min(self.segments, self.context.buyers, PROCESSES)

    def open(self, sku: str, stock: int) -> None:
        """Open the pool, start broker and workers, and wait until they take messages."""
        super().open(sku, stock)
        stack = self._started
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-bench-")))
        broker = stack.enter_context(ValkeyServer.start()).url
        engine = self.context.engine
        database = f"sqlite:///{folder}/no-orders.db"
        if engine is not None:
            database = engine.url.render_as_string(hide_password=False)
        given = environment(self.context.url, broker, database) | told(self.context.section)
        stack.enter_context(closing(BenchProcesses(given, folder))).start_workers()
        app = stack.enter_context(Celery("bench-buyers", broker=kombu_url(broker), set_as_current=False))

        def send(sku: str, order_ids: Sequence[str]) -> None:
            body = Envelope(sku, tuple(order_ids)).body()
            app.send_task(TASK, args=(body,), queue=QUEUE, ignore_result=True)

        publisher = stack.enter_context(EnvelopePublisher(send, envelope_max=self.envelope_max))
        self.pool.outbox = Outbox(publisher, "in the worker")

    def buy(self, order: Order) -> Answer:
        """Submit the order, and wait for its outcome."""
        outcome = self.pool.submit(order).wait(WAIT_SECONDS)
        match outcome:
            case Settled(state="confirmed"):
                return Sold(0.0, 0.0, outcome.segment)  # the buyer does not see when its slow step begins
            case Decided(state="refused") | SoldOut():
                return Refused(outcome.sequence, order.quantity)
            case None:
                return GaveUp(f"no worker had finished it within {WAIT_SECONDS:g} s")
        return GaveUp(f"order {order.order_id!r}: {outcome}")

    def close(self) -> None:
        """Stop the workers and the broker."""
        self._started.close()


class CeleryBatched(CeleryOne):
    """Orders submitted at about the same time share a message, a segment's lock and a transaction."""

    name: ClassVar[str] = "celery-batched"
    summary: ClassVar[str] = "orders submitted to two Celery workers, up to 100 a message; segment locks in the workers"
    envelope_max: ClassVar[int] = 100
