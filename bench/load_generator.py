"""The buyers: Locust users that order one unit after the other until they are stopped.

Locust is used as a library. Importing it patches sockets, sleeping and locks for gevent, so a process that imports this
module must do so before it connects to anything.
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
    """Orders one unit, again and again, without a pause: a closed loop, which measures capacity."""

    abstract = True
    sale: ClassVar[Sale]

    @task
    def buy(self) -> None:
        """Take one order to its end and tell Locust."""
        sale = self.sale
        if sale.is_closing:
            raise StopUser
        order = sale.next_order()
        failure: Exception | None = None
        asked_at = time.monotonic()
        try:
            answer = sale.strategy.buy(order)
        except Exception as error:  # noqa: BLE001  # Locust would swallow it; here it voids the run
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
    """A number of buyers at one sale."""

    def __init__(self, sale: Sale, buyers: int, *, drain: float) -> None:
        """Start them all at once. `drain`: seconds for them to finish when they are stopped."""
        self.sale = sale
        buyer = type("SaleBuyer", (Buyer,), {"sale": sale})
        self._drain = drain
        self._environment = Environment(user_classes=[buyer])
        self._runner = self._environment.create_local_runner()
        self.started_at = time.monotonic()
        self._runner.start(buyers, spawn_rate=buyers)

    def stop(self) -> None:
        """Let every buyer finish the order at hand.

        They leave by themselves: Locust's own stop kills a user between two tasks, and with no pause between them the
        kill may arrive when the next order has begun, which would leave its units held.
        """
        self.sale.is_closing = True
        self._runner.user_greenlets.join(self._drain)
        self._runner.quit()
