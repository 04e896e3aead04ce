"""Conclusions from the runs of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.cpu import WHOLE_CORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.record import RunRecord

CONTROL: Final = "no-lock"
ONE_LOCK: Final = "global-lock"
SEGMENTS: Final = "segment-locks"
LOCK_FREE: Final = "lock-free"
ORDER: Final = (CONTROL, ONE_LOCK, SEGMENTS, LOCK_FREE)
FULL_MACHINE: Final = 0.9
"""Share of all cores' time from which the machine counts as saturated."""
MACHINE: Final = "machine"


def findings(runs: Sequence[RunRecord], cores: int) -> dict[str, Any]:
    """Return the ratio, the shares of the bounds, and what was saturated."""
    by_name = {run.strategy: run for run in runs}
    many, one = by_name[SEGMENTS].orders_per_s, by_name[ONE_LOCK].orders_per_s
    return {
        "segment_locks_per_global_lock": round(many / one, 2) if many and one else None,
        "share_of_bound": {run.strategy: share_of_bound(run) for run in runs},
        "used_up": {run.strategy: used_up(run, cores) for run in runs},
    }


def share_of_bound(run: RunRecord) -> float | None:
    """Return orders per second as a share of the bound; None for a run without throughput and for the control."""
    if run.orders_per_s is None or run.is_control:
        return None
    return round(run.orders_per_s / run.bound_per_s, 3)


def used_up(run: RunRecord, cores: int) -> list[str]:
    """Name the processes that used a whole core, and the machine if all its cores were busy."""
    parts = {"the generator": run.generator_cpu, "Redis": run.redis_cpu, "the database": run.database_cpu or 0.0}
    found = [name for name, used in parts.items() if used >= WHOLE_CORE]
    return [*found, MACHINE] if run.machine_cpu >= FULL_MACHINE * cores else found


def remarks(runs: Sequence[RunRecord], cores: int) -> list[str]:
    """Return the conclusions, one sentence each."""
    control, one, many, free = (next(run for run in runs if run.strategy == name) for name in ORDER)
    return [
        f"Without a lock {control.sold:,} units of {control.stock:,} were sold: {control.oversold:,} too many.",
        *_ratio(one, many),
        *_shares((one, many)),
        *_limits(runs, cores),
        *_lock_free(free),
        *_shortfalls(runs),
        "Buyers order again at once (a closed loop): the waits are those of a full queue, not of an open shop.",
    ]


def _ratio(one: RunRecord, many: RunRecord) -> Iterator[str]:
    if one.orders_per_s and many.orders_per_s:
        yield (
            f"{many.segments} segment locks sold {many.orders_per_s:,.1f} orders/s, one lock {one.orders_per_s:,.1f}: "
            f"{many.orders_per_s / one.orders_per_s:.1f} times as many."
        )


def _shares(runs: Iterable[RunRecord]) -> Iterator[str]:
    for run in runs:
        share = share_of_bound(run)
        if share is not None:
            yield (
                f"{run.strategy} reached {share:.1%} of {run.bound_per_s:,.1f} orders/s, its bound: each lock serves "
                f"one order after another, and a lone buyer's order took {run.lone_hold_ms:.1f} ms. In the sale it "
                f"took {run.hold_ms:.1f} ms: the difference is the delay of generator and servers."
            )


def _limits(runs: Sequence[RunRecord], cores: int) -> Iterator[str]:
    limited = {run.strategy: used_up(run, cores) for run in runs}
    for run in runs:
        single = [part for part in limited[run.strategy] if part != MACHINE]
        if single:
            yield f"{run.strategy}: {' and '.join(single)} used a whole core, so the figure is the limit of that core."
        if MACHINE in limited[run.strategy]:
            yield (
                f"{run.strategy}: all {cores} cores were busy, {run.others_cpu:.1f} of them with the system and other "
                "programs, so the figure is the limit of this machine."
            )
    if not limited[ONE_LOCK] and not limited[SEGMENTS]:
        yield "Under both kinds of locks, neither the generator nor a server used a whole core."


def _lock_free(free: RunRecord) -> Iterator[str]:
    if free.orders_per_s:
        yield (
            f"lock-free sold {free.orders_per_s:,.1f} orders/s: it is the better choice when two workers may be in the "
            "slow step at once, and locks are for slow steps in which they may not."
        )


def _shortfalls(runs: Iterable[RunRecord]) -> Iterator[str]:
    for run in runs:
        if not run.is_sold_out:
            yield f"{run.strategy}: the time limit came before the last unit was sold."
        yield from (f"{run.strategy} broke its promise: {sentence}." for sentence in run.violations)
