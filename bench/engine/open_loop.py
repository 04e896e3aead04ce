"""The open loop: arrivals follow a schedule, whatever happens to earlier ones. It measures what users experience.

A dispatcher starts one greenlet per arrival at its intended time. Up to `cell.buyers` calls may be under way; an
arrival beyond that is shed: it is never sent, and counts as a failure. Latency is measured from the intended time, so
a late dispatcher makes it worse, not better; the lateness is recorded too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import gevent
import locust  # noqa: F401  # before anything connects: it patches sockets, sleeping and locks for gevent
from gevent.pool import Group

from bench.engine.arrivals import schedule_of
from bench.engine.measurement import PROGRESS_SECONDS, READINGS, Measurement, SegmentSampler
from bench.engine.meters import Meter, WorkMeter, cores_between
from bench.engine.sale import FAILED_MAX
from bench.sections import Alarm
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from bench.display import Progress
    from bench.engine.cell import RunAssignment
    from bench.engine.sale import Sale

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

    @property
    def under_way(self) -> int:
        """Number of calls under way."""
        return len(self._calls)

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
        with Alarm() as alarm:
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
    meter = Meter(client, sale.strategy.context.engine)
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
        message = f"{cell.cell_id}: no order arrived in {warm_up + seconds:g} s, so nothing is measured"
        raise SegmentedError(message)
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
