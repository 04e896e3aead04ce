"""Builds the record of a run from the buyers' records and the servers' state, and decides whether the run counts.

To count beside its guarantees a run needs enough length, or a generator that was on time.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.conditions import machine_core_count
from bench.engine.checker import COUNTED, broken_promises, check, summed
from bench.engine.meters import saturated
from bench.engine.percentiles import CAP_MS, p99_ms, percentiles_of
from bench.engine.record import Checker, Counts, Cpu, Fairness, Run, Series, Times, Work
from bench.engine.sale import FAILED_MAX, MOMENTS, case_of
from bench.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.engine.cell import Cell, RunAssignment
    from bench.engine.measurement import Measurement
    from bench.engine.plan import Turn
    from bench.engine.sale import CaseState, Recorder, Sale
    from bench.strategies.base import Verdict

    Numbers = NDArray[np.float64]

SERVER_CORES: Final = 1
"""Cores that all servers share if the generator has its own cores."""
BIN_SECONDS: Final = 0.1
BIN_SAMPLES_MIN: Final = 10
"""Minimum number of orders of a bin for a median."""
LATE_SHARE: Final = 0.1
"""Maximum p99 of the lateness as a share of the response's p99; above it the run is void."""
SHED_SHARE: Final = 0.001
"""Share of planned orders that may be shed before a point counts as beyond saturation."""
LEAST_SHARE: Final = 1 / 3
"""Minimum share of its planned seconds that a closed run must have measured."""


class Columns:
    """The recorder's arrays as numpy arrays."""

    def __init__(self, recorder: Recorder, since: int = 0) -> None:
        """Copy the calls from number `since` on: an array with views could not grow."""
        self.intended, self.asked, self.granted, self.freed, self.done = (
            np.array(getattr(recorder, name)[since:], dtype=np.float64) for name in MOMENTS
        )
        self.sold, self.sold_out, self.failed, self.segment, self.buyer = (
            np.array(getattr(recorder, name)[since:], dtype=np.int32)
            for name in ("sold", "sold_out", "failed", "segment", "buyer")
        )

    def durations(self, inside: NDArray[np.bool_]) -> dict[str, Numbers]:
        """Return the times of some calls, in seconds: an order has those of its call, a hold is one call's."""
        orders = (self.sold + self.sold_out + self.failed)[inside]
        granted = inside & (self.sold > 0) & (self.granted > 0)
        return {
            "service": np.repeat((self.done - self.asked)[inside], orders),
            "response": np.repeat((self.done - self.intended)[inside], orders),
            "wait": np.repeat((self.granted - self.asked)[granted], self.sold[granted]),
            "hold": (self.freed - self.granted)[granted & (self.freed > 0)],
            "lateness": (self.asked - self.intended)[inside],
        }


def summarise(  # noqa: PLR0913  # all parts of a run meet here
    assignment: RunAssignment,
    sale: Sale,
    measured: Measurement,
    verdicts: Sequence[Verdict],
    *,
    started_at: str,
    history: tuple[str | None, str | None] = (None, None),
    server: dict[str, str],
    more_void: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Run:
    """Build the record. `verdicts`: of each sku."""
    cell, strategy, recorder = assignment.cell, sale.strategy, sale.recorder
    columns = Columns(recorder)
    inside = (columns.done >= measured.window_begin) & (columns.done <= measured.window_end)
    case = sale.case or case_of(cell, strategy, assignment.stock, assignment.seed, is_calibration=True)
    books = books_of(sale, verdicts, case)
    checked = summed(books)
    failed = len(recorder.failures) + sale.unfinished_count + measured.shed
    void = broken_promises(checked, recorder.failures, failed=0 if cell.loop == "open" else failed)
    sold = int(columns.sold[inside].sum())
    void += case.broken() + more_void + unsold(sold)
    server_cores = SERVER_CORES if assignment.cores else None
    noting_s = recorder.timed_s * (float(inside.mean()) if len(inside) else 0.0)
    promise = asdict(strategy.guarantees)
    if cell.critical_section().commits:
        promise["durable"] = "commit"
    return Run(
        run=assignment.run,
        round=assignment.round,
        cell=cell,
        cell_id=cell.cell_id,
        arm=assignment.arm,
        sweeps=assignment.sweeps,
        seed=assignment.seed,
        started_at=started_at,
        orders_per_s=None if void else round(sold / measured.window_s, 3),
        sold_out_per_s=round(int(columns.sold_out[inside].sum()) / measured.window_s, 3),
        failed_per_s=round(int(columns.failed[inside].sum()) / measured.window_s, 3),
        void=void,
        notes=notes,
        is_control=strategy.is_control,
        warm_up_s=round(measured.window_begin - measured.began, 3),
        window_s=round(measured.window_s, 3),
        drain_s=round(measured.drain_s, 3),
        lanes=sale.lanes,
        saturated=saturated(
            measured.cpu, cores=machine_core_count(), server_cores=server_cores, is_delayed=cell.proxied
        ),
        counts=counts_of(sale, measured, failed=failed, cancelled=case.cancelled),
        checker=checked,
        skus=tuple(books) if cell.skus > 1 else (),
        times=times_in_window(columns, measured, cell),
        work=measured.work,
        cpu=measured.cpu,
        series=series_of(columns, measured, segments=strategy.segments, batch=cell.batch),
        fairness=None if cell.loop == "open" else fairness_of(columns, inside, buyers=cell.buyers),
        recorder_share=round(noting_s / max(1e-9, measured.cpu.generator * measured.window_s), 4),
        history=history[0],
        history_sha256=history[1],
        guarantees=promise,
        server=server,
        server_cores=server_cores,
    )


def books_of(sale: Sale, verdicts: Sequence[Verdict], case: CaseState) -> list[Checker]:
    """Check each sku."""
    return [
        check(
            part,
            verdict,
            opened=opened,
            stocked=opened + case.restocked,
            quantity=sale.cell.quantity,
            cancelled=case.cancelled,
            came_in=case.came_in,
            unfinished=sale.unfinished_count,
        )
        for part, verdict, opened in zip(sale.parts(), verdicts, sale.shares(case.opened), strict=True)
    ]


def counts_of(sale: Sale, measured: Measurement, *, failed: int, cancelled: int) -> Counts:
    """Return the counts of orders by outcome."""
    recorder = sale.recorder
    return Counts(
        planned=measured.planned,
        sent=sale.order_count,
        sold=len(recorder.sold_numbers),
        sold_out=len(recorder.refusals),
        failed=failed,
        shed=measured.shed,
        cancelled=cancelled // sale.cell.quantity,
        first_failure=next(iter(recorder.failures), None),
    )


def times_in_window(columns: Columns, measured: Measurement, cell: Cell) -> Times:
    """Return the histograms of the window: orders of a closed loop by their answers, of an open one by intended times.

    Those of an open loop that were shed would otherwise be missing from the longest response times.
    """
    begin, end, is_open = measured.window_begin, measured.window_end, cell.loop == "open"
    inside = (columns.done >= begin) & (columns.done <= end)
    if is_open:
        inside = (columns.intended >= begin) & (columns.intended < end)
    shed = cell.batch * sum(begin <= at < end for at in measured.shed_at)
    found = columns.durations(inside)
    return Times(
        service=percentiles_of(found["service"]),
        response=percentiles_of(np.append(found["response"], np.full(shed, CAP_MS / 1_000))) if is_open else None,
        wait=percentiles_of(found["wait"]),
        hold=percentiles_of(found["hold"]),
        lateness=percentiles_of(found["lateness"]) if is_open else None,
        shed=shed,
    )


def series_of(columns: Columns, measured: Measurement, *, segments: int, batch: int = 1) -> Series:
    """Return the sale over time."""
    began = measured.began
    last = max(float(columns.done.max(initial=began)), *measured.shed_at[-1:], began)
    length = last - began
    count = max(1, int(length / BIN_SECONDS) + 1)

    def binned(at: Numbers, weights: NDArray[np.int32]) -> list[int]:
        places = np.clip(((at - began) / BIN_SECONDS).astype(int), 0, count - 1)
        return [int(one) for one in np.bincount(places, weights=weights, minlength=count)]

    shed_at = np.array(measured.shed_at)
    shed = binned(shed_at, np.full(len(shed_at), batch, dtype=np.int32)) if len(shed_at) else []
    orders = columns.sold + columns.sold_out + columns.failed
    places = np.clip(((columns.done - began) / BIN_SECONDS).astype(int), 0, count - 1)
    took = columns.done - columns.intended
    p50, longest = [], []
    for one in range(count):
        inside = places == one
        sample = np.repeat(took[inside], orders[inside]) * 1_000
        p50.append(round(float(np.median(sample)), 3) if len(sample) >= BIN_SAMPLES_MIN else None)
        longest.append(round(float(sample.max()), 3) if len(sample) else None)
    is_sold = (columns.sold > 0) & (columns.segment >= 0)
    by_segment = np.bincount(columns.segment[is_sold], weights=columns.sold[is_sold], minlength=segments)
    return Series(
        bin_s=BIN_SECONDS,
        offered=[sent + lost for sent, lost in zip(binned(columns.intended, orders), shed or [0] * count, strict=True)],
        shed=shed,
        sold=binned(columns.done, columns.sold),
        sold_out=binned(columns.done, columns.sold_out),
        failed=binned(columns.done, columns.failed),
        p50_ms=p50,
        max_ms=longest,
        window=(round(measured.window_begin - began, 3), round(measured.window_end - began, 3)),
        segment_sold=[int(one) for one in by_segment] if is_sold.any() and segments > 1 else [],
        left_at=[round(at - began, 3) for at in measured.left_at],
        left=[list(one) for one in measured.left],
        sold_at_refusal=sold_at_refusal(columns),
    )


def sold_at_refusal(columns: Columns) -> int | None:
    """Return how many orders were answered as sold until the first refusal; None without any."""
    refused = columns.done[columns.sold_out > 0]
    return int(columns.sold[columns.done <= refused.min()].sum()) if len(refused) else None


def fairness_of(columns: Columns, inside: NDArray[np.bool_], *, buyers: int) -> Fairness:
    """Return how evenly the buyers were served (R. Jain, D. Chiu, W. Hawe, 1984)."""
    each = np.bincount(columns.buyer[inside], weights=columns.sold[inside], minlength=buyers)
    squares = float((each**2).sum())
    granted = inside & (columns.sold > 0) & (columns.granted > 0)
    waits = (columns.granted - columns.asked)[granted]
    return Fairness(
        jain=round(float(each.sum()) ** 2 / (len(each) * squares), 4) if squares else 0.0,
        longest_wait_ms=round(float(waits.max()) * 1_000, 3) if len(waits) else 0.0,
        by_buyer=[int(one) for one in each],
    )


def unsold(sold: int) -> tuple[str, ...]:
    """Return why a run is void in which nothing was sold: a rate of 0 has no ratio to another."""
    return () if sold else ("no order was sold in the measured window",)


def too_short(cell: Cell, window_s: float, seconds: float) -> tuple[str, ...]:
    """Return why a closed run is void: it was calibrated while the machine was slow, and sold out too soon."""
    least = LEAST_SHARE * seconds
    if cell.stock is not None or window_s >= least:
        return ()
    return (f"sold out too soon: {window_s:.3f} s were measured, and it takes {least:.3f} s",)


def voided(sale: Sale, measurement: Measurement) -> tuple[str, ...]:
    """Return why an open run is void, one sentence each: a late generator, or a sale that was given up."""
    recorder = sale.recorder
    found = []
    if len(recorder.failures) >= FAILED_MAX:
        found.append(f"given up after {len(recorder.failures)} orders without an answer: {recorder.failures[0]}")
    if sale.unfinished_count:
        found.append(f"orders that had not ended when the run did: {sale.unfinished_count}")
    intended = np.asarray(recorder.intended)
    inside = (intended >= measurement.window_begin) & (intended < measurement.window_end)
    if inside.any():
        late = p99_ms((np.asarray(recorder.asked) - intended)[inside])
        response = p99_ms((np.asarray(recorder.done) - intended)[inside])
        if late > LATE_SHARE * response:
            found.append(
                f"the generator was late: p99 of the lateness is {late:.3f} ms, more than {LATE_SHARE:.0%} "
                f"of the response's {response:.3f} ms"
            )
    return tuple(found)


def noted(shed: int, planned: int, buyers: int) -> tuple[str, ...]:
    """Return notes on an open run that is not void: whether the load was beyond saturation."""
    if shed <= SHED_SHARE * planned:
        return ()
    note = (
        f"beyond saturation: {shed} of {planned} orders ({shed / planned:.1%}) found all "
        f"{buyers} buyers busy, were never sent, and count as failures"
    )
    return (note,)


# --- a run that failed ---

SERIES: Final = (*("offered", "sold", "sold_out", "failed", "p50_ms", "max_ms"), *("segment_sold", "left_at", "left"))
UNKNOWN: Final = ("orders_per_s", "fairness", "history", "history_sha256")
NOTHING: Final = ("sold_out_per_s", "failed_per_s", "window_s", "drain_s", "lanes", "recorder_share")


def lost_run(turn: Turn, cell: Cell, error: Exception, *, started_at: str) -> Run:
    """Return the record of a run that failed, or whose process did: nothing was measured, and why. It is void."""
    nothing, is_open = percentiles_of(np.zeros(0)), cell.loop == "open"
    books: dict[str, Any] = dict.fromkeys(COUNTED, 0) | {"stock": cell.stock or 0}
    empty: dict[str, Any] = {name: [] for name in SERIES}
    rest: dict[str, Any] = dict.fromkeys(UNKNOWN) | dict.fromkeys(NOTHING, 0)
    response = nothing if is_open else None
    return Run(
        run=turn.number,
        round=turn.round,
        cell=cell,
        cell_id=cell.cell_id,
        arm=turn.arm,
        sweeps=turn.planned.sweeps,
        seed=turn.seed,
        started_at=started_at,
        void=(f"the run ended without a record: {error}",),
        is_control=STRATEGIES[cell.strategy].is_control,
        warm_up_s=turn.planned.warm_up,
        saturated=(),
        counts=Counts(planned=0, sent=0, sold=0, sold_out=0, failed=0, shed=0, first_failure=str(error)),
        checker=Checker(**books, sold_in_sql=None, audit="none"),
        times=Times(service=nothing, response=response, wait=nothing, hold=nothing, lateness=response),
        work=Work(commands=0, round_trips=0, attempts=0, server_us=0, bytes=0),
        cpu=Cpu(generator=0, redis=0, database=None, machine=0, others=0, steal=0),
        series=Series(bin_s=BIN_SECONDS, window=(0.0, 0.0), **empty),
        guarantees={},
        server={},
        offered_percent=turn.planned.percent,
        **rest,
    )
