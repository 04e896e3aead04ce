"""The figures in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.report_page.figures.batches import batches, durability
from bench.report_page.figures.clients import throughput_by_buyers
from bench.report_page.figures.crossover import crossover
from bench.report_page.figures.fairness import fairness
from bench.report_page.figures.fragmentation import fragmentation
from bench.report_page.figures.load import latency_by_load
from bench.report_page.figures.over_time import outcomes, sale_over_time, segment_map
from bench.report_page.figures.ratios import ratios
from bench.report_page.figures.segments import speed_up, throughput
from bench.report_page.figures.spread import spectrum, waits_and_holds
from bench.report_page.figures.strategies import strategies
from bench.report_page.figures.work import work
from bench.report_page.unfavourable import unfavourable_figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.report_page.drawn import Outcome
    from bench.report_page.facts import Facts

FIGURES: Final[tuple[Callable[[Facts], Outcome], ...]] = (
    throughput,
    strategies,
    speed_up,
    throughput_by_buyers,
    latency_by_load,
    spectrum,
    waits_and_holds,
    sale_over_time,
    segment_map,
    fragmentation,
    work,
    crossover,
    batches,
    durability,
    fairness,
    ratios,
    outcomes,
    unfavourable_figure,
)
"""F1 to F16, all strategies after the first, and the unfavourable cases last."""
