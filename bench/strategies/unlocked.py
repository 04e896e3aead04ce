"""Four ways to sell from one plain counter in Redis without a lock and without a script.

No lock, the control: read the counter, run the slow step, write the counter back. In between all buyers sell the same
unit. It bypasses the gate and records its orders in its own list or table, because the gate would refuse oversold
orders.

Take first and check afterwards: DECRBY, and INCRBY to give back if the counter went below zero. Its fault: between the
two commands a smaller order finds a counter below zero although units are free for it, and is refused. If all orders
have the same quantity and none is cancelled, refusals are right: then no unit is free at the first refusal or later.

Optimistic: WATCH the counter, read it, run the slow step, and write it back only if it is unchanged. The first buyer to
finish wins, and all others start again, including the slow step. So an order takes about as many attempts as there are
buyers. If the critical section commits, the order is stored after EXEC has succeeded: a commit could not be taken back
if EXEC failed. The same with the slow step after EXEC, as take first and check afterwards has it: fewer buyers are
between reading and writing, and no slow step is done again, but units are taken before it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from redis.exceptions import WatchError

from bench.strategies.base import WAIT_SECONDS, GaveUp, Refused
from bench.strategies.counted import CountedStrategy, noted
from segmented.protocol.wire import text

if TYPE_CHECKING:
    import redis

    from bench.strategies.base import Answer, Guarantees
    from segmented.models import Order

TRIES_MAX: Final = 10_000
"""Maximum number of conflicts before a buyer gives up."""


class NoLock(CountedStrategy):
    """Read, think, write. Its bound is that of a correct read-modify-write, with one order at a time."""

    name: ClassVar[str] = "no-lock"
    summary: ClassVar[str] = "read, think, write: the control, which must oversell"
    is_control: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees, section="unlimited", after_a_crash="what was read and not written is lost"
    )

    def buy(self, order: Order) -> Answer:
        """Read, run the slow step, store the order and commit, write."""
        available = self._read()
        if available < order.quantity:
            return self.refusal(order)
        self._taken += order.quantity
        granted_at = time.monotonic()
        self.context.section.run()
        self._write(order, 0, available - order.quantity)
        return self.sold_at(granted_at, attempts=0)


class DecrCompensate(CountedStrategy):
    """Two commands, without a script."""

    name: ClassVar[str] = "decr-compensate"
    summary: ClassVar[str] = "DECRBY, and INCRBY back when it went below zero; the slow step outside of any lock"
    is_parallel: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees,
        never_oversells=True,
        sold_out_is_exact=False,
        section="unlimited",
        after_a_crash="units of an order under way stay sold, or the counter stays below zero",
    )

    def buy(self, order: Order) -> Answer:
        """Take units and give them back if they were too many; else run the slow step and record the order."""
        self._taken += order.quantity
        if int(self.client.decrby(self.counters[0], order.quantity)) < 0:
            self._taken -= order.quantity
            refused = Refused(self._taken, order.quantity)
            self.client.incrby(self.counters[0], order.quantity)
            return refused
        granted_at = time.monotonic()
        self.context.section.run()
        if not self._stored(order):
            self.client.rpush(self._sold, noted(order))
        return self.sold_at(granted_at, attempts=0)


class WatchMulti(CountedStrategy):
    """Retries."""

    name: ClassVar[str] = "watch-multi"
    summary: ClassVar[str] = "WATCH, read, the slow step, MULTI; again from the start if another was faster"
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees,
        never_oversells=True,
        section="unlimited",
        after_a_crash="nothing was taken before EXEC; after it, units of an order that was not stored stay sold",
    )

    def buy(self, order: Order) -> Answer:
        """Retry until no other buyer was faster."""
        until = time.monotonic() + WAIT_SECONDS
        with self.client.pipeline(transaction=True) as pipe:
            for attempts in range(1, TRIES_MAX + 1):
                try:
                    found = self._try(pipe, order)
                except WatchError:
                    if time.monotonic() >= until:
                        return GaveUp(f"{attempts} conflicts in {WAIT_SECONDS:g} s")
                    continue
                if isinstance(found, Refused):
                    return found
                return self.sold_at(found, attempts=attempts)
        return GaveUp(f"{TRIES_MAX:,} conflicts")

    is_short: ClassVar[bool] = False
    """Whether the slow step comes after EXEC."""

    def _try(self, pipe: redis.client.Pipeline, order: Order) -> float | Refused:
        pipe.watch(self.counters[0])
        left = int(text(pipe.get(self.counters[0])))
        if left < order.quantity:
            pipe.unwatch()
            return Refused(self._stock - left, order.quantity)
        granted_at = time.monotonic()
        if not self.is_short:
            self.context.section.run()
        pipe.multi()
        pipe.set(self.counters[0], left - order.quantity)
        if not self.context.section.commits:
            pipe.rpush(self._sold, noted(order))
        pipe.execute()
        if self.is_short:
            granted_at = time.monotonic()
            self.context.section.run()
        self._stored(order)
        return granted_at


class WatchMultiShort(WatchMulti):
    """Retries only what reads and writes."""

    name: ClassVar[str] = "watch-multi-short"
    summary: ClassVar[str] = "WATCH, read, MULTI, and only then the slow step, outside of any lock"
    is_short: ClassVar[bool] = True
    is_parallel: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        WatchMulti.guarantees, after_a_crash="units of an order under way stay sold, its order may be missing"
    )
