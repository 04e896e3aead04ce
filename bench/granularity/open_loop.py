"""The open loop: arrivals come by a schedule, whatever becomes of those before them. It measures what users feel.

A dispatcher starts one greenlet an arrival, at its intended time. As many as `cell.buyers` may be under way; an arrival
that finds them all under way is shed: it is never sent, and counts as a failure. Latency is measured from the
intended time, so a dispatcher that was late makes it worse, not better; how late it was is recorded beside it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import gevent
import locust  # noqa: F401  # before anything connects: it patches sockets, sleeping and locks for gevent
from gevent.pool import Group

from bench.alarm import Alarm
from bench.granularity.arrivals import schedule_of
from bench.granularity.measurement import PROGRESS_SECONDS, READINGS, Measurement, SegmentSampler
from bench.granularity.meters import Meter, WorkMeter, cores_between
from bench.granularity.sale import FAILED_MAX
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import redis

    from bench.granularity.assignment import RunAssignment
    from bench.granularity.sale import Sale

    Progress = Callable[[str, int, int], None]

START_SECONDS: Final = 0.02
"""Before the first arrival can be due: the dispatcher's own start is nobody's lateness."""


class Dispatcher:
    """Starts a call for each arrival of a schedule: seconds from `began`, ascending."""

    def __init__(self, sale: Sale, schedule: Sequence[float], *, under_way_max: int) -> None:
        """Start nothing yet."""
        self.sale = sale
        self.began = time.monotonic() + START_SECONDS
        self.shed_at: list[float] = []
        """Intended local seconds of the arrivals that were never sent."""
        self.arrived = 0
        self._schedule = schedule
        self._free = list(range(under_way_max))
        self._calls = Group()
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def start(self) -> None:
        """Begin; the times count from now."""
        self.began = time.monotonic() + START_SECONDS
        self._greenlet = gevent.spawn(self._dispatch)

    @property
    def is_over(self) -> bool:
        """Has every arrival had its turn, or was the sale given up?"""
        return self._greenlet is None or self._greenlet.dead

    @property
    def under_way(self) -> int:
        """How many calls are."""
        return len(self._calls)

    def finish(self, drain: float) -> float:
        """Give every arrival its turn, all being due, and stop; returns as `stop` does.

        A dispatcher that lags has some left at the end. They are sent late, with the latency that this is, and those
        that get no turn at all count as shed: an order that nobody sent must not vanish from the counts.
        """
        if self._greenlet is not None:
            self._greenlet.join(drain)
        took = self.stop(drain)
        self.shed_at += [self.began + after for after in self._schedule[self.arrived :]]
        return took

    def stop(self, drain: float) -> float:
        """Start no further call, wait for those under way; returns the seconds it took. What lasts longer is cut."""
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
    """Let the orders of the schedule arrive. Whether the stock ends before that is the plan's business."""
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
