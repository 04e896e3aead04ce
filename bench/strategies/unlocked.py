"""Ways to sell from one plain counter in Redis without a lock: four without a script, and two with one.

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

A script of its own takes the units and records the order; the slow step comes after it. The record makes repeats
harmless. It lacks a hold that expires (the units of a buyer that dies in the slow step stay sold forever), a ledger,
segments, a fencing token, and mutual exclusion in the slow step. The same as a function of the server: the bodies of
both scripts are a library that is loaded once, when the sale opens, and called by name.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redis.exceptions import WatchError

from bench.sizing import oversold
from bench.strategies.base import WAIT_SECONDS, GaveUp, Refused
from bench.strategies.counted import CountedStrategy, noted
from segmented.errors import SegmentedError
from segmented.protocol.wire import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import redis

    from bench.strategies.base import Answer, Guarantees, StrategyContext, Verdict
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


TAKE: Final = """
-- KEYS     1 counter   2 hash: order id -> quantity
-- ARGV     1 order id   2 quantity
-- answers  units left if the order has its units, now or since before; below zero if not: -1 - units left
local left = tonumber(redis.call('GET', KEYS[1]))
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return left
end
if left < tonumber(ARGV[2]) then
  return -1 - left
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return redis.call('DECRBY', KEYS[1], ARGV[2])
"""

GIVE_BACK: Final = """
-- KEYS     1 counter   2 hash: order id -> quantity
-- ARGV     1 order id
-- answers  units that are free again; 0 if no such order has any
local quantity = redis.call('HGET', KEYS[2], ARGV[1])
if not quantity then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('INCRBY', KEYS[1], quantity)
return tonumber(quantity)
"""
BODIES: Final = {"take": TAKE, "give_back": GIVE_BACK}
"""By name, as a script and as a function have them."""


class OneScript(CountedStrategy):
    """Conditional decrement and record in one step."""

    name: ClassVar[str] = "one-script"
    summary: ClassVar[str] = (
        "one script of its own, with a record an order; the slow step after it, outside of any lock"
    )
    is_parallel: ClassVar[bool] = True
    guarantees: ClassVar[Guarantees] = replace(
        CountedStrategy.guarantees,
        never_oversells=True,
        one_effect_per_order=True,
        section="unlimited",
        after_a_crash="units of an order under way stay sold",
    )

    def __init__(self, context: StrategyContext) -> None:
        """Register the scripts."""
        super().__init__(context)
        self._scripts: dict[str, Any] = {
            name: self.client.register_script(f"#!lua{body}") for name, body in BODIES.items()
        }
        self._restocked = 0

    def open(self, sku: str, stock: int) -> None:
        """Set the counter."""
        super().open(sku, stock)
        self._restocked = 0

    def buy(self, order: Order) -> Answer:
        """Take the units, run the slow step, store the order if it commits."""
        left = self._perform("take", order.order_id, order.quantity)
        if left < 0:
            return Refused(self._stock + 1 + left, order.quantity)
        granted_at = time.monotonic()
        self.context.section.run()
        self._stored(order)
        return self.sold_at(granted_at, attempts=0)

    @classmethod
    def require_cancel(cls, *, commits: bool) -> None:
        """Raise InvalidInput if every order is also a row: this strategy does not delete rows."""
        if commits:
            super().require_cancel(commits=commits)

    @classmethod
    def require_restock(cls, *, commits: bool) -> None:
        """Allow restocks always."""
        del commits

    def cancel(self, order: Order) -> None:
        """Remove the order and add its units, atomically. Raises SegmentedError for an order without units."""
        if self._perform("give_back", order.order_id) != order.quantity:
            raise SegmentedError(f"order {order.order_id} has no {order.quantity} units to give back")

    def restock(self, units: int) -> None:
        """Add to the counter."""
        self.client.incrby(self.counters[0], units)
        self._restocked += units

    def judge(self, refusals: Sequence[Refused]) -> Verdict:
        """Count the recorded orders, and added units with the initial ones."""
        found = super().judge(refusals)
        over = oversold(found.sold, self._stock + self._restocked)
        is_stored = found.sold_in_sql is not None
        return replace(
            found,
            oversold_in_redis=found.oversold_in_redis if is_stored else over,
            oversold_in_sql=over if is_stored else 0,
        )

    def _perform(self, name: str, *args: str | int) -> int:
        """Run a body on the keys of the sale."""
        return int(self._scripts[name](keys=(self.counters[0], self._sold), args=args))

    def _noted(self) -> list[tuple[str, int]]:
        if self.context.section.commits:
            return super()._noted()
        found: Any = self.client.hgetall(self._sold)
        return [(text(order_id), int(quantity)) for order_id, quantity in found.items()]


class RedisFunction(OneScript):
    """The same in a library of functions."""

    name: ClassVar[str] = "redis-function"
    summary: ClassVar[str] = "one-script as a function: a library loaded once, called by FCALL"

    @property
    def library(self) -> str:
        """Name of the sale's library. Names of functions are unique on a server, so they contain it."""
        return re.sub(r"\W", "_", self._sku, flags=re.ASCII)

    def open(self, sku: str, stock: int) -> None:
        """Set the counter, and load the library."""
        super().open(sku, stock)
        functions = "".join(
            f"redis.register_function('{name}_{self.library}', function(KEYS, ARGV){body}end)\n"
            for name, body in BODIES.items()
        )
        self.client.function_load(f"#!lua name={self.library}\n{functions}", replace=True)

    def _perform(self, name: str, *args: str | int) -> int:
        return int(self.client.fcall(f"{name}_{self.library}", 2, self.counters[0], self._sold, *args))

    def clear(self) -> None:
        """Remove the keys and the rows, and the library if it is there."""
        super().clear()
        if self.client.function_list(self.library):
            self.client.function_delete(self.library)
