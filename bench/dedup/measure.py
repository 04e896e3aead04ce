"""The benchmark `dedup`, whole, on one server."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from bench.conditions import commit, cpu_model, package_versions
from bench.cpu import core_count
from bench.dedup.claims import measure_claims
from bench.dedup.memory import measure_memory
from bench.dedup.sizes import Sizes
from bench.dedup.stage import Stage, emptied
from bench.dedup.trivial import measure_trivial
from bench.locks.figures import LockResults
from bench.stock.stage import pinned
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore

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
        cores = core_count()
        placement = stack.enter_context(pinned(pid))
        with RedisStore.from_url(url) as store:
            info = store.client.info("server")
        name = str(info.get("server_name", "redis"))
        found = {
            "versions": {
                "python": platform.python_version(),
                **package_versions(),
                "celery": version("celery"),
                name: str(info.get(f"{name}_version", info["redis_version"])),
            },
            "cores": cores,
            "commit": commit(),
            "cpu_model": cpu_model(),
            "system": platform.platform(),
            "load_before": round(os.getloadavg()[0], 2),
            "transport": url.partition("://")[0],
            "placement": placement,
        }
        with watch.strategy(NAME) as told:
            stage = Stage(url, sizes or Sizes(), told)
            figures = (*measure_trivial(stage), *measure_memory(stage), *measure_claims(stage))
    remark = f"Broker and records are databases of one server; {placement}; one worker process (solo), results ignored."
    return LockResults(figures, found, (remark,), benchmark=NAME)
