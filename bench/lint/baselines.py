"""R6, R7, R8, R22, R23: baselines of figures, and their conditions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from bench.lint.subject import ONE_LOCK, ONE_SCRIPT, SEGMENTED, broken, holds, labels, named, setting
from bench.micro.counts.tally import BASELINE, read_baseline
from segmented.errors import InvalidInput

if TYPE_CHECKING:
    from bench.engine.cell import Cell
    from bench.lint.subject import Subject, Verdict

RIVALS: Final[dict[str, tuple[frozenset[str], ...]]] = {
    "one global lock": (frozenset({ONE_LOCK}),),
    "one script without a lock": (frozenset({ONE_SCRIPT, "one-script"}),),
    "WATCH/MULTI": (frozenset({"watch-multi"}),),
    "DECR with compensation": (frozenset({"decr-compensate"}),),
    "redis-py's lock at its defaults and at its best": (
        frozenset({"global-redis-py"}),
        frozenset({"global-redis-py-best"}),
    ),
    "python-redis-lock": (frozenset({"global-python-redis-lock"}),),
    "pottery": (frozenset({"global-pottery"}),),
    "PostgreSQL, a row locked": (frozenset({"pg-hot-row", "pg-rows"}),),
    "PostgreSQL, SKIP LOCKED": (frozenset({"pg-skip-locked"}),),
}
"""Baselines that can win: one strategy of each set must have a throughput."""
WINDOW_MIN: Final = 0.5
"""Minimum seconds of a sale for a throughput."""


def a_base_each(subject: Subject) -> Verdict:
    """R6: every cell of K segments has a base cell with one lock and a throughput, all else equal."""
    ahead = [cell for cell in subject.rates if _is_compared(cell)]
    if not ahead:
        return broken("no cell with more than one segment has a throughput in a closed loop")
    bases = {_without_granularity(cell) for cell in subject.rates if _is_base(cell)}
    alone = [cell.cell_id for cell in ahead if _without_granularity(cell) not in bases]
    if alone:
        return broken(f"nothing with one lock has a throughput beside {named(alone)}")
    return holds(f"each of {len(ahead)} cells of K segments has its base of one lock, all else the same, in orders/s")


def _is_compared(cell: Cell) -> bool:
    """Return whether the cell claims a rate by segments; a sale of a fixed stock or of a case claims none (R16)."""
    is_capacity = cell.loop == "closed" and cell.stock is None and cell.case is None
    return is_capacity and cell.segments > 1 and cell.strategy != ONE_SCRIPT


def _is_base(cell: Cell) -> bool:
    return cell.strategy == ONE_LOCK or (cell.strategy == SEGMENTED and cell.segments == 1)


def _without_granularity(cell: Cell) -> tuple[tuple[str, Any], ...]:
    return setting(cell, ("strategy", "segments", "batch"))


def baselines_that_can_win(subject: Subject) -> Verdict:
    """R7: every alternative that could be the better choice has a throughput, at its defaults and at its best."""
    known = {cell.strategy for cell in subject.rates}
    lacking = [name for name, sets in RIVALS.items() if not all(known & one for one in sets)]
    if lacking:
        return broken(f"no throughput of {'; '.join(lacking)}")
    return holds(f"all {len(RIVALS)} kinds of baselines have a throughput")


def the_same_on_both_sides(subject: Subject) -> Verdict:
    """R8: all runs have the same server version and settings, and all strategies of a sweep the same durability."""
    if not subject.measured:
        return broken("no run came to its end")
    first = subject.measured[0]
    other = next((run for run in subject.measured if run.server != first.server), None)
    if other is not None:
        keys = sorted(key for key in {*first.server, *other.server} if first.server.get(key) != other.server.get(key))
        return broken(f"{', '.join(keys)} of the server: one in run {first.run}, another in run {other.run}")
    promised = {frozenset(run.guarantees) for run in subject.measured}
    if len(promised) > 1 or "durable" not in first.guarantees:
        return broken("guarantees are not the same columns in all runs")
    durable: dict[tuple[object, ...], dict[str, str]] = defaultdict(dict)
    for run in subject.measured:
        for sweep in run.sweeps:
            place = (sweep, setting(run.cell, ("strategy", "segments", "batch", "buyers", "offered_per_s")))
            durable[place].setdefault(str(run.guarantees["durable"]), run.cell.strategy)
    for compared, found in durable.items():
        if len(found) > 1:
            sides = " and ".join(f"{name} ({level})" for level, name in sorted(found.items()))
            return broken(f"sweep {compared[0]} compares {sides}, which keep an order in different places")
    return holds(f"one server setting in {len(subject.measured)} runs, and one durability within every comparison")


def whole_sales(subject: Subject) -> Verdict:
    """R22: a throughput comes from a sale of whole orders of at least half a second, never from a micro-benchmark."""
    if not subject.kept:
        return broken("no run has a throughput")
    short = [run for run in subject.kept if run.window_s < WINDOW_MIN and run.cell.stock is None]
    if short:
        return broken(f"less than {WINDOW_MIN:g} s were measured: {named(labels(short))}")
    return holds(f"all {len(subject.kept)} throughputs are of whole sales; no micro-benchmark is in the file")


def counts_have_a_baseline(_: Subject) -> Verdict:
    """R23: regressions are gated by counts that are equal on every machine, and there is a baseline of them."""
    try:
        found = read_baseline(BASELINE)
    except InvalidInput as error:
        return broken(str(error))
    return holds(f"{len(found)} operations have counts in {BASELINE.name}, which the tests compare; no time gates")
