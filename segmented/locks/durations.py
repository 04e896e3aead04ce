"""Checks of callers' arguments: times to live, timeouts and names."""

from __future__ import annotations

from math import isfinite
from typing import Final

from segmented.errors import InvalidInput
from segmented.models.ids import shortened

TTL_MS_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""
TTL_SECONDS_MIN: Final = 0.001
DEFAULT_WAIT: Final = 60.0
"""Seconds that `acquire()` waits by default."""
NAME_LENGTH_MAX: Final = 1_024


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= TTL_MS_MAX
    return isinstance(value, float)


def is_whole(value: object) -> bool:
    """Return whether the value is a whole number and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def milliseconds(seconds: float, what: str) -> int:
    """Return whole milliseconds. Raises InvalidInput for less than 1 ms, more than the maximum, or NaN."""
    is_lease = _is_number(seconds) and isfinite(seconds) and seconds >= TTL_SECONDS_MIN
    if not is_lease or round(seconds * 1000) > TTL_MS_MAX:
        message = f"{what} of {shortened(seconds)} s is not a lease: give between 0.001 and {TTL_MS_MAX // 1000} s"
        raise InvalidInput(message)
    return round(seconds * 1000)


def checked_timeout(timeout: float | None) -> float | None:
    """Return the timeout. Raises InvalidInput if it is negative or NaN. None waits forever, 0 does not wait."""
    if timeout is not None and not (_is_number(timeout) and timeout >= 0):
        message = f"timeout of {shortened(timeout)} s is not a waiting time: give 0 or more, or None for no limit"
        raise InvalidInput(message)
    return timeout


def checked_name(name: str, what: str = "a lock") -> str:
    """Return the name. Raises InvalidInput if it is empty, not a text, not printable, or too long for a key."""
    if not isinstance(name, str):
        message = f"the name of {what} is a text, not {type(name).__name__}: {name!r}"
        raise InvalidInput(message)
    if not name:
        message = f"{what} needs a name"
        raise InvalidInput(message)
    if len(name) > NAME_LENGTH_MAX:
        message = f"the name of {what} has {len(name)} characters; the maximum is {NAME_LENGTH_MAX}"
        raise InvalidInput(message)
    if not name.isprintable():  # control characters and lone surrogates: bytes read as text
        message = f"the name of {what} holds characters that cannot be printed: {name!r}"
        raise InvalidInput(message)
    return name
