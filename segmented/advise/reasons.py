"""Why the advice is what it is, in sentences with the numbers in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from segmented.advise.prediction import Limit, Prediction
    from segmented.advise.workload import Workload

DEEP: Final = 10
"""Largest orders in a segment's first stock from which on hardly any order has to gather."""
LONG: Final = 999.5
"""Seconds; from here on they are written whole."""
MILLISECOND: Final = 0.001
SHOWN_MIN: Final = 0.5e-6
LIMITS: Final[dict[Limit, str]] = {
    "segments": "the locks are the limit",
    "workers": "the workers are the limit, and more segments would stand empty",
    "servers": "the stock's server is the limit, and more segments do not make it faster",
    "rows": "the rows of the order database are the limit",
    "arrivals": "no more come",
    "database": "the order database is the limit, and more segments do not make it faster",
}


def reasons_of(workload: Workload, expected: Prediction, *, lock_free: Prediction) -> tuple[str, ...]:
    """Return whole sentences, the most important one first."""
    found = [_main(workload, expected), *_overlap(workload, expected, lock_free)]
    found += [*_depth(workload, expected), *_servers(workload, expected)]
    return tuple(found)


def _main(workload: Workload, expected: Prediction) -> str:
    pace = f"{expected.orders_per_second:,.0f} orders/s"
    if not expected.is_locked:
        brief = f"The slow work of {duration(workload.hold)} is no longer than a round trip of"
        limit = LIMITS[expected.limited_by]
        return f"{brief} {duration(workload.round_trip)}, so a lock buys nothing: without any, {pace}; {limit}."
    alone = (
        f"A segment is held for {duration(workload.locked)} an order (hold and one round trip), so one lock lets "
        f"{1 / workload.locked:,.0f} orders/s through, however many workers there are"
    )
    if expected.limited_by == "arrivals":
        locks = "that is enough" if expected.segments == 1 else f"{expected.segments:,} locks serve them"
        return f"{alone}; {workload.arrivals:,.0f} orders/s come, and {locks}, so that few wait for long."
    if expected.segments == 1:
        return f"{alone}; more segments would not let more through, since {LIMITS[expected.limited_by]}."
    return f"{alone}; {expected.segments:,} locks let {pace} through: {LIMITS[expected.limited_by]}."


def _overlap(workload: Workload, expected: Prediction, lock_free: Prediction) -> list[str]:
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


def _servers(workload: Workload, expected: Prediction) -> list[str]:
    alone = 1 / workload.server_time
    can = f"One server takes about {alone:,.0f} orders/s ({duration(workload.server_time)} of its thread an order)"
    needed = -(-expected.orders_per_second // alone)
    if workload.servers == 1:
        if expected.limited_by != "servers":
            return [f"{can}; more servers would not help."]
        return [f"{can}; more servers would help, and so would calls in batches (reserve_many), which cost it less."]
    if needed <= 1:
        return [f"{can}, so {workload.servers} servers buy no speed here; they bound what one failure stops."]
    return [f"{can}, so at least {needed:,.0f} of the {workload.servers} servers are needed for this pace."]


def duration(seconds: float) -> str:
    """Write seconds in the unit that suits them."""
    if seconds >= LONG:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= MILLISECOND or not seconds:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} us" if seconds >= SHOWN_MIN else "0 ms"
