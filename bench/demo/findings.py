"""Conclusions from the runs of the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.demo.runs import DemoRun

CONTROL: Final = "no-lock"
ONE_LOCK: Final = "global-lock"
SEGMENTS: Final = "segment-locks"
LOCK_FREE: Final = "lock-free"
ORDER: Final = (CONTROL, ONE_LOCK, SEGMENTS, LOCK_FREE)
STORIES: Final = {
    CONTROL: "No lock: each buyer reads a counter, does the slow step, and writes the counter back. It sells too much.",
    ONE_LOCK: "One lock for the whole stock: the slow step of one buyer at a time.",
    SEGMENTS: "The same stock in segments, each with a lock of its own: as many slow steps at a time.",
    LOCK_FREE: "No lock around the slow step: one script takes the unit first, and a confirmation ends the order.",
}
"""A description of each sale, in the order of the sales."""
MACHINE: Final = "machine"
SATURATED: Final = {"generator": "the generator", "redis": "Redis", "servers": "the servers"}


def findings(runs: Sequence[DemoRun]) -> dict[str, Any]:
    """Return the ratio, the bounds and the shares of them, and what was saturated."""
    by_name = {run.strategy: run for run in runs}
    many, one = by_name[SEGMENTS].run.orders_per_s, by_name[ONE_LOCK].run.orders_per_s
    return {
        "segment_locks_per_global_lock": round(many / one, 2) if many and one else None,
        "lone_hold_ms": {run.strategy: run.lone_hold_ms for run in runs},
        "bound_per_s": {run.strategy: round(run.bound_per_s, 2) for run in runs},
        "share_of_bound": {run.strategy: run.share_of_bound for run in runs},
        "saturated": {run.strategy: list(run.run.saturated) for run in runs},
    }


def story(runs: Sequence[DemoRun]) -> list[str]:
    """Return what was compared and which won, in about five lines for a reader who knows nothing of it."""
    control, one, many, free = (next(run for run in runs if run.strategy == name) for name in ORDER)
    kept = [run for run in runs if run is not control and not run.violations]
    sold, stock = control.run.checker.sold, control.run.checker.stock
    lines = [f"No lock: {sold:,} units sold of {stock:,}. {control.run.checker.oversold:,} buyers get nothing."]
    if one.rate:
        lines.append(f"One lock: {one.rate:,.1f} orders/s.")
    if many.rate and one.rate:
        times = f"{many.rate / one.rate:.1f} times one lock"
        lines.append(f"{many.run.cell.segments} segment locks: {many.rate:,.1f} orders/s, {times}.")
    if free.rate:
        lines.append(f"No lock around the slow step: {free.rate:,.1f} orders/s, for steps that may run side by side.")
    if len(kept) == len(runs) - 1:
        lines.append("These three sold no unit twice, and refused nobody while a unit was free.")
    lines += [*_broken(runs), "Next: `segmented advise --help` says what your own sale needs."]
    return lines


def _broken(runs: Iterable[DemoRun]) -> Iterator[str]:
    """Return what makes the figures doubtful, if anything does."""
    yield from _shortfalls(runs)
    busy = [run.strategy for run in runs if MACHINE in run.run.saturated]
    if busy:
        yield f"All cores were busy in {', '.join(busy)}: close other programs and repeat."


def remarks(runs: Sequence[DemoRun], cores: int) -> list[str]:
    """Return the conclusions, one sentence each."""
    control, one, many, free = (next(run for run in runs if run.strategy == name) for name in ORDER)
    stock = control.run.checker
    return [
        f"Without a lock {stock.sold:,} units of {stock.stock:,} were sold: {stock.oversold:,} too many.",
        *_ratio(one, many),
        *_shares((one, many)),
        *_limits(runs, cores),
        *_lock_free(free),
        *_shortfalls(runs),
        "Buyers order again at once (a closed loop): the waits are those of a full queue, not of an open shop.",
    ]


def _ratio(one: DemoRun, many: DemoRun) -> Iterator[str]:
    if one.rate and many.rate:
        yield (
            f"{many.run.cell.segments} segment locks sold {many.rate:,.1f} orders/s, one lock {one.rate:,.1f}: "
            f"{many.rate / one.rate:.1f} times as many."
        )


def _shares(runs: Iterable[DemoRun]) -> Iterator[str]:
    for run in runs:
        if run.share_of_bound is not None:
            yield (
                f"{run.strategy} reached {run.share_of_bound:.1%} of {run.bound_per_s:,.1f} orders/s, its bound: each "
                f"lock serves one order after another, and a lone buyer's order took {run.lone_hold_ms:.1f} ms. In the "
                f"sale it took {run.hold_ms:.1f} ms: the difference is the delay of generator and servers."
            )


def _limits(runs: Sequence[DemoRun], cores: int) -> Iterator[str]:
    limited = {run.strategy: run.run.saturated for run in runs}
    for run in runs:
        parts = [SATURATED[part] for part in limited[run.strategy] if part != MACHINE]
        if parts:
            verb = "was" if parts != [SATURATED["servers"]] and len(parts) == 1 else "were"
            yield f"{run.strategy}: {' and '.join(parts)} {verb} saturated, so the figure is that limit."
        if MACHINE in limited[run.strategy]:
            yield (
                f"{run.strategy}: all {cores} cores were busy, {run.run.cpu.others:.1f} of them with the system and "
                "other programs, so the figure is the limit of this machine."
            )
    if not limited[ONE_LOCK] and not limited[SEGMENTS]:
        yield "Under both kinds of locks, neither the generator nor a server was saturated."


def _lock_free(free: DemoRun) -> Iterator[str]:
    if free.rate:
        yield (
            f"lock-free sold {free.rate:,.1f} orders/s: it is the better choice when two workers may be in the "
            "slow step at once, and locks are for slow steps in which they may not."
        )


def _shortfalls(runs: Iterable[DemoRun]) -> Iterator[str]:
    for run in runs:
        if not run.is_sold_out:
            yield f"{run.strategy}: the time limit came before the last unit was sold."
        yield from (f"{run.strategy} broke its promise: {sentence}." for sentence in run.violations)
