"""The whole benchmark `workers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.conditions import server_conditions
from bench.locks.figures import Figure, LockResults
from bench.workers.bursts import measure_bursts
from bench.workers.context import started_context
from bench.workers.figures import broken_figure, burst_figures, latency_figures, recovery_figures
from bench.workers.latency import measure_latency
from bench.workers.processes import POOL, PROCESSES
from bench.workers.recovery import measure_recovery
from bench.workers.sizes import Sizes

if TYPE_CHECKING:
    from bench.display import Display

NAME: Final = "workers"


def measure_workers(url: str | None, database: str | None, display: Display, sizes: Sizes | None = None) -> LockResults:
    """Measure on embedded servers, unless others are named: a stock server must be empty, and is emptied at the end."""
    with display.strategy(NAME) as progress, started_context(url, database, sizes or Sizes(), progress) as context:
        placement = f"{PROCESSES} workers ({POOL}), shop and servers share the cores"
        found = {**server_conditions(context.url, "celery", "kombu"), "placement": placement}
        bursts, others = measure_bursts(context)
        waited = measure_latency(context)
        recovered = measure_recovery(context)
        broken = dict(context.broken)
    figures = (
        broken_figure(broken),
        *burst_figures(bursts, broken),
        *latency_figures(waited, broken),
        *recovery_figures(recovered, broken),
        Figure("cores that others used meanwhile", max(0.0, others), ""),
    )
    remarks = (
        *(f"No figures for {part}: {fault}." for part, fault in broken.items()),
        f"{PROCESSES} worker processes ({POOL} pool), the same ones for everything; broker and stock on servers apart.",
    )
    return LockResults(figures, found, remarks, benchmark=NAME)
