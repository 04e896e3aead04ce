"""The whole benchmark `stock`, on one server."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from redis.utils import HIREDIS_AVAILABLE

from bench.conditions import server_conditions
from bench.figures import FigureResults
from bench.micro.stock.bare import OWN, program
from bench.micro.stock.carts import measure_carts
from bench.micro.stock.context import BenchContext, Sizes, event_loops, pinned
from bench.micro.stock.grants import measure_grants
from bench.micro.stock.rates import measure_costs, measure_rates
from bench.micro.stock.shards import measure_shards
from bench.micro.stock.steps import measure_steps
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from bench.display import Display

NAME: Final = "stock"
MEASURED: Final = (measure_rates, measure_costs, measure_carts, measure_steps, measure_shards, measure_grants)


def measure_stock(url: str | None, display: Display, sizes: Sizes | None = None) -> FigureResults:
    """Measure on an embedded server, unless another is named, which no other program may use."""
    with ExitStack() as stack:
        pid = None
        if url is None:
            server = stack.enter_context(ValkeyServer.start())
            url, pid = server.url, server.pid
        whole = server_conditions(url)  # before this process is pinned to some of the cores
        placement = stack.enter_context(pinned(pid))
        found = {**whole, "placement": placement, "bare_by": program()}
        stack.callback(gc.unfreeze)
        gc.collect()
        gc.freeze()  # otherwise each full collection scans all imports during a measurement
        with display.strategy(NAME) as progress:
            context = BenchContext(url, sizes or Sizes(), progress)
            figures = tuple(figure for measure in MEASURED for figure in measure(context))
    parser = "hiredis" if HIREDIS_AVAILABLE else "redis-py's own parsers"
    remarks = [
        f"The bare decrement was driven by {program()}; {placement}.",
        f"Replies were read by {parser}; calls were awaited on {' and on '.join(event_loops())}, batches on the first.",
        "This process called gc.freeze() when it had imported everything, as a service may.",
    ]
    if program() == OWN:
        remarks.append("Ratios to it are too good: that client is written in Python. Install redis-benchmark.")
    return FigureResults(NAME, figures, found, tuple(remarks))
