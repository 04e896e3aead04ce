"""How long things last under deduplication, checked as it is given."""

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
    """Turn a window in seconds into milliseconds; 0 for none. Raises InvalidInput for a negative one."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        message = f"{what} of {seconds!r} s is no window: give 0 or more seconds"
        raise InvalidInput(message)
    return 0 if seconds == 0 else milliseconds(seconds, what)


def checked_namespace(namespace: str) -> str:
    """Refuse a namespace that cannot be part of a key."""
    if len(checked_name(namespace, "a namespace of deduplication")) > NAMESPACE_LENGTH_MAX:
        message = f"the namespace of deduplication has {len(namespace)} characters; {NAMESPACE_LENGTH_MAX} are the most"
        raise InvalidInput(message)
    return namespace


@dataclass(frozen=True, slots=True)
class DedupOptions:
    """All lives are seconds."""

    keep: float = DAY
    """For how long a result is given to repeats."""
    keep_failures: float = 0.0
    """For how long a failure is; 0: the next call with the key runs again."""
    lease: float = DEFAULT_LEASE
    """For how long a process that died keeps its key; a living one renews."""
    dump: Callable[[Any], str] = json.dumps
    load: Callable[[str], Any] = json.loads
    size_max: int = DEFAULT_SIZE_MAX

    def __post_init__(self) -> None:
        """Refuse what makes no sense, in one sentence."""
        self.terms("")
        _ = self.form

    @property
    def form(self) -> OutcomeForm:
        """How results are written."""
        return OutcomeForm(self.dump, self.load, self.size_max)

    def terms(self, task: str) -> RunTerms:
        """Return the terms of runs of `task`."""
        keep_ms, failures_ms = window_ms(self.keep, "keep"), window_ms(self.keep_failures, "keep_failures")
        lease_ms = milliseconds(self.lease, "lease")
        remember_ms = max(keep_ms, failures_ms, lease_ms)
        return RunTerms(task, lease_ms, remember_ms, keep_ms, failures_ms)
