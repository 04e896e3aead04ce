"""Whether to segment, into how many segments, and why, in sentences that contain the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from segmented.advise.prediction import Prediction, is_exact, predict, predict_lock_free
from segmented.models import SEGMENT_COUNT_MAX

if TYPE_CHECKING:
    from segmented.advise.prediction import Limit
    from segmented.advise.workload import Workload

ALIKE: Final = 1 - 1e-9
"""Share of the best throughput; a smaller difference is rounding."""
PLAYED_ALIKE: Final = 0.97
"""The same where sales are played with random numbers."""
TRIED: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 4_000)
DEEP: Final = 10
"""Largest orders per segment's initial stock, from which on hardly any order has to gather."""
LONG: Final = 999.5
"""Seconds; from here on they are written as whole numbers."""
MILLISECOND: Final = 0.001
SHOWN_MIN: Final = 0.5e-6
LIMITS: Final[dict[Limit, str]] = {
    "segments": "the locks are the limit",
    "workers": "the workers are the limit, and more segments would stand empty",
    "servers": "the stock's server is the limit, and more segments do not make it faster",
    "rows": "the rows of the order database are the limit",
    "arrivals": "no more come",
    "processes": "the processes are the limit, and more segments do not make them faster",
    "database": "the order database is the limit, and more segments do not make it faster",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, the expected result, and the alternatives. Times are in seconds."""

    segment: bool
    """Whether to split the stock into several segments."""
    segments: int
    is_locked: bool
    """True: work under the segment's lock (`pool.grant`). False: no work is slow enough (`pool.reserve`)."""
    orders_per_second: float
    wait_mean: float
    wait_p95: float
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
    expected = _predicted(workload, segments, is_locked=is_locked)
    lock_free = predict_lock_free(workload, segments=segments)
    useful = segments if is_locked else _fewest(workload, is_locked=True)
    beyond = next((count for count in TRIED if count > useful), useful)
    tried = sorted({*(_spread_evenly(count, workload) for count in TRIED if count <= beyond), useful})
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


def _spread_evenly(count: int, workload: Workload) -> int:
    """Return the next number that gives each server as many segments; a single segment is on one of them."""
    if count == 1:
        return 1
    return min(ceil(count / workload.servers), max(1, SEGMENT_COUNT_MAX // workload.servers)) * workload.servers


def _fewest(workload: Workload, *, is_locked: bool) -> int:
    """Return the smallest count that is as good as any. No count is worse than a smaller one, so bisection finds it."""
    low, high = 1, max(1, min(SEGMENT_COUNT_MAX, int(workload.orders)))
    best = _predicted(workload, _spread_evenly(high, workload), is_locked=is_locked)
    is_enough = partial(_is_as_good, workload, best)
    while low < high:
        middle = (low + high) // 2
        if is_enough(_predicted(workload, _spread_evenly(middle, workload), is_locked=is_locked)):
            high = middle
        else:
            low = middle + 1
    return _spread_evenly(low, workload)


def _is_as_good(workload: Workload, best: Prediction, found: Prediction) -> bool:
    """Return whether a prediction is as good as the best, in its rate and in what orders wait."""
    alike = ALIKE if is_exact(workload) else PLAYED_ALIKE
    if found.orders_per_second < alike * best.orders_per_second:
        return False
    if workload.p99 is not None:
        return found.wait_p99 * ALIKE <= max(workload.p99, best.wait_p99)
    return workload.rush is None or found.wait_p95 * alike <= max(workload.cycle, best.wait_p95)


def reasons_of(workload: Workload, expected: Prediction, *, lock_free: Prediction) -> tuple[str, ...]:
    """Return whole sentences, the most important one first."""
    found = [_main(workload, expected), *_goal(workload, expected)]
    found += [
        *_overlap(workload, expected, lock_free),
        *_shards(workload, expected),
        *_depth(workload, expected),
        *_order(workload, expected),
        *_hosts(workload, expected),
        *_servers(workload, expected),
    ]
    return tuple(found)


def _main(workload: Workload, expected: Prediction) -> str:
    pace = f"{expected.orders_per_second:,.0f} orders/s"
    if workload.may_overlap:
        work = f"Two orders may do the slow work of {duration(workload.hold)} at the same time, so no lock is needed"
        price = "units are on hold until the hold ends if a worker dies"
        return f"{work}: reserve, work, confirm lets {pace} through; {LIMITS[expected.limited_by]}; {price}."
    if not expected.is_locked:
        brief = f"The slow work of {duration(workload.hold)} is no longer than a round trip of"
        limit = LIMITS[expected.limited_by]
        return f"{brief} {duration(workload.round_trip)}, so a lock buys nothing: without any, {pace}; {limit}."
    held = "an order (hold and one round trip)" if workload.batch == 1 else f"a batch of {workload.batch:,} orders"
    alone = (
        f"A segment is held for {duration(workload.locked)} {held}, so one lock lets "
        f"{workload.batch / workload.locked:,.0f} orders/s through, however many workers there are"
    )
    if expected.limited_by == "arrivals":
        locks = "that is enough" if expected.segments == 1 else f"{expected.segments:,} locks serve them"
        return f"{alone}; {workload.rush:,.0f} orders/s come, and {locks}, so that few wait for long."
    if expected.segments == 1:
        return f"{alone}; more segments would not let more through, since {LIMITS[expected.limited_by]}."
    return f"{alone}; {expected.segments:,} locks let {pace} through: {LIMITS[expected.limited_by]}."


def _goal(workload: Workload, expected: Prediction) -> list[str]:
    if workload.p99 is None:
        return []
    waits = f"99 % of the orders wait at most {duration(expected.wait_p99)}"
    if expected.wait_p99 <= workload.p99:
        return [f"{waits}: the goal of {duration(workload.p99)} is kept."]
    return [f"{waits}: no number of segments keeps the goal of {duration(workload.p99)}."]


def _shards(workload: Workload, expected: Prediction) -> list[str]:
    shards = min(workload.servers, expected.segments)
    if shards == 1 or not expected.is_locked:
        return []
    even = workload.batch * min(expected.segments / workload.locked, workload.busy / workload.cycle)
    line = f"Each of the {shards:,} shards has a line of its own, and an order's id decides in which it waits"
    return [f"{line}; one line for all segments would let {even:,.0f} orders/s through."]


def _overlap(workload: Workload, expected: Prediction, lock_free: Prediction) -> list[str]:
    if workload.may_overlap is not None:
        return []
    if not expected.is_locked:
        return ["If it must not overlap all the same, the table says what locks let through."]
    faster = "faster" if lock_free.orders_per_second > expected.orders_per_second * 1.01 else "as fast"
    pace = f"{lock_free.orders_per_second:,.0f} orders/s"
    may = f"If two orders may do the slow work of {duration(workload.hold)} at the same time, no lock is needed"
    price = "at the price of units on hold when a worker dies"
    return [f"{may}: reserve, work, confirm is {faster} ({pace}), {price}."]


def _depth(workload: Workload, expected: Prediction) -> list[str]:
    if expected.segments == 1:
        return []
    most = workload.quantity[1]
    units = workload.stock / expected.segments
    begins = f"A segment begins with {units:,.0f} units, {units / most:,.1f} times the largest order"
    if units >= DEEP * most:
        return [f"{begins}: until the end, hardly any order gathers units from several segments."]
    if workload.workers > workload.orders:
        begins = f"There are more workers than orders in the stock; {begins[0].lower()}{begins[1:]}"
    return [f"{begins}: many orders gather units from several, which costs the server a little and refuses nobody."]


def _order(workload: Workload, expected: Prediction) -> list[str]:
    if not expected.is_locked or workload.workers <= expected.segments:
        return []
    turns = "Processes that wait take turns, but a caller may pass others a few times"
    return [
        f"{turns}: for the exact order of arrival use grant(..., fair=True), which costs two more round trips an order."
    ]


def _hosts(workload: Workload, expected: Prediction) -> list[str]:
    count = workload.processes_in_all
    if workload.hosts is None or count is None:
        return []
    time = workload.client_time * workload.share
    where = "one host" if workload.hosts == 1 else f"{workload.hosts:,} hosts"
    named = "1 process" if count == 1 else f"{count:,} processes"
    spent = f"{duration(time)} of a core on an order, so those of {where} ({named}) can do {count / time:,.0f} orders/s"
    helps = "more of them would help" if expected.limited_by == "processes" else "more of them would help little"
    return [f"A process spends {spent}; {helps}. Waits for cores of processes and masters are simulated."]


def _servers(workload: Workload, expected: Prediction) -> list[str]:
    time = workload.server_time * workload.share
    alone = 1 / time
    can = f"One server takes about {alone:,.0f} orders/s ({duration(time)} of its thread an order)"
    needed = -(-expected.orders_per_second // alone)
    if workload.servers == 1:
        if expected.limited_by != "servers":
            return [f"{can}; more servers would not help."]
        return [f"{can}; more servers would help, and so would calls in batches (reserve_many), which cost it less."]
    if needed <= 1:
        return [f"{can}, so {workload.servers} servers buy no speed here; they bound what one failure stops."]
    return [f"{can}, so at least {needed:,.0f} of the {workload.servers} servers are needed for this pace."]


def duration(seconds: float) -> str:
    """Return seconds as text in a suitable unit."""
    if seconds >= LONG:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= MILLISECOND or not seconds:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us" if seconds >= SHOWN_MIN else "0 ms"
