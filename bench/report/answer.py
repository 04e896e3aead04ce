"""The first screen of the report: one sentence, and its conditions in a line; the first figure follows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.analysis.intervals import number, paired_ratio
from bench.analysis.measured import noise_floor
from bench.report.facts import ONE_LOCK, OURS, WITHOUT_LOCK, ends
from bench.report.tables import main_families, setting_of
from segmented.models.ids import plural

if TYPE_CHECKING:
    from bench.report.facts import Facts, Family, Spot

NO_PAIR: Final = (
    "This session compares no segments with one lock: that takes two cells of one sku in a closed loop, one with one "
    "lock and one with more segments, equal otherwise and both with a rate."
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of the session in one sentence, and its conditions; without any if nothing can be compared."""

    sentence: str
    conditions: str = ""


def answer(facts: Facts) -> Answer:
    """Compare our segments with one lock in the headline's cells, or say that the session has no such pair of cells."""
    found = (_compared(facts, family) for family in main_families(facts) if family.cell.skus == 1)
    return next((one for one in found if one is not None), Answer(NO_PAIR))


def _compared(facts: Facts, family: Family) -> Answer | None:
    """Return the comparison of these cells; None if they lack one lock, or more segments than one."""
    ours = [spot for spot in family.of(OURS) if not spot.is_void]
    one_lock = _best([*family.of(ONE_LOCK), *(spot for spot in ours if spot.cell.segments == 1)])
    best = _fewest([spot for spot in ours if spot.cell.segments > 1], noise_floor(facts.results).floor or 0.0)
    if one_lock is None or best is None:
        return None
    free = _best([spot for strategy in WITHOUT_LOCK for spot in family.of(strategy)])
    counted = [one_lock, best, *(() if free is None else (free,))]
    return Answer(_sentence(best, one_lock, free), _conditions(facts, family, counted))


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


def _conditions(facts: Facts, family: Family, spots: list[Spot]) -> str:
    counts = sorted({len(spot.whole) for spot in spots})
    runs = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    quick = " A quick session: directions, not results." if facts.results.session.is_quick else ""
    return f"{setting_of(family)}; {runs} {plural(counts[-1], 'run')} each.{quick}"
