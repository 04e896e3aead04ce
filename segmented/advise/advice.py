"""Whether to segment, into how many segments, and why, in sentences that contain the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from segmented.advise.prediction import Prediction, Workload, predict, predict_lock_free
from segmented.models import SEGMENT_COUNT_MAX

ALIKE: Final = 1 - 1e-9
"""Share of the best throughput; a smaller difference is rounding."""
TRIED: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000)
DEEP: Final = 10
"""Largest orders per segment's initial stock, from which on hardly any order has to gather."""
UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, the expected result, and the alternatives."""

    segments: int
    is_locked: bool
    """True: work under the segment's lock (`pool.grant`). False: no work is slow enough (`pool.reserve`)."""
    reasons: tuple[str, ...]
    """Whole sentences, the most important one first."""
    expected: Prediction
    lock_free: Prediction
    """The same work outside any lock, which is allowed only if two orders may do it at the same time."""
    alternatives: tuple[Prediction, ...]
    """Numbers of segments under their locks, in ascending order; they include the best number and a larger one."""


def advise(workload: Workload) -> Advice:
    """Advise on a sale. The arithmetic is exact; the guesses in it are not.

    Recommends the fewest segments that reach the maximum throughput, never more than there are orders in the stock. If
    `arrivals` are known, it adds segments until 95 % of the orders wait no longer than their own slow work takes, if
    any number achieves that. With several servers the number is a multiple of theirs, so that each has the same number.
    If the slow work may overlap (`may_overlap`), or is no longer than a round trip, the advice is one script without a
    lock. It does NOT know what else your servers do.
    """
    is_locked = workload.hold > workload.round_trip and not workload.may_overlap
    segments = _fewest(workload, is_locked=is_locked)
    lock_free = predict_lock_free(workload, segments=segments)
    expected = predict(workload, segments=segments) if is_locked else lock_free
    useful = segments if is_locked else _fewest(workload, is_locked=True)
    beyond = next((count for count in TRIED if count > useful), useful)
    tried = sorted({*(_spread_evenly(count, workload) for count in TRIED if count <= beyond), useful})
    return Advice(
        segments=segments,
        is_locked=is_locked,
        reasons=tuple(_reasons(workload, expected, lock_free)),
        expected=expected,
        lock_free=lock_free,
        alternatives=tuple(predict(workload, segments=count) for count in tried),
    )


def _fewest(workload: Workload, *, is_locked: bool) -> int:
    """Return the smallest count that is as good as any. No count is worse than a smaller one, so bisection finds it."""
    choose = predict if is_locked else predict_lock_free
    low, high = 1, max(1, min(SEGMENT_COUNT_MAX, int(workload.orders)))
    best = choose(workload, segments=_spread_evenly(high, workload))
    while low < high:
        middle = (low + high) // 2
        found = choose(workload, segments=_spread_evenly(middle, workload))
        is_fast = found.orders_per_second >= ALIKE * best.orders_per_second
        is_prompt = workload.arrivals is None or found.wait_p95 * ALIKE <= max(workload.cycle, best.wait_p95)
        low, high = (low, middle) if is_fast and is_prompt else (middle + 1, high)
    return _spread_evenly(low, workload)


def _spread_evenly(count: int, workload: Workload) -> int:
    """Return the next number that gives each server as many segments; a single segment is on one of them."""
    if count == 1:
        return 1
    return min(ceil(count / workload.servers), max(1, SEGMENT_COUNT_MAX // workload.servers)) * workload.servers


def _reasons(workload: Workload, expected: Prediction, lock_free: Prediction) -> Iterator[str]:
    hold, pace = duration(workload.hold), f"{expected.orders_per_second:,.0f} orders/s"
    free_pace, limit = f"{lock_free.orders_per_second:,.0f} orders/s", f"the limit is the {expected.limited_by}"
    if workload.may_overlap:
        yield (
            f"Two orders may do the slow work of {hold} at the same time, so no lock is needed: reserve, work, confirm "
            f"lets {pace} through; {limit}; units are on hold until the hold ends if a worker dies."
        )
    elif not expected.is_locked:
        yield (
            f"The slow work of {hold} is no longer than a round trip of {duration(workload.round_trip)}, so a lock "
            f"buys nothing: without any, {pace}; {limit}."
        )
    else:
        many = "that is enough" if expected.segments == 1 else f"{expected.segments:,} locks serve them"
        if expected.limited_by == "arrivals":
            rest = f"{workload.arrivals:,.0f} orders/s come, and {many}, so that few wait for long"
        elif expected.segments == 1:
            rest = f"more segments would not let more through, since {limit}"
        else:
            rest = f"{expected.segments:,} locks let {pace} through; {limit}"
        yield (
            f"A segment is held for {duration(workload.locked)} an order (hold and one round trip), so one lock lets "
            f"{1 / workload.locked:,.0f} orders/s through, however many workers there are; {rest}."
        )
        if workload.may_overlap is None:
            faster = "faster" if lock_free.orders_per_second > expected.orders_per_second * 1.01 else "as fast"
            yield (
                f"If two orders may do the slow work of {hold} at the same time, no lock is needed: reserve, work, "
                f"confirm is {faster} ({free_pace}), at the price of units on hold when a worker dies."
            )
        if min(workload.servers, expected.segments) > 1:
            yield (
                f"Each of the {workload.servers:,} servers has a queue of its own, and an order's id decides in which "
                "it waits: the lower end of the range counts that."
            )
    if expected.segments > 1:
        units = workload.stock / expected.segments
        deep = units / workload.quantity[1]
        gathers = "hardly any order gathers" if deep >= DEEP else "many orders gather"
        yield (
            f"A segment begins with {units:,.0f} units, {deep:,.1f} times the largest order: {gathers} units from "
            "several segments, which costs the server a little and refuses nobody."
        )
    helps = "more servers would help" if expected.limited_by == "servers" else "more servers would not help"
    yield (
        f"One server takes about {1 / workload.server_time:,.0f} orders/s ({duration(workload.server_time)} of its "
        f"thread an order); {helps}."
    )


def duration(seconds: float) -> str:
    """Return seconds as text in a suitable unit."""
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), (1e-3, "ms"))
    return f"{seconds / size:,.0f} {unit}" if seconds >= 999.5 * size else f"{seconds / size:.3g} {unit}"
