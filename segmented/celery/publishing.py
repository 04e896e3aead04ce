"""Publishes envelopes through Celery: for the sweep, and for programs that submit orders.

A worker sweeps and takes the submitted orders of pools that name its queue and its step, or name none. A pool of other
workers is left alone: its orders stay in its outbox, for their own sweep.

from segmented import Outbox, Pool, RedisStore
from segmented.celery import publisher

pool = Pool(RedisStore.from_url(...), "poster", outbox=Outbox(publisher()))
"""

from __future__ import annotations

import atexit
import logging
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from celery.exceptions import OperationalError as CeleryOperationalError
from kombu.exceptions import OperationalError

from segmented import protocol as op
from segmented.celery.apps import check_broker
from segmented.celery.current import settings
from segmented.celery.messages import TASK, Envelope
from segmented.errors import StoreUnavailable
from segmented.events.traces import CURRENT
from segmented.models.pools import Assignment
from segmented.models.shards import SHARD_MARK
from segmented.orders.verifying import when_verified
from segmented.stock import EnvelopePublisher
from segmented.stock.outbox import Sender, SweepReport, SweepTerms, sweep as sweep_outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

    from segmented.celery.settings import WorkerSettings
    from segmented.errors import AssignedElsewhere
    from segmented.models.submitted import SweepSuperseded, Swept
    from segmented.orders import Gate
    from segmented.protocol import SweepOutbox
    from segmented.stock import Pool

log = logging.getLogger(__name__)
BACKLOG_MAX: Final = 50
"""Queue length from which the sweep adds only one message at a time: waiting messages are not lost, and publishing them
again would only make the queue longer."""
SAID_MAX: Final = 10_000
APPS_MAX: Final = 16
_said: Final[set[tuple[str, str, str]]] = set()
AWAY: Final = (OperationalError, CeleryOperationalError, OSError)
RETRY_MOST: Final = 12
"""The time until an order is published again doubles, up to this many times the first."""


@cache
def publisher(app: Celery | None = None) -> EnvelopePublisher:
    """Return this process's publisher through an app with the library's tasks, by default `segmented.celery.app`.

    The app's own routes choose the queue of the messages. Messages that wait at the program's end are sent then.
    Raises InvalidInput if the app's broker is on the server of the stock.
    """
    if app is None:
        from segmented.celery.app import app as own  # noqa: PLC0415  # importing it reads the environment

        return publisher(own)
    check_broker(app.conf)
    app.amqp  # noqa: B018  # load now: a fork during another thread's import leaves half
    app.connection_for_write().get_transport_cls()

    def send(sku: str, order_ids: Sequence[str]) -> None:
        body = Envelope(sku, tuple(order_ids)).body()
        try:
            headers = CURRENT.traces.headers(sku, order_ids)
            app.send_task(TASK, args=(body,), ignore_result=True, headers=headers)
        except AWAY as error:
            raise StoreUnavailable(f"the broker did not take a message: {error}") from error

    def room() -> int:
        return max(1, BACKLOG_MAX - waiting(app, TASK))

    made = EnvelopePublisher(send, room=room, envelope_max=settings().envelope_max)
    atexit.register(made.close)  # messages of a program that submits and ends at once are sent
    return made


def queue_of(app: Celery, task: str) -> str:
    """Return the name of the queue that the app sends a task's messages to.

    If a route is a function that fails without a message to read, the app's default queue.
    """
    try:
        return str(app.amqp.router.route({}, task)["queue"].name)
    except Exception:  # noqa: BLE001  # of a function of the app
        return str(app.conf.task_default_queue)


def waiting(app: Celery, task: str) -> int:
    """Return how many messages wait in a task's queue. Raises StoreUnavailable when the broker is away."""
    queue = queue_of(app, task)
    with app.connection_or_acquire() as connection:
        try:
            count = connection.default_channel.queue_declare(queue, passive=True).message_count
        except connection.channel_errors:  # on a Redis broker an empty queue does not exist
            return 0
        except (*AWAY, *connection.connection_errors) as error:
            raise StoreUnavailable(f"the broker did not say how many messages wait: {error}") from error
    return int(count or 0)


def assignment_of(app: Celery) -> Assignment:
    """Return the queue that the app sends orders to, and the step of this worker."""
    return _assignment(app, settings().step)


@lru_cache(APPS_MAX)
def _assignment(app: Celery, step: str | None) -> Assignment:
    """Return the same, remembered: each message asks, and the routes of a running app do not change."""
    return Assignment(queue_of(app, TASK), step)


def refuse(error: AssignedElsewhere) -> None:
    """Log that a pool's orders are left to other workers: once for each pool, and again after a change of its names."""
    pool = (error.sku.partition(SHARD_MARK)[0], error.queue, error.step)
    if pool in _said:
        return
    if len(_said) >= SAID_MAX:
        _said.clear()
    _said.add(pool)
    log.error("%s", error)


def sweep_pool(
    pool: Pool,
    gate: Gate,
    sender: Sender,
    settings: WorkerSettings,
    *,
    assignment: Assignment,
    fencing_token: int | None = None,
) -> SweepReport:
    """Publish a pool's due orders again; a gated pool is first compared with its order database.

    Raises AssignedElsewhere for a pool that leaves its orders to workers of another `assignment`, before anything else,
    and what `when_verified` raises: PoolFrozen, PoolUnverified, DatabaseUnavailable, StoreUnavailable.
    """
    pool.store.execute(op.CheckAssignment(pool.sku, assignment))

    def execute(operation: SweepOutbox) -> Swept | SweepSuperseded:
        return when_verified(pool, gate, lambda: pool.store.execute(operation))

    terms = SweepTerms(
        base=settings.publish_after,
        most=RETRY_MOST * settings.publish_after,
        hold=settings.hold,
        begun_max=settings.attempts_max,
        assignment=assignment,
    )
    return sweep_outbox(execute, pool.sku, sender, terms=terms, fencing_token=fencing_token)
