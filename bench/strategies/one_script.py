"""No lock and no library: its own script takes the units and records the order; the slow step comes after it.

The record of an order makes repeats harmless. It lacks a hold that expires (the units of a buyer that dies in the slow
step stay sold forever), a ledger, segments, a fencing token, and mutual exclusion in the slow step.

The same as a function of the server: the bodies of both scripts are a library that is loaded once, when the sale opens,
and called by name.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from bench.sizing import oversold
from bench.strategies.base import Refused
from bench.strategies.counted import CountedStrategy
from segmented.errors import SegmentedError
from segmented.protocol.wire import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.strategies.base import Answer, Guarantees, StrategyContext, Verdict
    from segmented.models import Order

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
