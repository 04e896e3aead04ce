"""One run of `torture locks`, from its servers to its verdict."""

from __future__ import annotations

import os
import platform
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.conditions import commit, cpu_model, package_versions
from bench.cpu import core_count
from bench.torture.checker import check
from bench.torture.events import line_of, read_events
from bench.torture.results import TortureResults
from bench.torture.supervisor import NAMES, Supervisor
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer
from segmented.stores.redis import RedisStore

if TYPE_CHECKING:
    from bench.display import Display
    from bench.torture.events import Event
    from bench.torture.options import TortureOptions


def torture_locks(options: TortureOptions, display: Display) -> TortureResults:
    """Test one kind of lock under faults, on embedded servers unless another is named.

    Raises InvalidInput for an unusable server, and SegmentedError if the contenders do not start.
    """
    kind = options.what()
    with ExitStack() as stack:
        if options.url is not None:
            urls = [options.url]
        else:
            urls = [stack.enter_context(ValkeyServer.start()).url for _ in range(kind.servers)]
        found = conditions(options, urls[0])
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-torture-")))
        path = options.log or folder / "accesses.jsonl"
        try:
            log = stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            message = f"--log {path} cannot be written: {error.strerror}"
            raise InvalidInput(message) from error

        def note(event: Event) -> None:
            log.write(line_of(event))

        progress = stack.enter_context(display.strategy(kind.name))
        with Supervisor(options, urls, folder / "resource", note) as supervisor:
            supervisor.start(progress)
            supervisor.inject_faults(progress)
            progress("stopping", 0, 1)
            supervisor.stop()
            left = supervisor.leftovers()
        progress("checking the log", 0, 1)
        log.flush()
        with path.open(encoding="utf-8") as lines:
            verdict = check(read_events(lines), kind)
        processes = supervisor.processes
        return TortureResults(kind, verdict, left, processes.started, supervisor.stuck, tuple(processes.crashes), found)


def conditions(options: TortureOptions, url: str) -> dict[str, Any]:
    """Return versions, cores and options. Raises InvalidInput for an unusable server."""
    with RedisStore.from_url(url) as store:
        info = store.client.info("server")
    server = str(info.get("server_name", "redis"))
    return {
        "versions": {
            "python": platform.python_version(),
            **package_versions(),
            server: str(info.get(f"{server}_version", info["redis_version"])),
        },
        "cores": core_count(),
        "commit": commit(),
        "cpu_model": cpu_model(),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
        "options": {
            "kind": options.kind,
            "seconds": options.seconds,
            "processes": options.processes,
            "threads": options.threads,
            "names": NAMES,
            "ttl": options.what().ttl,
            "seed": options.seed,
            "cut_connections": options.cut_connections,
            "embedded": options.url is None,
        },
    }
