"""The closed loop: Locust users that order again at once. It measures capacity, not the latency that users experience.

Importing Locust patches sockets, sleeping and locks for gevent, so a process must import this module before it connects
to anything. A user processes all its orders in one task: otherwise the measurement would include Locust's own work
between two tasks.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, ClassVar

from locust import User, task
from locust.env import Environment
from locust.exception import StopUser

if TYPE_CHECKING:
    from bench.granularity.sale import Sale


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
