"""Publishes orders as Celery tasks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from celery import Celery
from kombu.exceptions import KombuError

from segmented.celery.celery_settings import celery_settings
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.celery.selling.orders_file import FileOrder
    from segmented.celery.settings import WorkerSettings
    from segmented.models import Order

TASK: Final = "segmented.take_orders"
CONNECT_SECONDS: Final = 5
ORDERS_PER_TASK: Final = 10
"""Orders per message. A message costs as much as an order; ten per message make that small, and repeat little after a
kill."""


class Publisher:
    """One connection to the broker, which sends several orders per message."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Connect. Raises InvalidInput if no broker answers."""
        self._where = masked(settings.broker_url)
        self._queue = settings.queue
        self._app = Celery("segmented-sell", set_as_current=False)
        self._app.conf.update(celery_settings(settings))
        try:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
            self._producer = self._app.amqp.Producer(self._connection)
        except KeyError as error:
            message = f"{self._where} is not a broker that Celery knows"
            raise InvalidInput(message) from error
        except Exception as error:  # each transport has its own errors
            message = f"no broker answers at {self._where}: {error}"
            raise InvalidInput(message) from error
        self._errors: tuple[type[BaseException], ...] = (
            *(KombuError, OSError),
            *self._connection.connection_errors,
            *self._connection.channel_errors,
        )

    def publish(self, lines: Iterable[FileOrder]) -> None:
        """Send tasks. Raises StoreUnavailable; tasks that were already sent stay sent."""
        by_sku: dict[str, list[Order]] = {}
        for line in lines:
            by_sku.setdefault(line.sku, []).append(line.order)
        with self._translated():
            for sku, orders in by_sku.items():
                for first in range(0, len(orders), ORDERS_PER_TASK):
                    self._send(sku, orders[first : first + ORDERS_PER_TASK])

    def _send(self, sku: str, orders: list[Order]) -> None:
        content = [(order.order_id, order.quantity, order.customer_id) for order in orders]
        self._app.send_task(
            TASK, (sku, content), producer=self._producer, queue=self._queue, argsrepr=sku, kwargsrepr=""
        )

    def empty(self) -> None:
        """Delete the rest of the queue: repeats of decided orders, or orders that a second run publishes."""
        with self._translated():
            self._app.amqp.queues[self._queue](self._connection.default_channel).purge()

    def close(self) -> None:
        """Disconnect."""
        self._connection.release()

    def __enter__(self) -> Self:
        """Return the publisher."""
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        self.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            message = f"the broker at {self._where} did not answer: {error}"
            raise StoreUnavailable(message) from error
