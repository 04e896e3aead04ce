"""The measurement of a run: a sale to the last unit, of which a part counts. The rules are fixed beforehand.

Closed loop: Locust users order again at once, which measures capacity, not the latency that users experience. The stock
lasts for the planned seconds by a calibration of the cell, made once a session, which does not count. The warm-up is
left out; the window ends with the first refusal or at the time limit; buyers continue for a quarter of a second after
that, so that there are refusals to check. If the plan fixes the stock, the sale may be shorter than any warm-up, and
counts from its first order to the last sold one.

Importing Locust patches sockets, sleeping and locks for gevent, so a process must import this module before it connects
to anything. A user processes all its orders in one task: otherwise the measurement would include Locust's own work
between two tasks.

Open loop: arrivals follow a schedule, whatever happens to earlier ones, which measures what users experience. A
dispatcher starts one greenlet per arrival at its intended time. Up to `cell.buyers` calls may be under way; an arrival
beyond that is shed: it is never sent, and counts as a failure. Latency is measured from the intended time, so a late
dispatcher makes it worse, not better; the lateness is recorded too.
"""

from __future__ import annotations

import itertools
import math
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import gevent
import locust  # noqa: F401  # before anything connects: it patches sockets, sleeping and locks for gevent
from gevent.pool import Group
from locust import User, task
from locust.env import Environment
from locust.exception import StopUser

from bench.conditions import CpuMeter
from bench.engine.cell import schedule_of
from bench.engine.meters import WorkMeter, cores_between
from bench.engine.sale import FAILED_MAX, whole_sale
from bench.sections import Alarm
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from bench.engine.cell import RunAssignment
    from bench.engine.record import Cpu, Work
    from bench.engine.sale import Sale
    from bench.results import Progress

PROGRESS_SECONDS: Final = 0.2
REFUSALS_SECONDS: Final = 0.25
WORK_SHARE: Final = 0.75
"""Share of the planned seconds in which work is counted: before refusals begin, which cost as much as orders."""
READINGS: Final = 40
"""Readings of units left by segment, over the planned seconds."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurements of a sale, in local seconds."""

    began: float
    window_begin: float
    window_end: float
    drain_s: float
    cpu: Cpu
    work: Work
    left_at: tuple[float, ...]
    left: tuple[tuple[int, ...], ...]
    planned: int
    """Orders planned to be sent."""
    shed: int = 0
    """Orders that were never sent."""
    shed_at: tuple[float, ...] = ()
    """Intended times of the calls that were never sent."""

    @property
    def window_s(self) -> float:
        """Length of the measured part."""
        return self.window_end - self.window_begin


class SegmentSampler:
    """Reads units left by segment periodically, in its own greenlet."""

    def __init__(self, sale: Sale, every: float) -> None:
        """Start, if there is one sku with more than one segment."""
        self.at: list[float] = []
        self.left: list[tuple[int, ...]] = []
        is_read = sale.strategy.segments > 1 and sale.choice is None  # readings of many skus would cost too much
        self._greenlet = gevent.spawn(self._read, sale, every) if is_read else None

    def _read(self, sale: Sale, every: float) -> None:
        while not sale.is_closing:
            found = sale.strategy.free_by_segment()
            if not found:
                return
            self.at.append(time.monotonic())
            self.left.append(found)
            gevent.sleep(every)

    def stop(self) -> None:
        """Stop reading."""
        if self._greenlet is not None:
            self._greenlet.kill()


def run_closed(assignment: RunAssignment, sale: Sale, client: redis.Redis, progress: Progress) -> Measurement:
    """Sell out with buyers that order again at once."""
    meter = CpuMeter(client, sale.strategy.context.engine)
    work = WorkMeter(client, sale.recorder)
    generator = LoadGenerator(sale, assignment.cell.buyers, drain=assignment.drain)
    readings = SegmentSampler(sale, assignment.seconds / READINGS)
    is_all = assignment.cell.stock is not None  # a stock fixed by the plan may sell out during the warm-up
    if not is_all:
        sale.over.wait(assignment.warm_up)
        work.begin()
    cores = meter.read()
    begin = generator.began + assignment.warm_up  # as planned, even if a busy machine woke this process late
    limit = generator.began + assignment.time_limit
    counted = math.inf if is_all else generator.began + WORK_SHARE * assignment.seconds
    while not sale.over.wait(min(PROGRESS_SECONDS, max(0.0, limit - time.monotonic()))) and time.monotonic() < limit:
        progress("sale", len(sale.recorder.sold_numbers), assignment.stock)
        if time.monotonic() >= counted:
            work.end()
            counted = math.inf
    end = sale.sold_out_at or time.monotonic()
    if counted < math.inf:
        work.end()
    used = cores_between(cores, meter.read())
    if sale.sold_out_at is not None:
        time.sleep(REFUSALS_SECONDS)
    if is_all:
        used = cores_between(cores, meter.read())  # such a sale may last only a few milliseconds
    drain_s = generator.stop()
    readings.stop()
    if is_all and (whole := whole_sale(sale.recorder)) is not None:
        begin, end = whole
    if end <= begin or not len(sale.recorder.sold_numbers):
        reason = next(iter(sale.recorder.failures), f"a stock of {assignment.stock} was gone at once")
        message = f"{assignment.cell.cell_id}: nothing was sold after the warm-up, so nothing is measured: {reason}"
        raise SegmentedError(message)
    return Measurement(
        began=begin if is_all else generator.began,
        window_begin=begin,
        window_end=end,
        drain_s=drain_s,
        cpu=used,
        work=work.work(),
        left_at=tuple(readings.at),
        left=tuple(readings.left),
        planned=sale.order_count,
    )


class Buyer(User):
    """Orders until the sale closes."""

    abstract = True
    sale: ClassVar[Sale]
    numbers: ClassVar[itertools.count[int]]

    @task
    def buy(self) -> None:
        """Process one order after another."""
        number = next(self.numbers)
        while not self.sale.is_closing:
            self.sale.call(number)
        raise StopUser


class LoadGenerator:
    """Runs a number of buyers of one sale, all started at once."""

    def __init__(self, sale: Sale, buyers: int, *, drain: float) -> None:
        """Start the buyers. `drain`: seconds for them to finish when they are stopped."""
        self.sale = sale
        buyer = type("SaleBuyer", (Buyer,), {"sale": sale, "numbers": itertools.count()})
        self._drain = drain
        self._runner = Environment(user_classes=[buyer]).create_local_runner()
        self.began = time.monotonic()
        self._runner.start(buyers, spawn_rate=buyers)

    def stop(self) -> float:
        """Let every buyer finish its current order; return the seconds it took.

        Buyers stop by themselves: Locust's own stop would kill a user in the middle of an order.
        """
        began = time.monotonic()
        self.sale.is_closing = True
        self._runner.user_greenlets.join(self._drain)
        took = time.monotonic() - began
        self._runner.quit()
        return took


# --- open loop ---

START_SECONDS: Final = 0.02
"""Seconds before the first arrival, so that the dispatcher's start does not count as lateness."""


class Dispatcher:
    """Starts a call for each arrival of a schedule, in ascending seconds from `began`."""

    def __init__(self, sale: Sale, schedule: Sequence[float], *, under_way_max: int) -> None:
        """Create a dispatcher; `start` starts it."""
        self.sale = sale
        self.began = time.monotonic() + START_SECONDS
        self.shed_at: list[float] = []
        """Intended times of the arrivals that were never sent, in local seconds."""
        self.arrived = 0
        self._schedule = schedule
        self._free = list(range(under_way_max))
        self._calls = Group()
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def start(self) -> None:
        """Start; the schedule's times count from now."""
        self.began = time.monotonic() + START_SECONDS
        self._greenlet = gevent.spawn(self._dispatch)

    @property
    def is_over(self) -> bool:
        """Return whether every arrival was handled, or the sale was given up."""
        return self._greenlet is None or self._greenlet.dead

    def finish(self, drain: float) -> float:
        """Handle every remaining arrival, all being due, and stop; returns like `stop`.

        A lagging dispatcher has some arrivals left at the end. They are sent late, with that latency. Those that are
        never sent count as shed, so that no order is missing from the counts.
        """
        if self._greenlet is not None:
            self._greenlet.join(drain)
        took = self.stop(drain)
        self.shed_at += [self.began + after for after in self._schedule[self.arrived :]]
        return took

    def stop(self, drain: float) -> float:
        """Start no more calls, and wait up to `drain` for those under way; return the seconds it took."""
        began = time.monotonic()
        self.sale.is_closing = True
        if self._greenlet is not None:
            self._greenlet.kill()
        self._calls.join(drain)
        took = time.monotonic() - began
        self._calls.kill()
        return took

    def _dispatch(self) -> None:
        with closing(Alarm()) as alarm:
            for after in self._schedule:
                intended = self.began + after
                alarm.wait_until(intended)
                if self.sale.is_closing or len(self.sale.recorder.failures) >= FAILED_MAX:
                    return
                self.arrived += 1
                if self._free:
                    self._calls.spawn(self._call, self._free.pop(), intended)
                else:
                    self.shed_at.append(intended)

    def _call(self, buyer: int, intended: float) -> None:
        try:
            self.sale.call(buyer, intended=intended)
        finally:
            self._free.append(buyer)


def run_open(assignment: RunAssignment, sale: Sale, client: redis.Redis, progress: Progress) -> Measurement:
    """Run the schedule. The plan decides whether the stock lasts."""
    cell, warm_up, seconds = assignment.cell, assignment.warm_up, assignment.seconds
    schedule = schedule_of(cell, warm_up=warm_up, seconds=seconds, seed=assignment.seed).tolist()
    meter = CpuMeter(client, sale.strategy.context.engine)
    work = WorkMeter(client, sale.recorder)
    dispatcher = Dispatcher(sale, schedule, under_way_max=cell.buyers)
    dispatcher.start()
    readings = SegmentSampler(sale, seconds / READINGS)
    began = dispatcher.began
    begin, end = began + warm_up, began + warm_up + seconds
    _pass_until(begin, dispatcher, lambda: progress("sale", dispatcher.arrived, len(schedule)))
    cores = meter.read()
    _pass_until(end, dispatcher, lambda: progress("sale", dispatcher.arrived, len(schedule)))
    used = cores_between(cores, meter.read())
    drain_s = dispatcher.finish(assignment.drain)
    readings.stop()
    if not len(sale.recorder.asked):
        raise SegmentedError(f"{cell.cell_id}: no order arrived in {warm_up + seconds:g} s, so nothing is measured")
    return Measurement(
        began=began,
        window_begin=begin,
        window_end=end,
        drain_s=drain_s,
        cpu=used,
        work=work.work(),
        left_at=tuple(readings.at),
        left=tuple(readings.left),
        planned=len(schedule) * cell.batch,
        shed=len(dispatcher.shed_at) * cell.batch,
        shed_at=tuple(dispatcher.shed_at),
    )


def _pass_until(at: float, dispatcher: Dispatcher, tell: Callable[[], None]) -> None:
    while (left := at - time.monotonic()) > 0:
        if dispatcher.is_over and len(dispatcher.sale.recorder.failures) >= FAILED_MAX:
            return
        tell()
        gevent.sleep(min(PROGRESS_SECONDS, left))
