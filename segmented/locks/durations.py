"""Checks of the seconds that callers give: what no lease can have, and what is no waiting time."""

from __future__ import annotations

from math import isfinite
from typing import Final

from segmented.errors import InvalidInput

TTL_MS_MAX: Final = 2**53
"""Larger numbers are not exact in a script."""


def milliseconds(seconds: float, what: str) -> int:
    """Turn seconds into whole milliseconds; raises InvalidInput for no lease: under 1 ms, NaN, endless."""
    if not isfinite(seconds) or not 1 <= round(seconds * 1000) <= TTL_MS_MAX:
        message = f"{what} of {seconds!r} s is not a lease: give between 0.001 and {TTL_MS_MAX // 1000} s"
        raise InvalidInput(message)
    return round(seconds * 1000)


def checked_timeout(timeout: float | None) -> float | None:
    """Refuse a waiting time that is negative or NaN. None waits for ever, 0 does not wait."""
    if timeout is not None and not timeout >= 0:
        message = f"timeout of {timeout!r} s is not a waiting time: give 0 or more, or None for no limit"
        raise InvalidInput(message)
    return timeout
