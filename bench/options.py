"""The options of the demo, validated once. Each error names the option and its value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segmented.errors import InvalidInput
from segmented.models import SEGMENT_COUNT_MAX

HOLD_MS_MAX: Final = 2_000.0
"""Well below the ten seconds of a segment's lease."""
BUYERS_MAX: Final = 1_000
SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 600.0
LINE_SECONDS_MAX: Final = 120.0
"""Maximum seconds to serve all buyers that wait for one lock."""
ORDERS_MIN: Final = 20
"""Minimum number of orders that one lock must be able to sell in the given time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of a measurement. `url` and `database` replace the embedded servers."""

    hold_ms: float = 20.0
    buyers: int = 64
    segments: int = 20
    seconds: float = 15.0
    url: str | None = None
    database: str | None = None

    def __post_init__(self) -> None:
        """Validate the options. Raises InvalidInput."""
        _within("--hold", self.hold_ms, 0, HOLD_MS_MAX, "ms")
        _within("--buyers", self.buyers, 1, BUYERS_MAX)
        _within("--segments", self.segments, 1, SEGMENT_COUNT_MAX)
        _within("--seconds", self.seconds, SECONDS_MIN, SECONDS_MAX, "s")
        if self.hold_ms * ORDERS_MIN > self.seconds * 1_000:
            at_most = (
                f"--hold {self.hold_ms:g} leaves one lock fewer than {ORDERS_MIN} orders in --seconds {self.seconds:g}"
            )
            message = f"{at_most}: measure longer, or hold for less"
            raise InvalidInput(message)
        line_seconds = self.buyers * self.hold_ms / 1_000
        if line_seconds > LINE_SECONDS_MAX:
            in_line = f"--buyers {self.buyers} in line for one lock with --hold {self.hold_ms:g} would wait"
            message = f"{in_line} {line_seconds:,.0f} s; at most {LINE_SECONDS_MAX:g} s can be measured"
            raise InvalidInput(message)


def _within(option: str, value: float, low: float, high: float, unit: str = "") -> None:
    if not low <= value <= high:  # also refuses NaN
        message = f"{option} {value:g} must be between {low:,g} and {high:,g}{f' {unit}' if unit else ''}"
        raise InvalidInput(message)
