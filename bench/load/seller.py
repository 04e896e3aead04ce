"""Sells one process's share of a sale, and reports it. With one process the share is the whole sale."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import gevent

from bench.engine.arrivals import schedule_of
from bench.engine.open_loop import Dispatcher
from bench.engine.sale import Sale
from bench.load.delay import DelayMeter
from bench.load.plan import ORDERS_A_SHARE, connect_strategy
from bench.load.tally import Counter, Tally, Window, call_log_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.load.plan import ConnectedStrategy, Plan

    Fire = Callable[[str, float, Exception | None], None]
    """Called for each call with its name, milliseconds, and failure."""

POLL_SECONDS: Final = 0.05


class Shed(Exception):
    """The maximum number of orders was under way."""


class Failed(Exception):
    """An order had no answer."""


class Seller:
    """Sells a share of a sale."""

    def __init__(self, plan: Plan, share: int, fire: Fire, *, connected: ConnectedStrategy | None = None) -> None:
        """Join the plan's sale; with `connected`, use that strategy, which has opened the sale."""
        self.plan, self._fire = plan, fire
        cell = plan.share
        self._owned: ConnectedStrategy | None = None
        if connected is None:
            connected = self._owned = connect_strategy(plan, buyers=cell.buyers)
            connected.strategy.join(plan.sku, plan.stock)
        self.sale = Sale(cell, connected.strategy, numbered_from=share * ORDERS_A_SHARE)
        self.sale.after = self._fire_call
        self.is_open = cell.loop == "open"
        self.window = Window()
        self._counter = Counter(self.sale.recorder, is_open=self.is_open)
        self._cpu_before = time.process_time()
        self._delay = None if self.is_open else DelayMeter()
        self._dispatcher: Dispatcher | None = None
        self._planned = self._shed_fired = 0
        if self.is_open:
            schedule = schedule_of(cell, warm_up=plan.warm_up, seconds=plan.seconds, seed=plan.seed_of(share))
            self._planned = len(schedule) * cell.batch
            self._dispatcher = Dispatcher(self.sale, schedule.tolist(), under_way_max=cell.buyers)

    def start(self) -> None:
        """Start the arrivals; in a closed loop start the measured time, since all buyers have started."""
        began = time.monotonic()
        if self._dispatcher is not None:
            self._dispatcher.start()
            began = self._dispatcher.began
        self.window = Window(began + self.plan.warm_up, began + self.plan.warm_up + self.plan.seconds)

    @property
    def has_begun(self) -> bool:
        """Return whether the measured time is set."""
        return self.window.begin < float("inf")

    @property
    def is_over(self) -> bool:
        """Return whether all arrivals were handled; in a closed loop, whether time or stock has run out."""
        if self._dispatcher is not None:
            return self._dispatcher.is_over
        return self.sale.over.is_set() or time.monotonic() >= self.window.end

    def close(self) -> None:
        """Start no more orders, and wait for those under way."""
        self.window.end = min(self.window.end, time.monotonic())
        if self._dispatcher is not None:
            self._dispatcher.stop(self.plan.drain)
            return
        self.sale.is_closing = True
        until = time.monotonic() + self.plan.drain
        while self.sale.unfinished_count and time.monotonic() < until:
            gevent.sleep(POLL_SECONDS)

    def leave(self) -> None:
        """Close the connections."""
        if self._delay is not None:
            self._delay.stop()
        if self._owned is not None:
            self._owned.close()

    def tally(self) -> Tally:
        """Return the figures so far."""
        if not self.is_open and self.sale.sold_out_at is not None:
            self.window.end = min(self.window.end, self.sale.sold_out_at)
        shed = 0 if self._dispatcher is None else len(self._dispatcher.shed_at) * self.sale.cell.batch
        self._fire_shed(shed)
        now = time.monotonic()
        if self._delay is not None:
            self._counter.look_at_delay(self.window, self._delay.taken(), now=now)
        self._counter.tally.cpu_s = time.process_time() - self._cpu_before
        return self._counter.look(
            self.window,
            now=now,
            planned=self._planned if self.is_open else self.sale.order_count,
            sent=self.sale.order_count,
            shed=shed,
        )

    def call_log(self) -> dict[str, Any]:
        """Return the call log for the checker; unfinished orders count as failed."""
        return call_log_of(self.sale.recorder) | {"unfinished": self.sale.unfinished_count}

    def _fire_call(self, asked: float, done: float, *_: object) -> None:
        recorder = self.sale.recorder
        began = recorder.intended[-1] if self.is_open else asked
        failure = Failed(recorder.failures[-1]) if recorder.failed[-1] else None
        name = "Sold" if recorder.sold[-1] else "SoldOut" if recorder.sold_out[-1] else "Failed"
        self._fire(name, (done - began) * 1_000, failure)

    def _fire_shed(self, shed: int) -> None:
        while self._shed_fired < shed:
            self._shed_fired += self.sale.cell.batch
            self._fire("Shed", 0.0, Shed("as many orders as allowed were under way"))
