"""The measurement of a run: a sale to the last unit, and a part of it that counts. The rules are fixed beforehand.

Closed loop: the stock lasts for the planned seconds by a calibration of the cell, made once a session and not counted.
The warm-up is left out; the window ends with the first refusal or at the time limit; buyers go on for a quarter of a
second after that, so that there are refusals to check. Where the plan fixes the stock, the sale may be shorter than any
warm-up, and counts from its first order to the last that was sold.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import gevent

from bench.granularity.cases import is_whole, whole_sale
from bench.granularity.closed_loop import LoadGenerator
from bench.granularity.meters import Meter, WorkMeter, cores_between
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.granularity.assignment import RunAssignment
    from bench.granularity.record import Cpu, Work
    from bench.granularity.sale import Sale

    Progress = Callable[[str, int, int], None]

PROGRESS_SECONDS: Final = 0.2
REFUSALS_SECONDS: Final = 0.25
WORK_SHARE: Final = 0.75
"""Of the planned seconds, to which work is counted: before the stock is gone, and refusals cost what orders do."""
READINGS: Final = 40
"""Of units left by segment, over the planned seconds."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """How a sale went. Local seconds."""

    began: float
    window_begin: float
    window_end: float
    drain_s: float
    cpu: Cpu
    work: Work
    left_at: tuple[float, ...]
    left: tuple[tuple[int, ...], ...]
    planned: int
    """Orders that were meant to be sent."""
    shed: int = 0
    """Orders that were never sent."""
    shed_at: tuple[float, ...] = ()
    """Intended times of the calls that were never sent."""

    @property
    def window_s(self) -> float:
        """How long the measured part is."""
        return self.window_end - self.window_begin


class SegmentSampler:
    """Reads units left by segment now and then, in a greenlet of its own."""

    def __init__(self, sale: Sale, every: float) -> None:
        """Begin, where there is more than one segment."""
        self.at: list[float] = []
        self.left: list[tuple[int, ...]] = []
        self._greenlet = gevent.spawn(self._read, sale, every) if sale.strategy.segments > 1 else None

    def _read(self, sale: Sale, every: float) -> None:
        while not sale.is_closing:
            found = sale.strategy.free_by_segment()
            if not found:
                return
            self.at.append(time.monotonic())
            self.left.append(found)
            gevent.sleep(every)

    def stop(self) -> None:
        """Read no more."""
        if self._greenlet is not None:
            self._greenlet.kill()


def run_closed(assignment: RunAssignment, sale: Sale, client: redis.Redis, progress: Progress) -> Measurement:
    """Sell out with buyers who order again at once."""
    meter = Meter(client, sale.strategy.context.engine)
    work = WorkMeter(client, sale.recorder)
    generator = LoadGenerator(sale, assignment.cell.buyers, drain=assignment.drain)
    readings = SegmentSampler(sale, assignment.seconds / READINGS)
    is_all = is_whole(assignment.cell)
    if not is_all:
        sale.over.wait(assignment.warm_up)
        work.begin()
    cores = meter.read()
    begin = generator.began + assignment.warm_up  # as planned, however late a busy machine woke us
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
        used = cores_between(cores, meter.read())  # such a sale may last a few milliseconds
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
