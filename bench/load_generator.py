"""A closed-loop load generator: Locust users that order one unit after another until they are stopped.

Locust is used as a library. Importing it patches sockets, sleeping and locks for gevent, so a process must import this
module before it connects to anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, Final

from locust import User, task
from locust.env import Environment
from locust.exception import StopUser

if TYPE_CHECKING:
    from bench.sale import Sale

REQUEST_TYPE: Final = "order"


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
