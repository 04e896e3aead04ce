"""An open loop in its own process: every arrival of the schedule is sent or shed, and counted."""

from __future__ import annotations

from contextlib import closing

import pytest

from bench.engine.cell import Cell, RunAssignment, schedule_of
from bench.engine.percentiles import CAP_MS
from bench.engine.record import Run
from bench.engine.session import MODULE, MeasuringProcess

STOCK = 8


def test_arrivals_beyond_those_under_way_are_shed_and_the_sale_ends_in_mid_run(valkey_url: str) -> None:
    cell = Cell(strategy="global-lock", hold_ms=20, buyers=2, loop="open", offered_per_s=200, stock=STOCK, batch=1)
    assignment = RunAssignment(
        cell=cell, seed=11, url=valkey_url, meter_url=valkey_url, database=None, stock=STOCK, seconds=0.8, warm_up=0.1
    )
    phases: list[tuple[str, int, int]] = []
    with closing(MeasuringProcess(MODULE)) as child:
        run = Run.model_validate(child.run(assignment, lambda *said: phases.append(said)))
    planned = len(schedule_of(cell, warm_up=0.1, seconds=0.8, seed=11))
    counts = run.counts
    assert counts.planned == planned == counts.sent + counts.shed
    sold = min(STOCK, counts.sent)  # all, unless the process stood still in the sale and so could send only a few
    assert (counts.sold, counts.sold_out) == (sold, counts.sent - sold)
    assert counts.failed == counts.shed == sum(run.series.shed) > 0
    assert sum(run.series.offered) == planned
    if counts.sold_out:
        assert STOCK - 1 <= (run.series.sold_at_refusal or 0) <= STOCK  # the last one may be answered after it
    assert run.notes[0].startswith(f"beyond saturation: {counts.shed} of {planned} orders")
    assert (run.checker.sold, run.checker.oversold, run.checker.refused_wrongly) == (sold, 0, 0)
    assert run.times.response is not None
    assert run.times.lateness is not None
    assert run.times.service.n == run.times.lateness.n <= counts.sent
    assert run.times.response.n == run.times.service.n + run.times.shed
    assert run.times.response.max == pytest.approx(CAP_MS, rel=0.001)  # three digits
    at_most = sum(run.series.shed)
    assert 0 < run.times.shed <= at_most
    assert run.fairness is None
    assert phases[0][2] == planned
