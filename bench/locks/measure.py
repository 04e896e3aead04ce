"""The whole benchmark `locks`: uncontended, contended, and renewal, on one server."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from redis.utils import HIREDIS_AVAILABLE

from bench.conditions import server_conditions
from bench.locks.contended import measure_contended
from bench.locks.cycles import PEERS
from bench.locks.figures import LockResults
from bench.locks.renewal import measure_renewal
from bench.locks.uncontended import measure_uncontended
from bench.peers.environments import interpreter_of, is_made
from bench.peers.registry import PEERS as LIBRARIES
from bench.peers.rows import ROOT
from segmented.errors import SegmentedError
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from pathlib import Path

    from bench.display import Display, Progress

NAME: Final = "locks"


def measure_locks(url: str | None, display: Display, *, is_quick: bool = False) -> LockResults:
    """Measure on an embedded server, unless another is named, which no other program may use.

    `is_quick` leaves out libraries whose environments do not exist yet, and the renewal of 10,000 leases.
    """
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(ValkeyServer.start()).url
        found = server_conditions(url)
        with display.strategy(NAME) as progress:
            pythons = _pythons(progress, only_there=is_quick)
            figures = (
                *measure_uncontended(url, pythons, progress),
                *measure_contended(url, progress),
                *(() if is_quick else measure_renewal(url, progress)),
            )
    why = "are not made yet" if is_quick else "could not be made"
    parser = "hiredis" if HIREDIS_AVAILABLE else "redis-py's own parsers"
    missing = [peer for peer in PEERS.values() if peer not in pythons]
    remarks = [f"Not measured, because their environments {why}: {', '.join(missing)}."] if missing else []
    return LockResults(figures, found, (f"segmented and redis-py read replies by {parser}.", *remarks))


def _pythons(progress: Progress, *, only_there: bool) -> dict[str, Path]:
    """Return the interpreters of the competitors' environments; missing environments are created."""
    found = {}
    for library in LIBRARIES:
        if library.name in PEERS.values() and (not only_there or is_made(library, ROOT / ".peers")):
            progress(f"environment of {library.name}", 0, 1)
            with suppress(SegmentedError):  # a remark names the missing one
                found[library.name] = interpreter_of(library, ROOT / ".peers")
    return found
