"""The whole benchmark `dedup`, on one server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.conditions import server_conditions
from bench.dedup.context import BenchContext, Sizes, emptied
from bench.dedup.records import measure_claims, measure_memory
from bench.dedup.trivial import measure_trivial
from bench.locks.figures import LockResults
from bench.stock.context import pinned
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from bench.display import Display

NAME: Final = "dedup"


def measure_dedup(url: str | None, display: Display, sizes: Sizes | None = None) -> LockResults:
    """Measure on an embedded server, unless another is named: it must be empty, and is emptied at the end."""
    with ExitStack() as stack:
        pid = None
        if url is None:
            server = stack.enter_context(ValkeyServer.start())
            url, pid = server.url, server.pid
        stack.enter_context(emptied(url))
        whole = server_conditions(url, "celery")  # before this process is pinned to some of the cores
        placement = stack.enter_context(pinned(pid))
        found = {**whole, "placement": placement}
        with display.strategy(NAME) as progress:
            context = BenchContext(url, sizes or Sizes(), progress)
            figures = (*measure_trivial(context), *measure_memory(context), *measure_claims(context))
    remark = f"Broker and records are databases of one server; {placement}; one worker process (solo), results ignored."
    return LockResults(figures, found, (remark,), benchmark=NAME)
