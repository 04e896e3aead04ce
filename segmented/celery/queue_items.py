"""Items of a queue on a Redis broker that are not messages: any program can write into the list.

Kombu reads an item and creates a message from it without a check, so an error ends the worker, and the item is gone.
The channel that reads here keeps such an item and continues.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from segmented.celery.messages import keep_unreadable
from segmented.errors.base import FOREIGN
from segmented.models import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READER: Final = "BRPOP"


class NotAMessage(ValueError):
    """An item that is JSON, but not a message."""

    def __init__(self, item: object, wrong: str) -> None:
        """Keep the item as text."""
        super().__init__(wrong)
        self.doc = json.dumps(item)
        """The item, under the name that JSONDecodeError has for it."""


def survive_foreign_items(channel: Any) -> None:  # noqa: ANN401  # kombu's, of any transport
    """Make a channel keep such items, if it reads a Redis list; other brokers deliver nothing but messages."""
    read = getattr(channel, "handlers", {}).get(READER)
    if read is None or isinstance(read, partial):  # or it was done before
        return
    channel.handlers[READER] = partial(_read_any, read)
    channel.Message = _checked(channel.Message, frozenset(channel.codecs))


def reuse_client(channel: Any) -> None:  # noqa: ANN401  # as above
    """Make a channel of a Redis broker reuse its client; it creates one for each message and each acknowledgement.

    That takes as long as both do. The client has no connection of its own: it takes one from the channel's pool.
    """
    make = getattr(channel, "conn_or_acquire", None)
    if make is None:
        return
    kept: Any = None

    @contextmanager
    def acquired(client: Any = None) -> Iterator[Any]:  # noqa: ANN401  # redis-py's
        nonlocal kept
        if client is None and (kept is None or kept.connection_pool is not channel.pool):
            with make() as kept:  # it closes nothing
                pass
        yield kept if client is None else client

    channel.conn_or_acquire = acquired


def _read_any(read: Callable[..., Any], **options: Any) -> Any:  # noqa: ANN401  # kombu's
    try:
        return read(**options)
    except FOREIGN as error:
        reason = f"it is not a message: {shortened(str(error) or type(error).__name__)}"
        text = getattr(error, "doc", getattr(error, "object", f"(unknown: {reason})"))  # what JSON or UTF-8 failed at
        keep_unreadable(text.decode(errors="replace") if isinstance(text, bytes) else text, reason)
        return True  # an item was read


def _checked(message_type: type[Any], codecs: frozenset[str]) -> type[Any]:
    """Return the channel's type of messages, preceded by the check."""

    class CheckedMessage(message_type):  # type: ignore[misc]  # known at run time only
        def __init__(self, item: Any, **options: Any) -> None:  # noqa: ANN401  # as JSON has it
            wrong = _fault_of(item, codecs)
            if wrong:
                raise NotAMessage(item, wrong)
            super().__init__(item, **options)

    return CheckedMessage


def _fault_of(item: Any, codecs: frozenset[str]) -> str:  # noqa: ANN401  # as JSON has it
    """Return what is missing or of a wrong type around the headers and the body, or an empty text."""
    properties = item.get("properties") if isinstance(item, dict) else None
    if not isinstance(properties, dict):
        return "it has no properties"
    if not (isinstance(item.get("headers"), dict) and isinstance(item.get("body"), str)):
        return "its headers must be an object and its body a text"
    tag, place = properties.get("delivery_tag"), properties.get("delivery_info")
    if not (isinstance(tag, str) and tag):
        return "its delivery tag must be a text"
    if not (isinstance(place, dict) and all(isinstance(place.get(one), str) for one in ("exchange", "routing_key"))):
        return "its delivery info must name an exchange and a routing key"
    encoding = properties.get("body_encoding")
    if not (encoding is None or (isinstance(encoding, str) and encoding in codecs)):
        return f"its body encoding {shortened(encoding)} is unknown"
    texts = [item.get(one) for one in ("content-type", "content-encoding")]
    texts += [properties.get(one) for one in ("reply_to", "correlation_id")]
    if not all(one is None or isinstance(one, str) for one in texts):
        return "its content type, content encoding, reply_to and correlation_id must be texts"
    priority = properties.get("priority")
    return "" if priority is None or type(priority) is int else f"its priority is {shortened(priority)}"
