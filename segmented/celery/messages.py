"""The message with the ids of submitted orders. Publishers write it; workers validate and read it.

Messages that no worker can read are kept for `segmented orders dead`, instead of lost with a line in a log.

A worker sweeps and takes the submitted orders of pools that name its queue and its step, or name none. A pool of other
workers is left alone: its orders stay in its outbox, for their own sweep.

from segmented import Outbox, Pool, RedisStore
from segmented.celery import publisher

pool = Pool(RedisStore.from_url(...), "poster", outbox=Outbox(publisher()))
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from celery.exceptions import OperationalError as CeleryOperationalError
from kombu.exceptions import OperationalError

from segmented import protocol as op
from segmented.celery.apps import check_broker
from segmented.celery.settings import settings
from segmented.errors import InvalidInput, SegmentedError, StoreUnavailable
from segmented.events.traces import CURRENT
from segmented.models import ORDER_ID_BYTES_MAX, checked_id, checked_pool_name, shortened
from segmented.models.pools import Assignment
from segmented.models.shards import SHARD_MARK
from segmented.orders.verifying import when_verified
from segmented.stock import EnvelopePublisher
from segmented.stock.outbox import Sender, SweepReport, SweepTerms, sweep as sweep_outbox
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from celery import Celery

    from segmented.celery.settings import WorkerSettings
    from segmented.errors import AssignedElsewhere
    from segmented.models.submitted import SweepSuperseded, Swept
    from segmented.orders import Gate
    from segmented.protocol import SweepOutbox
    from segmented.stock import Pool


TASK: Final = "segmented.take_envelope"
VERSION: Final = 1
ORDERS_MAX: Final = 1_000
FIELDS: Final = frozenset({"v", "sku", "orders"})
TEXT_MAX: Final = 64 * 1024
"""Maximum number of characters of a message to keep; an envelope of a thousand orders has fewer."""
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


@dataclass(frozen=True, slots=True)
class Envelope:
    """Orders of one pool, or of one shard of a pool."""

    sku: str
    order_ids: tuple[str, ...]
    wrong: str = ""
    """Why some of its orders could not be read; the others go on."""

    def body(self) -> dict[str, Any]:
        """Return the message's argument, of plain types only."""
        return {"v": VERSION, "sku": self.sku, "orders": list(self.order_ids)}


def read_envelope(parts: Sequence[object], named: dict[str, object]) -> Envelope:
    """Read a message's arguments, without the orders whose ids cannot be.

    Raises InvalidInput, with one sentence, for anything that is not an envelope.
    """
    body: Any = parts[0] if len(parts) == 1 and not named else None
    if not isinstance(body, dict):
        message = f"a message of {TASK} has one argument, an object: this one has {shortened((list(parts), named))}"
        raise InvalidInput(message)
    version, orders = body.get("v"), body.get("orders")
    if type(version) is not int or version < 1:
        raise InvalidInput(f"the envelope has no version: {shortened(body)}")
    if version > VERSION:
        message = f"the envelope has version {version}, and this worker reads up to {VERSION}: upgrade workers first"
        raise InvalidInput(message)
    if body.keys() != FIELDS or not isinstance(orders, list):
        message = f"the envelope must have {', '.join(sorted(FIELDS))}, and orders in a list: {shortened(body)}"
        raise InvalidInput(message)
    if not 1 <= len(orders) <= ORDERS_MAX:
        raise InvalidInput(f"the envelope has {len(orders):,} orders: 1 to {ORDERS_MAX:,} are possible")
    sku = checked_pool_name(body["sku"])
    readable, wrong = [], ""
    for order_id in orders:
        try:
            readable.append(checked_id(order_id, "order id", bytes_max=ORDER_ID_BYTES_MAX))
        except InvalidInput as error:
            wrong = wrong or str(error)
    return Envelope(sku, tuple(readable), wrong)


def keep(store: RedisStore, text: str, reason: str, *, is_said: bool = False) -> None:
    """Keep a message once. If that fails, log it, which is then the only trace.

    If `is_said`, the caller has logged the reason, once for all messages like this.
    """
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
    if not is_said:
        log.error("a message cannot be read (%s); kept as %s", reason, digest)
    try:
        if not store.execute(op.KeepMessage(settings().queue, digest, reason, text[:TEXT_MAX])):
            log.error("message %s is not kept, because very many are: %s", digest, text[:1_000])
    except SegmentedError as error:
        log.error("message %s is not kept (%s): %s", digest, error, text[:1_000])  # noqa: TRY400  # said in words


def text_of(parts: object, named: object) -> str:
    """Return a task's arguments as text, as the message had them."""
    return json.dumps([parts, named], ensure_ascii=False, default=repr)


def text_of_message(message: Any) -> str:  # noqa: ANN401  # kombu's
    """Return a message's headers and body as text, without what changes when it is delivered again."""
    body = message.body
    found = {
        "headers": {name: value for name, value in message.headers.items() if name != "redelivered"},
        "content-type": message.content_type,
        "content-encoding": message.content_encoding,
        "body": bytes(body).decode(errors="replace") if isinstance(body, bytes | memoryview) else str(body),
    }
    try:
        return json.dumps(found, ensure_ascii=False, default=repr)
    except RecursionError:  # JSON reads headers that are nested more deeply than it can write
        return json.dumps({**found, "headers": "(nested too deeply to be kept)"}, ensure_ascii=False)


def keep_unreadable(text: str, reason: str) -> None:
    """Keep a message from the process that reads the queue, which has no connection to the stock in a prefork pool."""
    try:
        with RedisStore.from_url(settings().url.get_secret_value()) as store:
            keep(store, text, reason)
    except SegmentedError as error:
        log.error("a message cannot be read (%s), nor kept (%s): %s", reason, error, text[:1_000])  # noqa: TRY400  # said in words


def keep_unknown(name: str = "", message: Any = None, **_: object) -> None:  # noqa: ANN401  # kombu's
    """Keep a message for a task that this worker does not have."""
    keep_unreadable(text_of_message(message), f"there is no task {shortened(name)}")


def keep_rejected(message: Any = None, exc: BaseException | None = None, **_: object) -> None:  # noqa: ANN401  # kombu's
    """Keep a message that Celery cannot begin."""
    keep_unreadable(text_of_message(message), f"it cannot be decoded: {exc}")


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
