"""The figures of a sale so far, and its call logs, from one process or several. Histograms are merged, never averaged.

The checker needs the call logs: the buyers' own records. The load generator's own delay tells whether the figures of
the sale can be used.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import gevent
import numpy as np
from hdrh.histogram import HdrHistogram

from bench.engine.percentiles import added, described, histogram_of
from bench.engine.sale import Recorder, Refusal
from bench.engine.summary import Columns
from bench.strategies.base import Refused

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.engine.record import Percentiles

TIMES: Final = ("service", "response", "wait", "hold", "lateness")
COLUMNS: Final = ("asked", "sold", "failed", "sold_numbers")
FAILURES_SENT: Final = 5
"""Maximum number of failure reasons that a worker sends; it always sends their count."""


@dataclass(slots=True)
class Tally:
    """Orders by outcome, the goodput, and five histograms in microseconds."""

    planned: int = 0
    sent: int = 0
    sold: int = 0
    sold_out: int = 0
    failed: int = 0
    shed: int = 0
    late: int = 0
    """Calls in the window that began a millisecond or more late."""
    goodput: float = 0.0
    """Orders per second that hold stock, answered in the window."""
    cpu_s: float = 0.0
    """CPU seconds of the processes that sell, since the sale began."""
    by_segment: list[int] = field(default_factory=list)
    """Orders sold by segment, if the strategy reports it."""
    histograms: dict[str, HdrHistogram] = field(default_factory=lambda: {name: added(()) for name in TIMES})

    def add(self, other: Tally) -> None:
        """Add the figures of another process for the same time."""
        for name in ("planned", "sent", "sold", "sold_out", "failed", "shed", "late", "goodput", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        longer = max(len(self.by_segment), len(other.by_segment))
        both = (one + [0] * (longer - len(one)) for one in (self.by_segment, other.by_segment))
        self.by_segment = [mine + theirs for mine, theirs in zip(*both, strict=True)]
        for name in TIMES:
            self.histograms[name].add(other.histograms[name])

    def times(self) -> dict[str, Percentiles]:
        """Return the percentiles of all five, in milliseconds."""
        return {name: described(one) for name, one in self.histograms.items()}

    def as_message(self) -> dict[str, Any]:
        """Return the tally as a worker sends it to its master."""
        counts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "histograms"}
        return counts | {"histograms": {name: one.encode().decode("ascii") for name, one in self.histograms.items()}}

    @classmethod
    def from_message(cls, said: dict[str, Any]) -> Tally:
        """Read the result of `as_message`."""
        histograms = {name: HdrHistogram.decode(one) for name, one in said["histograms"].items()}
        return cls(**{**said, "histograms": histograms})


@dataclass(slots=True)
class Window:
    """The measured part of a sale, in local seconds; it may not have begun or ended yet."""

    begin: float = float("inf")
    end: float = float("inf")


class Counter:
    """Counts a growing recorder: each call processes only new entries."""

    def __init__(self, recorder: Recorder, *, is_open: bool) -> None:
        """Start with an empty tally."""
        self.tally = Tally()
        self._recorder, self._is_open = recorder, is_open
        self._read = self._sold_inside = 0

    def look(self, window: Window, *, now: float, planned: int, sent: int, shed: int) -> Tally:
        """Count the answers since the last call; the caller passes the other counts. Return the tally."""
        columns = Columns(self._recorder, self._read)
        done, intended, sold, segment = columns.done, columns.intended, columns.sold, columns.segment
        self._read += len(done)
        tally = self.tally
        tally.planned, tally.sent, tally.shed = planned, sent, shed
        tally.sold += int(sold.sum())
        tally.sold_out += int(columns.sold_out.sum())
        tally.failed += int(columns.failed.sum())
        is_known = (segment >= 0) & (sold > 0)
        for place, orders in zip(segment[is_known].tolist(), sold[is_known].tolist(), strict=True):
            tally.by_segment.extend([0] * (place + 1 - len(tally.by_segment)))
            tally.by_segment[place] += orders
        answered = (done >= window.begin) & (done <= window.end)
        self._sold_inside += int(sold[answered].sum())
        counts = (intended >= window.begin) & (intended < window.end) if self._is_open else answered
        found = columns.durations(counts)
        if self._is_open:
            tally.late += int((found["lateness"] >= 0.001).sum())  # noqa: PLR2004  # a millisecond
        for name, seconds in found.items():
            if self._is_open or name not in {"response", "lateness"}:
                self._record(name, seconds)
        length = min(now, window.end) - window.begin
        tally.goodput = self._sold_inside / length if 0 < length < float("inf") else 0.0
        return tally

    def look_at_delay(self, window: Window, late: NDArray[np.float64], *, now: float) -> None:
        """Count the generator's own delays in a closed loop, if the measured time has begun and is not over."""
        if window.begin <= now <= window.end:
            self._record("lateness", late)

    def _record(self, name: str, seconds: NDArray[np.float64]) -> None:
        if len(seconds):
            self.tally.histograms[name].add(histogram_of(seconds))


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


# --- the generator's delay ---

LOOK_SECONDS: Final = 0.01
LATE_MAX: Final = 0.1
"""Maximum lateness as a share of the response time (open loop, p99) or of the hold (closed loop, median)."""
MILLISECONDS: Final = 1_000


class DelayMeter:
    """Wakes every 10 ms, and notes how much later that was than asked for.

    Buyers of a closed loop have no intended times, so their lateness cannot be seen in their calls. They wake in the
    same loop as this greenlet, after their holds and with their answers, and are as late.
    """

    def __init__(self) -> None:
        """Start to look."""
        self._late: array[float] = array("d")
        self._greenlet = gevent.spawn(self._look)

    def taken(self) -> NDArray[np.float64]:
        """Return the delays since the last call, in seconds."""
        late, self._late = self._late, array("d")
        return np.array(late)

    def stop(self) -> None:
        """Stop looking."""
        self._greenlet.kill()

    def _look(self) -> None:
        while True:
            due = time.monotonic() + LOOK_SECONDS
            gevent.sleep(LOOK_SECONDS)
            self._late.append(max(0.0, time.monotonic() - due))


def too_late(tally: Tally, *, is_open: bool, late_max: float) -> tuple[str, ...]:
    """Return why a sale has no figures: its load generator was late, so times and rate are partly its own."""
    percentile, compared = (99, "response") if is_open else (50, "hold")
    if not is_open and not tally.histograms["hold"].total_count:
        compared = "service"  # a strategy without a critical section
    late, other = (
        tally.histograms[name].get_value_at_percentile(percentile) / MILLISECONDS for name in ("lateness", compared)
    )
    if not tally.histograms[compared].total_count or late <= late_max * other:
        return ()
    name = "p99" if is_open else "median"
    found = f"the {name} lateness of the load generator is {late:.2f} ms, more than {late_max:.0%} of the {compared}'s"
    return (f"{found} {other:.2f} ms: use more processes, fewer buyers or a quieter machine",)
