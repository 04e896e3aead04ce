"""The message with the ids of submitted orders. Publishers write it; workers validate and read it.

Messages that no worker can read are kept for `segmented orders dead`, instead of lost with a line in a log.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from segmented import protocol as op
from segmented.celery.current import settings
from segmented.errors import InvalidInput, SegmentedError
from segmented.models import ORDER_ID_BYTES_MAX, checked_id, checked_pool_name, shortened
from segmented.stores.redis import RedisStore

TASK: Final = "segmented.take_envelope"
VERSION: Final = 1
ORDERS_MAX: Final = 1_000
FIELDS: Final = frozenset({"v", "sku", "orders"})
TEXT_MAX: Final = 64 * 1024
"""Maximum number of characters of a message to keep; an envelope of a thousand orders has fewer."""
log = logging.getLogger(__name__)


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
