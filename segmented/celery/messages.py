"""Messages that no worker can read are kept for `segmented orders dead`, instead of lost with a line in a log."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Final

from segmented import protocol as op
from segmented.celery.current import settings
from segmented.errors import SegmentedError
from segmented.stores.redis import RedisStore

TEXT_MAX: Final = 64 * 1024
"""Maximum number of characters of a message to keep; an envelope of a thousand orders has fewer."""
log = logging.getLogger(__name__)


def keep(store: RedisStore, text: str, reason: str) -> None:
    """Keep a message once. If that fails, log it, which is then the only trace."""
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
    log.error("a message cannot be read (%s); kept as %s", reason, digest)
    try:
        if not store.execute(op.KeepMessage(settings().queue, digest, reason, text[:TEXT_MAX])):
            log.error("message %s is not kept, because very many are: %s", digest, text[:1_000])
    except SegmentedError as error:
        log.error("message %s is not kept (%s): %s", digest, error, text[:1_000])  # noqa: TRY400  # said in words


def text_of(parts: object, named: object) -> str:
    """Return a task's arguments as text, as the message had them."""
    return json.dumps([parts, named], ensure_ascii=False, default=repr)


def keep_unknown(name: str = "", message: object = None, **_: object) -> None:
    """Keep a message for a task that this worker does not have."""
    _keep_from_parent(message, f"there is no task {name}")


def keep_rejected(message: object = None, exc: BaseException | None = None, **_: object) -> None:
    """Keep a message that Celery cannot decode."""
    _keep_from_parent(message, f"it cannot be decoded: {exc}")


def _keep_from_parent(message: object, reason: str) -> None:
    """Keep it through a separate connection: the parent of a prefork pool has no other."""
    body = getattr(message, "body", "")
    text = bytes(body).decode(errors="replace") if isinstance(body, bytes | memoryview) else str(body)
    try:
        with RedisStore.from_url(settings().url.get_secret_value()) as store:
            keep(store, text, reason)
    except SegmentedError as error:
        log.error("a message cannot be read (%s), nor kept (%s): %s", reason, error, text[:1_000])  # noqa: TRY400  # said in words
