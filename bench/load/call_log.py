"""The call logs that the checker needs, from one or more processes: the buyers' own records."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Final

from bench.granularity.recorder import Recorder, Refusal
from bench.strategies.base import Refused

COLUMNS: Final = ("asked", "sold", "failed", "sold_numbers")
FAILURES_SENT: Final = 5
"""Maximum number of failure reasons that a worker sends; it always sends their count."""


def clock_id() -> str:
    """Return an id of this machine's monotonic clock, which starts at boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def call_log_of(recorder: Recorder) -> dict[str, Any]:
    """Return the call log as a worker sends it to its master."""
    return {
        "clock": clock_id(),
        **{name: getattr(recorder, name).tobytes() for name in COLUMNS},
        "refusals": [(one.asked_at, one.done_at, one.quantity) for one in recorder.refusals],
        "judged": [(one.sequence, one.quantity) for one in recorder.judged],
        "failures": recorder.failures[:FAILURES_SENT],
        "failure_count": len(recorder.failures),
    }


def merged(call_logs: list[dict[str, Any]]) -> Recorder:
    """Merge the call logs of several processes into one recorder, as far as the checker reads it.

    Times of different machines cannot be compared. In that case every call counts as sent before every refusal. This
    never reports a right refusal as wrong; single refusals are checked by the strategy's ledger.
    """
    found = Recorder()
    is_one_clock = len({one["clock"] for one in call_logs}) == 1
    for one in call_logs:
        asked = array("d", [])
        asked.frombytes(one["asked"])
        found.asked.extend(asked if is_one_clock else array("d", [float("-inf")]) * len(asked))
        for name in COLUMNS[1:]:
            getattr(found, name).frombytes(one[name])
        found.refusals += [Refusal(*told) for told in one["refusals"]]
        found.judged += [Refused(*told) for told in one["judged"]]
        found.failures += one["failures"]
    return found
