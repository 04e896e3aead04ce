"""The points until which a key is taken, by the names that Sidekiq's unique jobs have given them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from segmented.models.dedup import RunOn, SeatEnd

Point = Literal[
    "until_executing",
    "until_executed",
    "until_expired",
    "while_executing",
    "until_and_while_executing",
    "exactly_once",
]
OnPublish = Literal["return", "raise", "drop", "replace", "reschedule", "wait", "keep_last", "debounce"]
OnExecute = Literal["return", "raise", "drop", "reschedule", "wait"]
ON_PUBLISH: Final = ("return", "raise", "drop", "replace", "reschedule", "wait", "keep_last", "debounce")
ON_EXECUTE: Final = ("return", "raise", "drop", "reschedule", "wait")
ANSWERING: Final = frozenset({"return", "raise", "drop"})
"""The policies by which a repeat does not run."""
REPLACING: Final = frozenset({"replace", "keep_last", "debounce"})
"""The policies by which the newest payload is the one that runs."""


@dataclass(frozen=True, slots=True)
class PointTerms:
    """What a point means for a record."""

    seat_end: SeatEnd
    run_on: RunOn
    is_blocked_by_run: bool
    keeps_results: bool
    """Is the key still taken when there is a result, so that repeats can be given it?"""
    replaces: frozenset[str] = frozenset()
    """Which of the replacing policies make sense with it."""

    @property
    def claims(self) -> bool:
        """Is the key taken when a message is published?"""
        return self.seat_end != "none"


POINTS: Final[dict[str, PointTerms]] = {
    "until_executing": PointTerms("start", "message", False, False, frozenset({"replace", "debounce"})),  # noqa: FBT003  # a table
    "until_executed": PointTerms("end", "key", True, True, REPLACING),  # noqa: FBT003  # a table
    "until_expired": PointTerms("time", "message", False, True),  # noqa: FBT003  # a table
    "while_executing": PointTerms("none", "key", False, False),  # noqa: FBT003  # a table
    "until_and_while_executing": PointTerms("start", "key", False, False, frozenset({"replace", "debounce"})),  # noqa: FBT003  # a table
    "exactly_once": PointTerms("end", "key", True, True),  # noqa: FBT003  # a table
}
