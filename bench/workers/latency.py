"""Idle latency: one order after another, from `pool.submit` until `handle.wait` returns its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.workers.checker import faults
from bench.workers.context import DECIDING

if TYPE_CHECKING:
    from bench.workers.context import BenchContext
    from segmented.models.submitted import Deciding

WARM_UP: Final = 20


def part_name(decides: Deciding) -> str:
    """Return the name of the part."""
    return f"idle latency, decided {decides}"


def measure_latency(context: BenchContext) -> dict[Deciding, list[float]]:
    """Return the seconds of every order; rounds of both ways of deciding alternate."""
    found: dict[Deciding, list[float]] = {decides: [] for decides in DECIDING}
    for number in range(context.sizes.rounds):
        context.progress("idle latency", number, context.sizes.rounds)
        for decides in DECIDING:
            with context.pool(decides) as pool:
                ids = [f"i-{index}" for index in range(WARM_UP + context.sizes.latencies)]
                seconds = context.processes.ask(
                    {"do": "latency", "sku": pool.sku, "decides": decides, "order_ids": ids}
                )
                found[decides] += seconds[WARM_UP:]
                if fault := faults(pool, len(ids)):
                    context.broken.setdefault(part_name(decides), fault)
    return found
