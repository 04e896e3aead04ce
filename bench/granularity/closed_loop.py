"""The closed loop: Locust users who order again at once. It measures capacity, and says nothing of what users feel.

Importing Locust patches sockets, sleeping and locks for gevent, so a process that imports this module must do so before
it connects to anything. A user's one task is all of its orders: Locust's own work between two tasks would otherwise be
part of what is measured.
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
        """Take one order after the other to its end."""
        number = next(self.numbers)
        while not self.sale.is_closing:
            self.sale.call(number)
        raise StopUser


class LoadGenerator:
    """A number of buyers at one sale, all started at once."""

    def __init__(self, sale: Sale, buyers: int, *, drain: float) -> None:
        """Start them. `drain`: seconds for them to finish when they are stopped."""
        self.sale = sale
        buyer = type("SaleBuyer", (Buyer,), {"sale": sale, "numbers": itertools.count()})
        self._drain = drain
        self._runner = Environment(user_classes=[buyer]).create_local_runner()
        self.began = time.monotonic()
        self._runner.start(buyers, spawn_rate=buyers)

    def stop(self) -> float:
        """Let every buyer finish the order at hand; returns the seconds it took.

        They leave by themselves: Locust's own stop would kill a user in the middle of an order.
        """
        began = time.monotonic()
        self.sale.is_closing = True
        self._runner.user_greenlets.join(self._drain)
        took = time.monotonic() - began
        self._runner.quit()
        return took
