"""Publishes submitted orders to the sale's workers, in envelopes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from amqp.exceptions import AccessRefused
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import AuthenticationError

from segmented.celery.celery_settings import celery_settings
from segmented.celery.messages import TASK, Envelope
from segmented.celery.publishing import BACKLOG_MAX, waiting
from segmented.errors import InvalidInput, StoreUnavailable
from segmented.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segmented.celery.settings import WorkerSettings

CONNECT_SECONDS: Final = 5
ORDERS_PER_TASK: Final = 250
"""Orders per message: its transaction is short, and a message's own cost is small beside that of its orders."""


class Publisher:
    """One connection to the broker."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Connect. Raises StoreUnavailable if no broker answers, InvalidInput for one that refuses the account."""
        self._where = masked(settings.broker_url)
        self._queue = settings.queue
        self._app = Celery("segmented-sell", set_as_current=False)
        self._app.conf.update(celery_settings(settings))
        try:
            self._connection = self._app.connection_for_write()
            self._connection.ensure_connection(max_retries=1, timeout=CONNECT_SECONDS)
            self._producer = self._app.amqp.Producer(self._connection)
        except KeyError as error:
            raise InvalidInput(f"{self._where} is not a broker that Celery knows") from error
        except Exception as error:  # each transport has its own errors
            message = f"no broker answers at {self._where}: {error}"
            is_refused = isinstance(error.__cause__, (AuthenticationError, AccessRefused))
            raise (InvalidInput if is_refused else StoreUnavailable)(message) from error
        self._errors: tuple[type[BaseException], ...] = (
            *(KombuError, OSError),
            *self._connection.connection_errors,
            *self._connection.channel_errors,
        )

    def send(self, sku: str, order_ids: Sequence[str]) -> None:
        """Publish before returning, in as many envelopes as needed. Raises StoreUnavailable; sent ones stay sent."""
        with self._translated():
            for first in range(0, len(order_ids), ORDERS_PER_TASK):
                body = Envelope(sku, tuple(order_ids[first : first + ORDERS_PER_TASK])).body()
                self._app.send_task(
                    TASK, (body,), producer=self._producer, queue=self._queue, argsrepr=sku, kwargsrepr=""
                )

    def room(self) -> int:
        """Return how many more envelopes the broker should get from the sweep. Raises StoreUnavailable."""
        return max(1, BACKLOG_MAX - waiting(self._app, TASK))

    def empty(self) -> None:
        """Delete the rest of the queue: repeats of decided orders, or orders that a second run publishes."""
        with self._translated():
            self._app.amqp.queues[self._queue](self._connection.default_channel).purge()

    def close(self) -> None:
        """Disconnect."""
        self._connection.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise StoreUnavailable(f"the broker at {self._where} did not answer: {error}") from error
