"""Records of runs for tests: plausible ones, to be changed by name.

`demo_run` makes one of the demo; `run`, `session_line` and `end_line` make lines of `results.jsonl`. A whole file of
them is made by `tests.support.bench.session`.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bench.demo import DemoRun
from bench.engine.cell import Cell
from bench.engine.percentiles import percentiles_of
from bench.engine.record import (
    Checker,
    Counts,
    Cpu,
    EndLine,
    Fairness,
    Percentiles,
    ResultFile,
    Run,
    Series,
    SessionLine,
    Times,
    Work,
)

CELL: Final = Cell(strategy="segment-locks", segments=20, buyers=64, section="sleep", hold_ms=20)
STARTED_AT: Final = "2026-01-01T00:00:00.000+00:00"
ONE_LANE: Final = frozenset({"global-lock", "no-lock"})
EVERY_BUYER: Final = frozenset({"lock-free", "one-script"})
OVERHEAD_MS: Final = 0.5
"""Of a hold beyond its section, and of a call beyond its wait and its hold."""
WARM_UP_S: Final = 0.3
WINDOW_S: Final = 3.0
DRAIN_S: Final = 0.1
REFUSALS: Final = 100
BIN_S: Final = 0.1
QUANTILES: Final = 400


@cache
def times(mean_ms: float, *, cv: float = 0.0, n: int = 2_000) -> Percentiles:
    """Return percentiles of `n` times of a gamma distribution: its quantiles, without any chance in them."""
    return percentiles_of(quantiles(mean_ms, cv=cv, n=n) / 1_000)


def quantiles(mean_ms: float, *, cv: float, n: int) -> NDArray[np.float64]:
    """Return `n` values whose mean and variation are about those asked for; exactly the mean where `cv` is 0."""
    if not cv or not n:
        return np.full(n, mean_ms)
    points = (np.arange(QUANTILES) + 0.5) / QUANTILES
    shape = 1 / cv**2
    return np.resize(special.gammaincinv(shape, points) * mean_ms / shape, n)


def lanes_of(cell: Cell) -> int:
    """Return as many as the strategies of the demo say."""
    if cell.strategy in ONE_LANE:
        return 1
    return cell.buyers if cell.strategy in EVERY_BUYER else min(cell.segments, cell.buyers)


def run(
    cell: Cell = CELL,
    *,
    orders_per_s: float | None = None,
    hold_ms: float | None = None,
    hold_cv: float = 0.0,
    wait_ms: float | None = None,
    wait_cv: float = 0.5,
    outside_ms: float = OVERHEAD_MS,
    n: int = 2_000,
    **changes: Any,  # noqa: ANN401  # any field of a run
) -> Run:
    """Return a valid run of the cell: sold out, nothing wrong, the same orders in every count.

    `orders_per_s` defaults to the bound; `hold_ms` to the section's and a half; `wait_ms` to what Little's law leaves.
    A void run keeps its counts and loses its throughput: `run(void=("oversold by 3 units",))`.
    """
    lanes = changes.get("lanes", lanes_of(cell))
    hold = cell.hold_ms + OVERHEAD_MS if hold_ms is None else hold_ms
    rate = lanes * cell.batch / hold * 1_000 if orders_per_s is None else orders_per_s
    calls = cell.buyers if cell.loop == "closed" else min(cell.buyers, lanes)
    wait = max(0.0, calls * cell.batch / rate * 1_000 - hold - outside_ms) if wait_ms is None else wait_ms
    window = changes.get("window_s", WINDOW_S)
    warm_up = changes.get("warm_up_s", WARM_UP_S)
    sold = max(1, round(rate * (warm_up + window)))
    inside = max(1, round(rate * window))
    series = _series(sold, seconds=warm_up + window, warm_up=warm_up, segments=cell.segments if lanes > 1 else 1)
    void = changes.get("void", ())
    service = times(round(wait + hold + outside_ms, 3), cv=wait_cv / 2, n=n)
    is_open = cell.loop == "open"
    sent = sold + REFUSALS
    fields: dict[str, Any] = {
        "run": 0,
        "round": 0,
        "cell": cell,
        "cell_id": cell.cell_id,
        "sweeps": ("segments",),
        "seed": 1,
        "started_at": STARTED_AT,
        "orders_per_s": None if void else round(rate, 3),
        "sold_out_per_s": 0.0,
        "failed_per_s": 0.0,
        "void": (),
        "is_control": cell.strategy == "no-lock",
        "warm_up_s": warm_up,
        "window_s": window,
        "drain_s": DRAIN_S,
        "lanes": lanes,
        "saturated": (),
        "counts": Counts(planned=sent, sent=sent, sold=sold, sold_out=REFUSALS, failed=0, shed=0),
        "checker": checker(stock=sold * cell.quantity, sold=sold * cell.quantity),
        "times": Times(
            service=service,
            response=times(round(wait + hold + outside_ms + 0.1, 3), cv=wait_cv / 2, n=n) if is_open else None,
            wait=times(round(wait, 3), cv=wait_cv, n=n),
            hold=times(round(hold, 3), cv=hold_cv, n=n),
            lateness=times(0.1, cv=0.5, n=n) if is_open else None,
        ),
        "work": Work(commands=16.0, round_trips=2.0, attempts=1.0, server_us=80.0, bytes=900.0),
        "cpu": Cpu(generator=0.5, redis=0.2, database=None, machine=0.9, others=0.2, steal=0.0),
        "series": series,
        "fairness": None if is_open else _fairness(inside, buyers=cell.buyers, longest_wait_ms=2 * wait),
        "recorder_share": 0.02,
        "history": None,
        "history_sha256": None,
        "guarantees": guarantees(cell),
        "server": {"name": "valkey", "version": "9.1.0", "appendonly": "no", "save": ""},
    }
    return Run.model_validate(fields | changes)


def demo_run(
    strategy: str = "segment-locks",
    *,
    lone_hold_ms: float = 22.5,
    orders_per_s: float = 840.0,
    **changes: Any,  # noqa: ANN401  # any field of a run
) -> DemoRun:
    """Return a run of the demo that sold all of 13,334 units."""
    kept = 20 if strategy in {"segment-locks", "lock-free"} else 1
    cell = Cell(strategy=strategy, segments=kept, buyers=64, section="commit", hold_ms=20)
    fields: dict[str, Any] = {
        "checker": checker(stock=13_334, sold=13_334, sold_in_sql=13_334),
        "counts": Counts(planned=18_334, sent=18_334, sold=13_334, sold_out=5_000, failed=0, shed=0),
        "cpu": Cpu(generator=0.55, redis=0.15, database=0.16, machine=0.9, others=0.04, steal=0.0),
        "window_s": 10.0,
    }
    return DemoRun(
        run(cell, orders_per_s=orders_per_s, hold_ms=24.5, wait_ms=50.0, wait_cv=0.0, **fields | changes), lone_hold_ms
    )


def checker(**changes: Any) -> Checker:  # noqa: ANN401  # any field of a verdict
    """Return what the checker says of a sale in which nothing went wrong."""
    clean: dict[str, Any] = {
        "stock": 1_000,
        "sold": 1_000,
        "sold_in_sql": None,
        "oversold": 0,
        "refused_wrongly": 0,
        "stranded": 0,
        "duplicates": 0,
        "lost": 0,
        "audit": "clean",
    }
    return Checker(**clean | changes)


def guarantees(cell: Cell) -> dict[str, str | bool]:
    """Return what the strategies of the demo promise."""
    sections = dict.fromkeys(EVERY_BUYER, "unlimited") | {"no-lock": "none", "global-lock": "one a segment"}
    return {
        "never_oversells": cell.strategy != "no-lock",
        "sold_out_is_exact": cell.strategy != "no-lock",
        "one_effect_per_order": True,
        "section": sections.get(cell.strategy, "one a segment"),
        "fencing": cell.strategy not in {*EVERY_BUYER, "no-lock"},
        "after_a_crash": "units come back when the hold lapses, the lock when its lease does",
        "durable": "commit" if cell.section == "commit" else "memory",
    }


def session_line(**changes: Any) -> SessionLine:  # noqa: ANN401  # any field of the first line
    """Return the first line of a file."""
    fields: dict[str, Any] = {
        "plan": {"title": "a plan for tests"},
        "plan_sha256": "0" * 64,
        "plan_commit": "c0ffee",
        "is_quick": False,
        "left_out": (),
        "started_at": STARTED_AT,
        "environment": {
            "cpu_model": "a processor",
            "cores": 2,
            "system": "Linux",
            "commit": "c0ffee",
            "versions": {"python": "3.11.7", "valkey": "9.1.0"},
        },
    }
    return SessionLine.model_validate(fields | changes)


def end_line(runs: int = 1, **changes: Any) -> EndLine:  # noqa: ANN401  # any field of the last line
    """Return the last line of a session that did all of its runs."""
    fields: dict[str, Any] = {
        "finished_at": "2026-01-01T01:00:00.000+00:00",
        "runs_planned": runs,
        "runs_done": runs,
        "stopped_by": None,
    }
    return EndLine.model_validate(fields | changes)


def spread(total: int, parts: int) -> list[int]:
    """Return `parts` whole numbers, as even as can be, whose sum is `total`."""
    return [total // parts + (place < total % parts) for place in range(parts)]


def _series(sold: int, *, seconds: float, warm_up: float, segments: int) -> Series:
    """Return a sale of an even rate: the refusals come in the last bin."""
    bins = max(1, round(seconds / BIN_S))
    rest = [0] * bins
    steps = 4
    left_at = [round(seconds * step / steps, 3) for step in range(steps + 1)] if segments > 1 else []
    left = [spread(sold * (steps - step) // steps, segments) for step in range(len(left_at))]
    return Series(
        bin_s=BIN_S,
        offered=[*spread(sold, bins), REFUSALS],
        sold=[*spread(sold, bins), 0],
        sold_out=[*rest, REFUSALS],
        failed=[*rest, 0],
        p50_ms=[*(None for _ in rest), None],
        max_ms=[*(None for _ in rest), None],
        window=(round(warm_up, 3), round(seconds, 3)),
        segment_sold=spread(sold, segments) if segments > 1 else [],
        left_at=left_at,
        left=left,
    )


def _fairness(sold: int, *, buyers: int, longest_wait_ms: float) -> Fairness:
    each = spread(sold, buyers)
    jain = sum(each) ** 2 / (buyers * sum(one * one for one in each))
    return Fairness(jain=round(jain, 4), longest_wait_ms=round(longest_wait_ms, 3), by_buyer=each)


def file_of(runs: Iterable[Run], **session: Any) -> ResultFile:  # noqa: ANN401  # any field of the first line
    """Return a whole file of these runs."""
    found = tuple(runs)
    return ResultFile(session=session_line(**session), runs=found, end=end_line(len(found)))


def rounds(cell: Cell, rates: Iterable[float], **changes: Any) -> list[Run]:  # noqa: ANN401  # any field of a run
    """Return runs of a cell with these rates, one a round."""
    return [run(cell, orders_per_s=rate, round=place, **changes) for place, rate in enumerate(rates)]
