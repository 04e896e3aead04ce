"""Checks of callers' arguments: durations, timeouts and names. A duration is in seconds, or a `datetime.timedelta`."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite
from typing import Final, Self

from segmented.clock import Duration, in_seconds
from segmented.errors import InvalidInput
from segmented.models.ids import is_unseen, plain_text, shortened

TTL_MS_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""
TTL_SECONDS_MIN: Final = 0.001
DEFAULT_TIMEOUT: Final = 60.0
"""Seconds that `acquire()`, `grant()` and the `wait()` of an order's handle wait by default."""
RESERVED: Final = "_segmented:"
"""How the names of the library's own locks begin: a user's lock of that name would stop the sweep of all pools."""
NAME_LENGTH_MAX: Final = 1_024


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= TTL_MS_MAX
    return isinstance(value, float)


def is_whole(value: object) -> bool:
    """Return whether the value is a whole number and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _refused(seconds: object, what: str, rule: str) -> InvalidInput:
    """Return the error: `seconds` is no number, or is not what `rule` says."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return InvalidInput(
            f"{what} is a number of seconds or a timedelta, not {type(seconds).__name__}: {shortened(seconds)}"
        )
    return InvalidInput(f"{what} of {shortened(seconds)} s is not {rule}")


def milliseconds(duration: Duration, what: str) -> int:
    """Return whole milliseconds. Raises InvalidInput for less than 1 ms, more than the maximum, or NaN."""
    seconds = in_seconds(duration)
    is_lasting = _is_number(seconds) and isfinite(seconds) and seconds >= TTL_SECONDS_MIN
    if not is_lasting or seconds * 1000 > TTL_MS_MAX:
        raise _refused(seconds, what, f"a duration: give between 0.001 and {TTL_MS_MAX // 1000} s")
    return round(seconds * 1000)


def milliseconds_or_none(duration: Duration, what: str) -> int:
    """Return whole milliseconds; 0 means none. Raises InvalidInput for a negative duration."""
    seconds = in_seconds(duration)
    if not _is_number(seconds) or seconds < 0:
        raise _refused(seconds, what, "a duration: give 0 or more")
    return 0 if seconds == 0 else milliseconds(seconds, what)


def checked_timeout(timeout: Duration | None) -> float | None:
    """Return the seconds. Raises InvalidInput if they are negative or NaN. None waits forever, 0 does not wait."""
    if isinstance(timeout, bool):
        raise InvalidInput(f"timeout={timeout} is not a waiting time: try_acquire() does not wait, acquire() does")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not (_is_number(seconds) and seconds >= 0):
        raise _refused(seconds, "timeout", "a waiting time: give 0 or more, or None for no limit")
    return None if seconds is None else float(seconds)


def checked_name(name: str, what: str = "a lock") -> str:
    """Return the name as `plain_text`. Raises InvalidInput if it is no text, empty, too long, or not printable."""
    if not isinstance(name, str):
        raise InvalidInput(f"the name of {what} is a text, not {type(name).__name__}: {name!r}")
    name = plain_text(name)
    if not name:
        raise InvalidInput(f"{what} needs a name")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidInput(f"the name of {what} has {len(name)} characters; the maximum is {NAME_LENGTH_MAX}")
    if is_unseen(name):
        raise InvalidInput(f"the name of {what} holds characters that cannot be printed: {name!r}")
    return name


class OwnName(str):
    """The name of a lock that the library takes for itself."""

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Create the name, with the reserved prefix."""
        return super().__new__(cls, RESERVED + name)


def checked_lock_name(name: str) -> str:
    """Return the name. Raises InvalidInput as `checked_name`, and for a name that only the library itself may use."""
    found = checked_name(name)
    if found.startswith(RESERVED) and not isinstance(name, OwnName):
        message = f"the name of a lock begins with {RESERVED!r}, which the library uses for its own locks: {name!r}"
        raise InvalidInput(message)
    return found
