"""R13, R14, R15, R24: bottlenecks, holds, and the range of the sweeps.

R16: cases in which segments should lose are measured too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from bench.engine.meters import GENERATOR_FULL, MACHINE_FULL, SERVER_FULL
from bench.lint.subject import (
    BY_WORKERS,
    ONE_LOCK,
    ONE_SCRIPT,
    SEGMENTED,
    broken,
    holds,
    labels,
    named,
    setting,
    without_redis,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.engine.record import Run
    from bench.lint.subject import Subject, Verdict

HOLDS_MIN: Final = 4
HOLD_TOLERANCE: Final = 0.95
"""Minimum median of the measured holds, as a share of the planned hold: timers are not exact."""
LAST_STEP_MAX: Final = 1.1
"""Gain of a sweep's last step above which the sweep ended too early: K or N has about doubled in it."""
LOAD_MIN: Final = 1.1
"""Minimum of the highest offered load, as a share of the capacity."""
STEPS_MIN: Final = 4
ROUND_TRIPS: Final = frozenset({0.0, 0.5, 2.0, 10.0})
LOW_LOAD: Final = 0.1
"""Maximum share of the capacity for a load to count as low."""
RIVALS: Final = (ONE_LOCK, ONE_SCRIPT)
RIVAL_MAY_DIFFER: Final = ("strategy", "segments", "offered_per_s")


def what_was_used_up(subject: Subject) -> Verdict:
    """R13: every run has the cores used by generator, server and machine, and marks what was saturated."""
    if not subject.measured:
        return broken("no run came to its end")
    cores = subject.results.session.condition("machine.cores")
    if not isinstance(cores, int):
        return broken("the environment does not say how many cores there are")
    # Redis is idle, to a thousandth of a core, if only the database sells
    blind = [
        run for run in subject.measured if run.cpu.generator <= 0 or (run.cpu.redis <= 0 and not without_redis(run))
    ]
    if blind:
        return broken(f"no CPU time of generator or server: {named(labels(blind))}")
    wrong = [run for run in subject.measured if set(run.saturated) != _used_up(run, cores)]
    if wrong:
        return broken(f"what is marked as saturated does not follow from the cores used: {named(labels(wrong))}")
    hollow = sum(bool(run.saturated) for run in subject.measured)
    return holds(f"cores used are in all {len(subject.measured)} runs; {hollow} were limited by them and are marked")


def _used_up(run: Run, cores: int) -> set[str]:
    limits = {
        "generator": run.cpu.generator >= GENERATOR_FULL,
        "redis": run.cpu.redis >= SERVER_FULL,
        "servers": _is_shared_full(run),
        "machine": run.cpu.machine + run.cpu.steal >= MACHINE_FULL * cores,
    }
    return {name for name, is_full in limits.items() if is_full}


def _is_shared_full(run: Run) -> bool:
    """Return whether the cores are saturated that Redis shares with a database, or with a delay proxy (an `other`)."""
    cpu, is_delayed = run.cpu, run.cell.rtt_ms > 0 or run.cell.proxied
    if run.server_cores is None or (cpu.database is None and not is_delayed):
        return False
    used = cpu.redis + (cpu.database or 0.0) + (cpu.others if is_delayed else 0.0)
    return used >= SERVER_FULL * run.server_cores


def what_was_held(subject: Subject) -> Verdict:
    """R14: every run measures the hold, at least four holds are swept, and one of them is a real commit."""
    held = [run for run in subject.kept if run.cell.section in {"sleep", "cpu", "commit"} and run.counts.sold]
    if not held:
        return broken("no run with a throughput has a critical section")
    seen = [run for run in held if run.cell.strategy not in BY_WORKERS]
    blind = [run for run in seen if not run.times.hold.n]
    if blind:
        return broken(f"the hold was not measured: {named(labels(blind))}")
    short = [run for run in seen if (run.times.hold.p50 or 0.0) < HOLD_TOLERANCE * run.cell.hold_ms]
    if short:
        return broken(f"half of the holds were shorter than planned: {named(labels(short))}")
    kinds = {str(run.cell.critical_section()) for run in subject.kept if run.cell.strategy == SEGMENTED}
    if len(kinds) < HOLDS_MIN:
        return broken(
            f"{len(kinds)} critical sections of {SEGMENTED}, where {HOLDS_MIN} are needed: {named(sorted(kinds))}"
        )
    if not any(run.cell.section == "commit" for run in subject.kept if run.cell.strategy == SEGMENTED):
        return broken("no critical section is a real commit")
    unseen = sorted({run.cell.strategy for run in held if run.cell.strategy in BY_WORKERS})
    apart = f"; workers hold, and buyers do not see it: {', '.join(unseen)}" if unseen else ""
    return holds(f"the hold is measured in {len(seen)} runs{apart}; critical sections: {', '.join(sorted(kinds))}")


def to_the_collapse(subject: Subject) -> Verdict:
    """R15: sweeps reach K past its optimum, N past saturation, and a load past the capacity."""
    said = []
    for name, field in (("K", "segments"), ("N", "buyers")):
        sweeps = [one for one in _sweeps(subject, field) if len(one) >= STEPS_MIN]
        if not sweeps:
            return broken(f"no sweep over {name} has {STEPS_MIN} values")
        gains = [(one[-1][1] / one[-2][1], one) for one in sweeps]
        gain, sweep = min(gains, key=lambda one: one[0])
        if gain > LAST_STEP_MAX:
            return broken(f"the last step of {name}, to {sweep[-1][0]}, still gains {gain - 1:.0%}: it ends too early")
        said.append(f"{name} from {sweep[0][0]} to {sweep[-1][0]}, the last step x {gain:.2f}")
    loads = [(_load(subject, run), run) for run in subject.open_runs]
    known = [(load, run) for load, run in loads if load is not None]
    if not known:
        return broken("no open loop with a known capacity, so no offered load past it")
    highest, run = max(known, key=lambda one: one[0])
    if highest < LOAD_MIN:
        return broken(f"the highest offered load is {highest:.0%} of the capacity ({run.cell_id})")
    return holds(f"{'; '.join(said)}; offered up to {highest:.0%} of the capacity")


def _sweeps(subject: Subject, field: str) -> Iterator[list[tuple[int, float]]]:
    """Yield closed sweeps of the segmented strategy over one field: values with their rates, from 1 segment on."""
    found: dict[tuple[tuple[str, Any], ...], dict[int, float]] = defaultdict(dict)
    for cell, rate in subject.rates.items():
        if cell.strategy == SEGMENTED and cell.loop == "closed" and rate > 0:
            found[setting(cell, (field,))][getattr(cell, field)] = rate
    for steps in found.values():
        if field != "segments" or 1 in steps:
            yield sorted(steps.items())


def _load(subject: Subject, run: Run) -> float | None:
    if run.offered_percent is not None:
        return run.offered_percent / 100
    capacity = subject.capacity(run.cell)
    return run.cell.offered_per_s / capacity if capacity and run.cell.offered_per_s else None


def round_trips(subject: Subject) -> Verdict:
    """R24: locks and the lock-free script are measured with 0, 0.5, 2 and 10 ms added to a round trip."""
    for strategy in (SEGMENTED, ONE_SCRIPT):
        found = {run.cell.rtt_ms for run in subject.kept if run.cell.strategy == strategy}
        lacking = sorted(ROUND_TRIPS - found)
        if lacking:
            return broken(
                f"no throughput of {strategy} with {', '.join(f'{one:g}' for one in lacking)} ms a round trip"
            )
    return holds(f"{SEGMENTED} and {ONE_SCRIPT} have throughputs with 0, 0.5, 2 and 10 ms added to a round trip")


def where_segments_lose(subject: Subject) -> Verdict:
    """R16: each unfavourable case has runs with segments, and with one lock or one script under the same conditions."""
    lacking = []
    for name, is_case in CASES.items():
        cells = {run.cell for run in subject.runs if run.cell.strategy == SEGMENTED and is_case(run, subject)}
        places = {setting(cell, RIVAL_MAY_DIFFER) for cell in cells}
        has_rival = any(
            run.cell.strategy in RIVALS and setting(run.cell, RIVAL_MAY_DIFFER) in places for run in subject.runs
        )
        if not cells:
            lacking.append(name)
        elif not has_rival:
            lacking.append(f"{name} of {' or '.join(RIVALS)}")
    if lacking:
        return broken(f"not measured: {', '.join(lacking)}")
    return holds(f"all {len(CASES)} are there, of segments and of a rival: {', '.join(CASES)}")


def _is_low(run: Run, subject: Subject) -> bool:
    if run.offered_percent is not None:
        return run.offered_percent <= 100 * LOW_LOAD
    capacity, offered = subject.capacity(run.cell), run.cell.offered_per_s
    return bool(capacity and offered and offered <= LOW_LOAD * capacity)


def _is_short(run: Run, _: Subject) -> bool:
    cell = run.cell
    return cell.stock is not None and 1 < cell.stock < cell.segments


def _is_larger(run: Run, _: Subject) -> bool:
    cell = run.cell
    return cell.stock is not None and cell.stock >= cell.quantity > -(-cell.stock // cell.segments)


CASES: Final[dict[str, Callable[[Run, Subject], bool]]] = {
    "one unit": lambda run, _: run.cell.stock == 1,
    "stock below K": _is_short,
    "one client": lambda run, _: run.cell.loop == "closed" and run.cell.buyers == 1,
    "low load": _is_low,
    "orders larger than a segment": _is_larger,
    "cancel storm": lambda run, _: run.cell.case == "cancel-storm",
    "restock in mid-sale": lambda run, _: run.cell.case == "restock",
}
