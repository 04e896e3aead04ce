"""Publishes envelopes through Celery: for the sweep, and for programs that submit orders.

from segmented import Outbox, Pool, RedisStore
from segmented.celery.publisher import publisher

pool = Pool(RedisStore.from_url(...), "poster", outbox=Outbox(publisher()))
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from celery.exceptions import OperationalError as CeleryOperationalError
from kombu.exceptions import OperationalError

from segmented.celery.app import app, settings
from segmented.celery.envelopes import TASK, Envelope
from segmented.errors import StoreUnavailable
from segmented.stock import EnvelopePublisher

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKLOG_MAX: Final = 50
"""Messages that may wait in the queue before the sweep adds no more than one at a time: what waits there is not lost,
and publishing it again would only make the queue longer."""
AWAY: Final = (OperationalError, CeleryOperationalError, OSError)


@cache
def publisher() -> EnvelopePublisher:
    """Return this process's publisher, with the broker and the queue of the settings."""
    app.amqp  # noqa: B018  # what is loaded late is loaded here: a fork while another thread does it leaves half a module
    app.connection_for_write().get_transport_cls()
    return EnvelopePublisher(send, room=room, envelope_max=settings.envelope_max)


def send(sku: str, order_ids: Sequence[str]) -> None:
    """Publish one envelope. Raises StoreUnavailable when the broker is away."""
    body = Envelope(sku, tuple(order_ids)).body()
    try:
        app.send_task(TASK, args=(body,), queue=settings.queue, ignore_result=True)
    except AWAY as error:
        message = f"the broker did not take a message: {error}"
        raise StoreUnavailable(message) from error


def room() -> int:
    """Return how many envelopes the queue has room for; 1 at least. Raises StoreUnavailable when the broker is away."""
    return max(1, BACKLOG_MAX - waiting(settings.queue))


def waiting(queue: str) -> int:
    """Return how many messages wait in a queue. Raises StoreUnavailable when the broker is away."""
    with app.connection_or_acquire() as connection:
        try:
            count = connection.default_channel.queue_declare(queue, passive=True).message_count
        except connection.channel_errors:  # on a Redis broker an empty queue is no queue
            return 0
        except (*AWAY, *connection.connection_errors) as error:
            message = f"the broker did not say how many messages wait: {error}"
            raise StoreUnavailable(message) from error
    return int(count or 0)
