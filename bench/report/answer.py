"""The first screen of the report: one sentence, one chart of bars, and the conditions in a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import noise_floor
from bench.report.facts import ONE_LOCK, OURS, WITHOUT_LOCK, ends
from bench.report.tables import main_families, setting_of, with_interval
from segmented.models.ids import plural

if TYPE_CHECKING:
    from bench.report.facts import Facts, Family, Spot

NO_PAIR: Final = (
    "This session compares no segments with one lock: that takes two cells of one sku in a closed loop, one with one "
    "lock and one with more segments, equal otherwise and both with a rate."
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell as a bar; lengths are percentages of the longest bar or bound."""

    name: str
    rate: str
    length: float
    low: float | None
    high: float | None
    bound: float | None
    """The most that its lanes can sell with the configured hold; None for a strategy that holds nothing."""
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of the session in one sentence, with its chart and its conditions."""

    sentence: str
    bars: tuple[Bar, ...]
    """Empty if the session compares nothing with one lock."""
    bound: str
    """The meaning of the marks at the bars; empty if no bar has one."""
    conditions: str


def answer(facts: Facts) -> Answer:
    """Compare our segments with one lock in the headline's cells, or say that the session has no such pair of cells."""
    found = (_compared(facts, family) for family in main_families(facts) if family.cell.skus == 1)
    return next((one for one in found if one is not None), Answer(NO_PAIR, (), "", ""))


def _compared(facts: Facts, family: Family) -> Answer | None:
    """Return the comparison of these cells; None if they lack one lock, or more segments than one."""
    ours = [spot for spot in family.of(OURS) if not spot.is_void]
    one_lock = _best([*family.of(ONE_LOCK), *(spot for spot in ours if spot.cell.segments == 1)])
    best = _fewest([spot for spot in ours if spot.cell.segments > 1], noise_floor(facts.results).floor or 0.0)
    if one_lock is None or best is None:
        return None
    free = _best([spot for strategy in WITHOUT_LOCK for spot in family.of(strategy)])
    spots = {spot.cell.cell_id: spot for spot in (one_lock, *ours, *(() if free is None else (free,)))}
    shown = sorted(spots.values(), key=lambda spot: spot.mean)
    longest = max(max(spot.mean, _ceiling(spot), _bound(spot) or 0.0) for spot in shown)
    bars = tuple(_bar(spot, longest, is_one_lock=spot is one_lock) for spot in shown)
    return Answer(_sentence(best, one_lock, free), bars, _bound_said(family, bars), _conditions(facts, family))


def _best(spots: list[Spot]) -> Spot | None:
    return max((spot for spot in spots if not spot.is_void), key=lambda spot: spot.mean, default=None)


def _fewest(spots: list[Spot], floor: float) -> Spot | None:
    """Return the cell with the fewest segments whose rate is within the noise floor of the highest."""
    best = _best(spots)
    enough = [spot for spot in spots if best is not None and spot.mean * (1 + floor) >= best.mean]
    return min(enough, key=lambda spot: spot.cell.segments, default=None)


def _sentence(best: Spot, one_lock: Spot, free: Spot | None) -> str:
    found = paired_ratio(best.by_round, one_lock.by_round)
    times = best.mean / one_lock.mean if found is None else found.value
    interval = ends(found)
    why_none = "no common round, so no interval" if found is None else found.why_no_interval
    within = why_none if interval is None else f"95 % interval {number(interval[0])} to {number(interval[1])}"
    said = (
        f"{best.cell.segments} segments sold {number(times)} times as much as one lock ({within}): "
        f"{number(best.mean)} against {number(one_lock.mean)} orders/s."
    )
    if free is None:
        return said
    return f"{said} Without a lock, {free.cell.strategy} sold {number(free.mean)}."


def _bar(spot: Spot, longest: float, *, is_one_lock: bool) -> Bar:
    name = spot.cell.strategy if spot.cell.strategy in WITHOUT_LOCK else f"K = {spot.cell.segments}"
    interval, bound = spot.interval, _bound(spot)
    return Bar(
        name="one lock" if is_one_lock else name,
        rate=f"{with_interval(spot)} orders/s",
        length=_percent(spot.mean, longest),
        low=None if interval is None else _percent(interval[0], longest),
        high=None if interval is None else _percent(interval[1], longest),
        bound=None if bound is None else _percent(bound, longest),
        is_ours=spot.cell.strategy == OURS,
    )


def _ceiling(spot: Spot) -> float:
    return spot.mean if spot.interval is None else spot.interval[1]


def _percent(value: float, longest: float) -> float:
    return round(100 * value / longest, 2)


def _bound(spot: Spot) -> float | None:
    """Return what min(K, buyers) lanes sell if nothing but the configured hold takes time."""
    cell = spot.cell
    if cell.section != "sleep" or cell.strategy in WITHOUT_LOCK:
        return None
    lanes = 1 if cell.strategy == ONE_LOCK else cell.segments
    return min(lanes, cell.buyers) * cell.batch * 1_000 / cell.hold_ms


def _bound_said(family: Family, bars: tuple[Bar, ...]) -> str:
    if all(bar.bound is None for bar in bars):
        return ""
    return (
        f"The mark at a bar is min(K, buyers) / {family.cell.hold_ms:g} ms, the configured hold, which one order a "
        "hold cannot exceed."
    )


def _conditions(facts: Facts, family: Family) -> str:
    counts = sorted({len(spot.whole) for spot in family.spots if not spot.is_void})
    runs = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    quick = " A quick session: directions, not results." if facts.results.session.is_quick else ""
    many = plural(counts[-1], "run")
    return f"{setting_of(family)}; {runs} {many} a bar, with 95 % intervals over runs.{quick}"
