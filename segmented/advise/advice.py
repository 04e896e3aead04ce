"""Whether to segment, into how many segments, and why."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from segmented.advise.prediction import Prediction, predict, predict_lock_free
from segmented.advise.reasons import reasons_of
from segmented.models import SEGMENT_COUNT_MAX

if TYPE_CHECKING:
    from segmented.advise.workload import Workload

ALIKE: Final = 1 - 1e-9
"""Of the best pace: what is less is rounding."""
TRIED: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, what to expect from it, and what else there is. Times are seconds."""

    segment: bool
    """Is it worth to split the stock into several segments?"""
    segments: int
    is_locked: bool
    """True: work under the segment's lock (`pool.grant`). False: nothing is slow enough for one (`pool.reserve`)."""
    orders_per_second: float
    wait_mean: float
    wait_p95: float
    reasons: tuple[str, ...]
    """Whole sentences, the most important one first."""
    expected: Prediction
    lock_free: Prediction
    """The same work outside any lock, which is allowed only where two orders may do it at the same time."""
    alternatives: tuple[Prediction, ...]
    """Numbers of segments under their locks, fewest first; the best one of them is there, and one that is larger."""


def advise(workload: Workload) -> Advice:
    """Advise on a sale; exact about the arithmetic, not about the guesses in it.

    The fewest segments that let through as much as any number would; never more than there are orders in the stock.
    Where `arrivals` are known, as many more as it takes that 95 % of the orders wait no longer than their own slow work
    takes, if any number can do that.
    With several servers a multiple of their number, so that each has as many. Where the slow work is no longer than a
    round trip, a lock would cost more than it guards: then the advice is one script without any lock. What it does NOT
    know: how much your holds vary, what else your servers do, and whether the slow work may overlap at all.
    """
    is_locked = workload.hold > workload.round_trip
    segments = _fewest(workload, is_locked=is_locked)
    if segments > 1:
        segments = min(ceil(segments / workload.servers) * workload.servers, SEGMENT_COUNT_MAX)
    expected = _predicted(workload, segments, is_locked=is_locked)
    lock_free = predict_lock_free(workload, segments=segments)
    useful = segments if is_locked else _fewest(workload, is_locked=True)
    beyond = next((count for count in TRIED if count > useful), useful)
    tried = sorted({*(count for count in TRIED if count <= beyond), useful})
    return Advice(
        segment=segments > 1,
        segments=segments,
        is_locked=is_locked,
        orders_per_second=expected.orders_per_second,
        wait_mean=expected.wait_mean,
        wait_p95=expected.wait_p95,
        reasons=reasons_of(workload, expected, lock_free=lock_free),
        expected=expected,
        lock_free=lock_free,
        alternatives=tuple(predict(workload, segments=count) for count in tried),
    )


def _predicted(workload: Workload, segments: int, *, is_locked: bool) -> Prediction:
    choose = predict if is_locked else predict_lock_free
    return choose(workload, segments=segments)


def _fewest(workload: Workload, *, is_locked: bool) -> int:
    """Return the smallest count that is as good as any; no count is worse than a smaller one, so halving finds it."""
    low, high = 1, max(1, min(SEGMENT_COUNT_MAX, int(workload.orders)))
    best = _predicted(workload, high, is_locked=is_locked)
    bearable = inf if workload.arrivals is None else max(workload.cycle, best.wait_p95)
    while low < high:
        middle = (low + high) // 2
        found = _predicted(workload, middle, is_locked=is_locked)
        if found.orders_per_second >= ALIKE * best.orders_per_second and found.wait_p95 * ALIKE <= bearable:
            high = middle
        else:
            low = middle + 1
    return low
