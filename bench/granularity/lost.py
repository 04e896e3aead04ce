"""The record of a run that produced none: it or its process failed. It counts as void."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.granularity.percentiles import percentiles_of
from bench.granularity.record import Checker, Counts, Cpu, Run, Series, Times, Work
from bench.strategies import STRATEGIES

if TYPE_CHECKING:
    from bench.granularity.cell import Cell
    from bench.granularity.schedule import Turn


def lost_run(turn: Turn, cell: Cell, error: Exception, *, started_at: str) -> Run:
    """Return the record: nothing was measured, and why."""
    planned = turn.planned
    nothing = percentiles_of(np.zeros(0))
    is_open = cell.loop == "open"
    return Run(
        run=turn.number,
        round=turn.round,
        cell=cell,
        cell_id=cell.cell_id,
        arm=turn.arm,
        sweeps=planned.sweeps,
        seed=turn.seed,
        started_at=started_at,
        orders_per_s=None,
        sold_out_per_s=0.0,
        failed_per_s=0.0,
        void=(f"the run ended without a record: {error}",),
        is_control=STRATEGIES[cell.strategy].is_control,
        warm_up_s=planned.warm_up,
        window_s=0.0,
        drain_s=0.0,
        lanes=0,
        saturated=(),
        counts=Counts(planned=0, sent=0, sold=0, sold_out=0, failed=0, shed=0, first_failure=str(error)),
        checker=Checker(
            stock=cell.stock or 0,
            sold=0,
            sold_in_sql=None,
            oversold=0,
            refused_wrongly=0,
            stranded=0,
            duplicates=0,
            lost=0,
            audit="none",
        ),
        times=Times(
            service=nothing,
            response=nothing if is_open else None,
            wait=nothing,
            hold=nothing,
            lateness=nothing if is_open else None,
        ),
        work=Work(commands=0, round_trips=0, attempts=0, server_us=0, bytes=0),
        cpu=Cpu(generator=0, redis=0, database=None, machine=0, others=0, steal=0),
        series=Series(
            bin_s=0.1,
            offered=[],
            sold=[],
            sold_out=[],
            failed=[],
            p50_ms=[],
            max_ms=[],
            window=(0.0, 0.0),
            segment_sold=[],
            left_at=[],
            left=[],
        ),
        fairness=None,
        recorder_share=0.0,
        history=None,
        history_sha256=None,
        guarantees={},
        server={},
        offered_percent=planned.percent,
    )
