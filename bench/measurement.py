"""One measurement: a calibration sale that does not count, then a sale to the last unit.

The rules are fixed beforehand. In the calibration sale a lone buyer orders from a separate pool, for ten holds and
for at least 1.5 s. Its mean hold gives the bound and the stock, so neither depends on the run that they judge. The
first tenth (up to 1 s) of the measured sale is left out. The window ends with the first refusal, or at the time
limit. Buyers continue for a second after that, so that there are refusals to check.

The closed-loop load generator has Locust users that order one unit after another until they are stopped. Locust is used
as a library. Importing it patches sockets, sleeping and locks for gevent, so a process must import this module before
it connects to anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final, cast

from locust import User, task
from locust.env import Environment
from locust.exception import StopUser

from bench import sizing
from bench.cpu import CpuMeter
from bench.sale import Sale, Window, summarise
from segmented.errors import SegmentedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from bench.assignment import Assignment
    from bench.record import RunRecord
    from bench.strategies.base import Strategy

    Progress = Callable[[str, int, int], None]
    """Called with the phase, how much of it is done, and the total."""

PROGRESS_SECONDS: Final = 0.2
REFUSALS_SECONDS: Final = 1.0
CALIBRATION_STOCK: Final = 1_000_000
REQUEST_TYPE: Final = "order"


def measure(assignment: Assignment, strategy: Strategy, progress: Progress) -> RunRecord:
    """Measure a strategy once."""
    alone = calibrate(assignment, strategy, progress)
    stock = sizing.stock_for(sizing.bound_per_s(strategy.lanes, alone), assignment.seconds)
    sale, window = sell_out(assignment, strategy, stock, progress)
    progress("verdict", 0, 1)
    verdict = strategy.judge(sale.refusals)
    record = summarise(assignment, strategy, stock, sale, window, verdict, alone=alone)
    strategy.clear()
    return record


def calibrate(assignment: Assignment, strategy: Strategy, progress: Progress) -> float:
    """Let a lone buyer order from a separate pool for a while, and return its mean hold in seconds."""
    seconds = sizing.calibration(assignment.extra_hold)
    progress("calibration", 0, 1)
    strategy.open(f"{assignment.sku}-calibration", CALIBRATION_STOCK)
    sale = Sale(strategy)
    generator = LoadGenerator(sale, 1, drain=assignment.drain)
    sale.over.wait(seconds)
    generator.stop()
    if sale.failures or not sale.sold or sale.unfinished_count:
        reason = next(iter(sale.failures), f"{len(sale.sold)} orders were sold, {sale.unfinished_count} cut short")
        message = f"{strategy.name} could not be calibrated in {seconds:g} s: {reason}"
        raise SegmentedError(message)
    hold = strategy.mean_hold(0.0)
    strategy.clear()
    return hold


def sell_out(assignment: Assignment, strategy: Strategy, stock: int, progress: Progress) -> tuple[Sale, Window]:
    """Sell to the last unit and a second longer, and measure the CPU use in the window."""
    meter = CpuMeter(cast("redis.Redis", strategy.context.store.client), strategy.context.engine)
    strategy.open(assignment.sku, stock)
    sale = Sale(strategy)
    generator = LoadGenerator(sale, assignment.buyers, drain=assignment.drain)
    sale.over.wait(sizing.warm_up(assignment.seconds))
    before, begin = meter.read(), time.monotonic()
    limit = generator.started_at + sizing.time_limit(assignment.seconds)
    while not sale.over.wait(PROGRESS_SECONDS) and time.monotonic() < limit:
        progress("sale", min(len(sale.sold), stock), stock)
    window = Window(begin, sale.sold_out_at or time.monotonic(), meter.read().since(before))
    progress("sale", stock, stock)
    if sale.sold_out_at is not None:
        time.sleep(REFUSALS_SECONDS)
    generator.stop()
    if window.seconds <= 0 or not any(window.begin <= order[2] <= window.end for order in sale.sold):
        reason = sale.failures[0] if sale.failures else f"a stock of {stock} was gone at once"
        message = f"{strategy.name}: nothing was sold after the warm-up, so there is nothing to measure: {reason}"
        raise SegmentedError(message)
    return sale, window


class Buyer(User):
    """Orders one unit at a time, repeatedly and without a pause: a closed loop, which measures capacity."""

    abstract = True
    sale: ClassVar[Sale]

    @task
    def buy(self) -> None:
        """Process one order and report it to Locust."""
        sale = self.sale
        if sale.is_closing:
            raise StopUser
        order = sale.next_order()
        failure: Exception | None = None
        asked_at = time.monotonic()
        try:
            answer = sale.strategy.buy(order)
        except Exception as error:  # noqa: BLE001  # Locust would swallow the error; here it voids the run
            failure = error
            done_at = time.monotonic()
            sale.note_failure(error)
            name = "failed"
        else:
            done_at = time.monotonic()
            sale.note(answer, asked_at, done_at)
            name = type(answer).__name__
        self.environment.events.request.fire(
            request_type=REQUEST_TYPE,
            name=name,
            response_time=(done_at - asked_at) * 1_000,
            response_length=0,
            exception=failure,
            context={},
        )


class LoadGenerator:
    """Runs a number of buyers of one sale."""

    def __init__(self, sale: Sale, buyers: int, *, drain: float) -> None:
        """Start all buyers at once. `drain`: seconds for them to finish when they are stopped."""
        self.sale = sale
        buyer = type("SaleBuyer", (Buyer,), {"sale": sale})
        self._drain = drain
        self._environment = Environment(user_classes=[buyer])
        self._runner = self._environment.create_local_runner()
        self.started_at = time.monotonic()
        self._runner.start(buyers, spawn_rate=buyers)

    def stop(self) -> None:
        """Let every buyer finish its current order.

        Buyers stop by themselves: Locust's own stop kills a user between two tasks. With no pause between tasks the
        kill may arrive when the next order has begun, which would leave its units reserved.
        """
        self.sale.is_closing = True
        self._runner.user_greenlets.join(self._drain)
        self._runner.quit()
