"""Bursts of prepared messages: empty ones, with one order, with a hundred; all kinds alternate in each round.

All messages wait in a queue that no worker serves until it is renamed. A burst ends when the last message is
acknowledged, which is after its effect.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.cpu import OtherLoad, own_seconds
from bench.micro.workers.context import DECIDING, LOADING, PLAIN_QUEUE, QUEUE, faults
from bench.sizing import shuffled_rounds
from segmented.errors import SegmentedError
from segmented.models import Order

if TYPE_CHECKING:
    from bench.micro.workers.context import BenchContext, Sizes
    from segmented.models.submitted import Deciding
    from segmented.stock import Pool

ENVELOPE: Final = 100
SUBMITTED_AT_ONCE: Final = 1_000
WARM_UP: Final = 30
LOOK_SECONDS: Final = 0.01
BURST_SECONDS: Final = 120.0
UNACKED: Final = "unacked"
"""The broker's hash of unacknowledged messages."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The content of a message."""

    decides: Deciding | None
    """Where stock is decided; None for the empty task."""
    is_stored: bool = False
    """Whether orders are stored in the order database."""
    orders: int = 1
    is_plain: bool = False
    """Whether workers with Celery's own consumer get it."""

    @property
    def name(self) -> str:
        """Name of the kind in the figures."""
        if self.decides is None:
            return "empty task of Celery's own consumer" if self.is_plain else "empty task"
        size = "one order a task" if self.orders == 1 else f"envelopes of {self.orders}"
        return f"{size}, decided {self.decides}{', PostgreSQL' if self.is_stored else ''}"

    def messages(self, sizes: Sizes) -> int:
        """Return how many messages a round has."""
        if self.orders == 1:
            return sizes.stored_singles if self.is_stored else sizes.singles
        return sizes.stored_envelopes if self.is_stored else sizes.envelopes


EMPTY_TASK: Final = Kind(None)
PLAIN_TASK: Final = Kind(None, is_plain=True)
KINDS: Final = (
    EMPTY_TASK,
    PLAIN_TASK,
    *(Kind(decides, stored, orders) for decides in DECIDING for stored in (False, True) for orders in (1, ENVELOPE)),
)


@dataclass(frozen=True, slots=True)
class Burst:
    """The measurements of a burst."""

    items: int
    """Number of orders or empty tasks."""
    seconds: float
    cpu: float
    """CPU seconds of the worker processes."""

    @property
    def rate(self) -> float:
        """Orders or empty tasks per second."""
        return self.items / self.seconds

    @property
    def cpu_each(self) -> float:
        """CPU microseconds of the worker processes per order or empty task."""
        return self.cpu / self.items * 1e6


def measure_bursts(context: BenchContext) -> tuple[dict[Kind, list[Burst]], float]:
    """Run all kinds in every round, in random order. Return the bursts, and the cores used by other programs."""
    found: dict[Kind, list[Burst]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        context.progress("first messages", 0, 1)
        _burst(context, kind, min(WARM_UP, kind.messages(context.sizes)))
    others = OtherLoad()
    for number, kind in shuffled_rounds(KINDS, context.sizes.rounds):
        context.progress("bursts", number, context.sizes.rounds)
        found[kind].append(_burst(context, kind, kind.messages(context.sizes)))
    return found, others.cores()


def _burst(context: BenchContext, kind: Kind, messages: int) -> Burst:
    if kind.decides is None:
        return empty_burst(context, messages, is_plain=kind.is_plain)
    with context.pool(kind.decides, gated=kind.is_stored) as pool:
        sent = load(context, pool, [f"o-{index}" for index in range(messages * kind.orders)], kind.orders)
        burst = work_off(context, messages, sent)
        if fault := faults(pool, sent, context.gate if kind.is_stored else None):
            context.broken.setdefault(kind.name, fault)
    return burst


def empty_burst(context: BenchContext, messages: int, *, is_plain: bool = False) -> Burst:
    """Work off messages of the empty task."""
    context.processes.ask({"do": "empty", "queue": LOADING, "count": messages})
    return work_off(context, messages, messages, is_plain=is_plain)


def load(context: BenchContext, pool: Pool, ids: list[str], size: int) -> int:
    """Submit orders of one unit, and prepare messages of `size` orders each. Return how many orders there are."""
    for first in range(0, len(ids), SUBMITTED_AT_ONCE):
        answers = pool.submit_many([Order(order_id, 1) for order_id in ids[first : first + SUBMITTED_AT_ONCE]])
        for answer in answers:
            if isinstance(answer, SegmentedError):
                raise answer
    envelopes = [ids[first : first + size] for first in range(0, len(ids), size)]
    context.processes.ask({"do": "orders", "queue": LOADING, "sku": pool.sku, "envelopes": envelopes})
    return len(ids)


def work_off(context: BenchContext, messages: int, items: int, *, is_plain: bool = False) -> Burst:
    """Give the prepared messages to the workers, and wait until the last one is acknowledged."""
    broker, queue = context.broker, PLAIN_QUEUE if is_plain else QUEUE
    workers = [psutil.Process(pid) for pid in (context.plain_workers if is_plain else context.workers)]
    broker.config_resetstat()
    cpu = sum(map(own_seconds, workers))
    began = time.perf_counter()
    broker.rename(LOADING, queue)
    while not _is_done(context, messages, queue):
        time.sleep(LOOK_SECONDS)
        if time.perf_counter() - began > BURST_SECONDS:
            message = f"{messages:,} messages were not worked off within {BURST_SECONDS:g} s"
            raise SegmentedError(message)
    seconds = time.perf_counter() - began
    return Burst(items, seconds, sum(map(own_seconds, workers)) - cpu)


def _is_done(context: BenchContext, messages: int, queue: str) -> bool:
    """Return whether nothing is queued or unacknowledged, and all sent messages were acknowledged.

    The count is needed because a message may be between queue and worker.
    """
    pipe = context.broker.pipeline(transaction=False)
    pipe.llen(queue)
    pipe.hlen(UNACKED)
    waiting, in_hand = pipe.execute()
    if waiting or in_hand:
        return False
    stats: Any = context.broker.info("commandstats")
    return int(stats.get("cmdstat_hdel", {"calls": 0})["calls"]) >= messages
