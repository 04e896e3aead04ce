"""What the checker needs to know of every call, from one process or many: the buyers' own notes."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Final

from bench.granularity.recorder import Recorder, Refusal
from bench.strategies.base import Refused

COLUMNS: Final = ("asked", "sold", "failed", "sold_numbers")
FAILURES_SENT: Final = 5
"""Reasons that a worker tells; the number of failures is told in full."""


def clock_id() -> str:
    """Name this machine's monotonic clock: it counts from a boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def call_log_of(recorder: Recorder) -> dict[str, Any]:
    """Return the notes as they are sent from a worker to its master."""
    return {
        "clock": clock_id(),
        **{name: getattr(recorder, name).tobytes() for name in COLUMNS},
        "refusals": [(one.asked_at, one.done_at, one.quantity) for one in recorder.refusals],
        "judged": [(one.sequence, one.quantity) for one in recorder.judged],
        "failures": recorder.failures[:FAILURES_SENT],
        "failure_count": len(recorder.failures),
    }


def merged(call_logs: list[dict[str, Any]]) -> Recorder:
    """Put the notes of several processes into one recorder, as far as the checker reads it.

    Times of different machines cannot be compared: then every call counts as asked for before every refusal, which
    accuses nobody wrongly, and leaves the judgement of single refusals to the strategy's ledger.
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
