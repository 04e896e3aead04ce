"""The header of a message: its record, its due time and its expiry; and the text that publishes it again.

A message without a record is from a foreign publisher.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from json import JSONEncoder
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from celery import Signature
from kombu.utils import json

from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from celery import Celery

HEADER: Final = "segmented_once"
ENCODE: Final = JSONEncoder().encode
OF_THIS_PROCESS: Final = {"connection", "countdown", "producer", "publisher", "router"}
"""Options of `apply_async` that mean nothing in another process, or later."""


@dataclass(frozen=True, slots=True)
class OnceHeader:
    """The header of one message."""

    message: str
    """Its task id. A header that was copied to another message does not apply to that one."""
    key: str
    payload_print: str
    follows: str = ""
    """The message that this one repeats, and whose outcome it gets."""
    is_claimed: bool = False
    """Whether it held its key when it was published."""
    is_put_off: bool = False
    """Whether the task runs on its own once the key is free, instead of reusing another's result."""
    namespace: str = ""
    """Namespace of the publisher's records; "" means the worker's own."""
    round: int = 0
    """How often it was republished because the key was taken."""
    serializer: str = ""
    """The serializer that its publisher chose for it; "" for the usual one."""

    def carried(self, headers: object) -> dict[str, Any]:
        """Return the headers with this one added. A message may have anything but headers under that name."""
        given = {name: value for name in FIELDS if (value := getattr(self, name)) or name in REQUIRED}
        return {**(headers if isinstance(headers, dict) else {}), HEADER: given}


FIELDS: Final = tuple(one.name for one in fields(OnceHeader))
REQUIRED: Final = frozenset({"message", "key", "payload_print"})
KINDS: Final = dict.fromkeys(FIELDS, str) | {"is_claimed": bool, "is_put_off": bool, "round": int}


def header_of(fields_of_message: Mapping[str, Any], message: str) -> OnceHeader | None:
    """Read the header of `message`; None if there is none or it cannot be read.

    Celery makes a field of the request of each header, and of them all the field `headers`, unless a header has that
    name: tracing libraries and users send one. So both places count. Eager tasks, options of `apply_async` and
    protocol 1 have only the second one.
    """
    others = fields_of_message.get("headers")
    places = (fields_of_message, others if isinstance(others, dict) else {})
    return next((header for place in places if (header := _read(place.get(HEADER), message))), None)


def _read(found: object, message: str) -> OnceHeader | None:
    """Read a header. Fields that a newer version added are ignored; those that an older one lacks have defaults."""
    if not isinstance(found, dict) or found.get("message") != message or not found.keys() >= REQUIRED:
        return None
    known = {name: found[name] for name in FIELDS if name in found}
    if not all(isinstance(value, KINDS[name]) for name, value in known.items()) or isinstance(known.get("round"), bool):
        return None
    return OnceHeader(**known) if known["message"] and known["key"] and known.get("round", 0) >= 0 else None


def due_in_ms(app: Celery, eta: datetime | str | None, countdown: float | None) -> int:
    """Return the milliseconds until a message is due, 0 for at once; an `eta` replaces a `countdown`."""
    if eta is None and countdown is None:
        return 0
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    if eta is not None:
        now = app.now()
        countdown = (eta - (now if eta.tzinfo else now.replace(tzinfo=None))).total_seconds()
    found: object = countdown or 0
    if not isinstance(found, int | float) or not isfinite(found):
        raise InvalidInput(f"a countdown of {countdown!r} is not a number of seconds")
    return max(0, round(found * 1000))


def expires_in_ms(app: Celery, expires: datetime | str | float | None) -> int:
    """Return the milliseconds until a message expires, at least 1; 0: never."""
    if expires is None:
        return 0
    return max(1, due_in_ms(app, None, expires) if isinstance(expires, int | float) else due_in_ms(app, expires, None))


def text_of(
    app: Celery, name: str, arguments: tuple[Sequence[Any] | None, Mapping[str, Any] | None], options: Mapping[str, Any]
) -> str:
    """Return what publishes a message again as it is, in any process; "" if it has no form in JSON."""
    sent = {name: value for name, value in options.items() if value is not None and name not in OF_THIS_PROCESS}
    countdown, expires = options.get("countdown"), sent.get("expires")
    if countdown and "eta" not in sent:
        sent["eta"] = app.now() + timedelta(seconds=countdown)
    if isinstance(expires, int | float):
        sent["expires"] = app.now() + timedelta(seconds=expires)
    form: dict[str, object] = {
        "task": name,
        "args": arguments[0] or (),
        "kwargs": arguments[1] or {},
        "options": sent,
        "subtask_type": None,
        "immutable": False,
    }
    with suppress(Exception):  # an encoder may raise anything
        return json_text(form)
    return ""


def json_text(value: object) -> str:
    """Return what Celery's JSON makes of a value, at a third of its cost unless it has types of Celery's own."""
    try:
        return ENCODE(value)
    except TypeError:
        return str(json.dumps(value))


def publish_text(app: Celery, text: str) -> None:
    """Publish what `text_of` wrote, or the text of a signature. It is no child of the task that does it."""
    Signature.from_dict(json.loads(text), app=app).apply_async(add_to_parent=False)
