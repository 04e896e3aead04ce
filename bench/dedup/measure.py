"""The benchmark `dedup`, whole, on one server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.conditions import server_conditions
from bench.dedup.records import measure_claims, measure_memory
from bench.dedup.sizes import Sizes
from bench.dedup.stage import Stage, emptied
from bench.dedup.trivial import measure_trivial
from bench.locks.figures import LockResults
from bench.stock.stage import pinned
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from bench.watch import Watch

NAME: Final = "dedup"


def measure_dedup(url: str | None, watch: Watch, sizes: Sizes | None = None) -> LockResults:
    """Measure on an embedded server, unless another is named: it must be empty, and is emptied in the end."""
    with ExitStack() as stack:
        pid = None
        if url is None:
            server = stack.enter_context(ValkeyServer.start())
            url, pid = server.url, server.pid
        stack.enter_context(emptied(url))
        whole = server_conditions(url, "celery")  # before this process is confined to some of the cores
        placement = stack.enter_context(pinned(pid))
        found = {**whole, "placement": placement}
        with watch.strategy(NAME) as told:
            stage = Stage(url, sizes or Sizes(), told)
            figures = (*measure_trivial(stage), *measure_memory(stage), *measure_claims(stage))
    remark = f"Broker and records are databases of one server; {placement}; one worker process (solo), results ignored."
    return LockResults(figures, found, (remark,), benchmark=NAME)
