"""What travels with a message: which record it belongs to, when it is due, and when it expires.

A message without a record is from a foreign publisher.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput
from segmented.locks.durations import is_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery

HEADER: Final = "segmented_once"


@dataclass(frozen=True, slots=True)
class OnceHeader:
    """The header of one message."""

    message: str
    """Its task id: a header that was copied to another message says nothing about that one."""
    key: str
    payload_print: str
    follows: str = ""
    """The message whose repeat this is, and whose outcome it is to have."""
    is_claimed: bool = False
    """Did it have the seat of its key when it was published?"""
    is_put_off: bool = False
    """Is it to run by itself once the key is free, and not to be given the outcome of another?"""
    namespace: str = ""
    """Of the publisher's records; "" where the worker's own is meant."""
    round: int = 0
    """How often it was sent round because the key was taken."""

    def carried(self, headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return headers with this one in them."""
        return {**(headers or {}), HEADER: asdict(self)}


def header_of(headers: Mapping[str, Any] | None, message: str) -> OnceHeader | None:
    """Read the header of `message`; None when there is none, or one that cannot be read.

    What a newer version has added is passed over, and what an older one did not say is as if it were not so.
    """
    found = (headers or {}).get(HEADER)
    if not isinstance(found, dict) or found.get("message") != message:
        return None
    known = {one.name: found[one.name] for one in fields(OnceHeader) if one.name in found}
    if not all(_is_readable(name, value) for name, value in known.items()):
        return None
    try:
        return OnceHeader(**known)
    except TypeError:  # too little was said
        return None


def _is_readable(name: str, value: object) -> bool:
    match name:
        case "message" | "key":
            return isinstance(value, str) and bool(value)
        case "payload_print" | "follows" | "namespace":
            return isinstance(value, str)
        case "round":
            return is_whole(value) and isinstance(value, int) and value >= 0
    return isinstance(value, bool)


def due_in_ms(app: Celery, eta: datetime | str | None, countdown: float | None) -> int:
    """Return the milliseconds until a message is due, 0 for at once; an `eta` takes the place of a `countdown`."""
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    if eta is not None:
        now = app.now()
        countdown = (eta - (now if eta.tzinfo else now.replace(tzinfo=None))).total_seconds()
    found: object = countdown or 0
    if not isinstance(found, int | float) or not isfinite(found):
        message = f"a countdown of {countdown!r} is no number of seconds"
        raise InvalidInput(message)
    return max(0, round(found * 1000))


def waits_ms(app: Celery, at_most_ms: int, expires: datetime | str | float | None, delay_ms: int) -> int:
    """Return for how long a message keeps its key beyond its delay: one that has expired can give a repeat nothing."""
    if expires is None:
        return at_most_ms
    expires_ms = due_in_ms(app, None, expires) if isinstance(expires, int | float) else due_in_ms(app, expires, None)
    return max(1, min(at_most_ms, expires_ms - delay_ms))
