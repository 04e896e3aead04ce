"""One run of `torture locks`, from its servers to its verdict."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.conditions import server_conditions
from bench.proof.torture.checker import check
from bench.proof.torture.events import line_of, read_events
from bench.proof.torture.options import RESTART
from bench.proof.torture.restarts import DURABLE
from bench.proof.torture.results import TortureResults
from bench.proof.torture.supervisor import NAMES, Supervisor
from segmented.errors import InvalidInput
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from bench.display import Display
    from bench.proof.torture.events import Event
    from bench.proof.torture.options import TortureOptions


def torture_locks(options: TortureOptions, display: Display) -> TortureResults:
    """Test one kind of lock under faults, on embedded servers unless another is named.

    Raises InvalidInput for an unusable server, and SegmentedError if the contenders do not start.
    """
    kind = options.what()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="segmented-torture-")))
        servers: list[ValkeyServer] = []
        if options.url is None:
            servers = [stack.enter_context(_server(options, folder / f"data-{n}")) for n in range(kind.servers)]
        urls = [server.url for server in servers] or [str(options.url)]
        found = conditions(options, urls[0])
        path = options.log or folder / "accesses.jsonl"
        try:
            log = stack.enter_context(path.open("w", encoding="utf-8"))
        except OSError as error:
            message = f"--log {path} cannot be written: {error.strerror}"
            raise InvalidInput(message) from error

        def note(event: Event) -> None:
            log.write(line_of(event))

        progress = stack.enter_context(display.strategy(kind.name))
        restarted = servers if options.injects(RESTART) else []
        with Supervisor(options, urls, folder / "resource", note, restarted=restarted) as supervisor:
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


def _server(options: TortureOptions, data: Path) -> ValkeyServer:
    """Start a server, which keeps its data if it is to be restarted."""
    return ValkeyServer.start(data, config=DURABLE) if options.injects(RESTART) else ValkeyServer.start()


def conditions(options: TortureOptions, url: str) -> dict[str, Any]:
    """Return versions, cores and options. Raises InvalidInput for an unusable server."""
    return server_conditions(url) | {
        "options": {
            "kind": options.kind,
            "seconds": options.seconds,
            "processes": options.processes,
            "threads": options.threads,
            "names": NAMES,
            "ttl": options.what().ttl,
            "seed": options.seed,
            "faults": options.faults,
            "embedded": options.url is None,
        },
    }
