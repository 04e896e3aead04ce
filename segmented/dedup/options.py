"""Durations and formats of deduplication, checked when they are given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented.dedup.outcomes import DEFAULT_SIZE_MAX, OutcomeForm
from segmented.dedup.terms import RunTerms
from segmented.errors import InvalidInput
from segmented.locks.durations import checked_name, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

DAY: Final = 24 * 3600.0
DEFAULT_LEASE: Final = 30.0
NAMESPACE_LENGTH_MAX: Final = 100


def window_ms(seconds: object, what: str) -> int:
    """Convert a window from seconds to milliseconds; 0 means none. Raises InvalidInput for a negative one."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        message = f"{what} of {seconds!r} s is not a window: give 0 or more seconds"
        raise InvalidInput(message)
    return 0 if seconds == 0 else milliseconds(seconds, what)


def checked_namespace(namespace: str) -> str:
    """Return a namespace. Raises InvalidInput if it cannot be part of a key."""
    if len(checked_name(namespace, "a namespace of deduplication")) > NAMESPACE_LENGTH_MAX:
        message = (
            f"the namespace of deduplication has {len(namespace)} characters; the maximum is {NAMESPACE_LENGTH_MAX}"
        )
        raise InvalidInput(message)
    return namespace


@dataclass(frozen=True, slots=True)
class DedupOptions:
    """Options of deduplication. All durations are in seconds."""

    keep: float = DAY
    """Seconds for which repeats get a result."""
    keep_failures: float = 0.0
    """Seconds for which repeats get a failure; 0: the next call with the key runs again."""
    lease: float = DEFAULT_LEASE
    """Seconds for which a process that died keeps its key; a live one renews its lease."""
    dump: Callable[[Any], str] = json.dumps
    load: Callable[[str], Any] = json.loads
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        """Check all options. Raises InvalidInput for the first wrong one."""
        self.terms("")
        _ = self.form

    @property
    def form(self) -> OutcomeForm:
        """The format in which results are written."""
        return OutcomeForm(self.dump, self.load, self.size_max)

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of `task`."""
        keep_ms, failures_ms = window_ms(self.keep, "keep"), window_ms(self.keep_failures, "keep_failures")
        lease_ms = milliseconds(self.lease, "lease")
        remember_ms = max(keep_ms, failures_ms, lease_ms)
        return RunTerms(task, lease_ms, remember_ms, keep_ms, failures_ms)
