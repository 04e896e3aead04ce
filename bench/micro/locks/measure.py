"""The whole benchmark `locks`: uncontended, contended, and renewal, on one server.

Ten thousand held leases of 30 s, renewed by one scheduler: the share of a core that this takes.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from redis.utils import HIREDIS_AVAILABLE

from bench.conditions import server_conditions
from bench.environments import ROOT, Environment, interpreter_of, is_made
from bench.figures import Figure, FigureResults
from bench.micro.locks.contended import measure_contended
from bench.micro.locks.cycles import PEERS
from bench.micro.locks.uncontended import ROUNDS, measure_uncontended
from segmented import Lease, RedisStore
from segmented.errors import SegmentedError
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired
from segmented.servers import ValkeyServer

if TYPE_CHECKING:
    from pathlib import Path

    from bench.display import Display, Progress

NAME: Final = "locks"
REQUIREMENTS: Final = ROOT / "tests" / "conformance" / "locks"
"""Folder of the pinned requirements of other libraries."""
LEASES: Final = 10_000
TTL_MS: Final = 30_000
WATCHED_SECONDS: Final = 30.0
"""Seconds of the measurement: three renewals of every lease."""
CORE_MAX: Final = 0.05


def measure_locks(
    url: str | None, display: Display, *, is_quick: bool = False, rounds: int | None = None
) -> FigureResults:
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
                *measure_uncontended(url, pythons, progress, rounds=rounds or ROUNDS),
                *measure_contended(url, progress),
                *(() if is_quick else measure_renewal(url, progress)),
            )
    why = "are not made yet" if is_quick else "could not be made"
    parser = "hiredis" if HIREDIS_AVAILABLE else "redis-py's own parsers"
    missing = [peer for peer in PEERS.values() if peer not in pythons]
    remarks = [f"Not measured, because their environments {why}: {', '.join(missing)}."] if missing else []
    return FigureResults(NAME, figures, found, (f"segmented and redis-py read replies by {parser}.", *remarks))


def _pythons(progress: Progress, *, only_there: bool) -> dict[str, Path]:
    """Return the interpreters of the competitors' environments; missing environments are created."""
    found = {}
    for name in PEERS.values():
        library = Environment(name, REQUIREMENTS)
        if not only_there or is_made(library, ROOT / ".peers"):
            progress(f"environment of {library.name}", 0, 1)
            with suppress(SegmentedError):  # a remark names the missing one
                found[library.name] = interpreter_of(library, ROOT / ".peers")
    return found


def measure_renewal(url: str, progress: Progress) -> list[Figure]:
    """Hold the leases for a while, and read the CPU time of this otherwise idle process."""
    others = _keepers()  # threads of other stores of this process
    with RedisStore.from_url(url) as store:
        leases = _held(store)
        threads = len(_keepers() - others)
        cpu, began = time.process_time(), time.perf_counter()
        while (passed := time.perf_counter() - began) < WATCHED_SECONDS:
            progress("10,000 leases renewed", int(passed), int(WATCHED_SECONDS))
            time.sleep(1)
        used = (time.process_time() - cpu) / passed
        lost = sum(lease.is_lost for lease in leases)
        for start in range(0, LEASES, 1_000):
            store.execute_many([lease.claim.releasing() for lease in leases[start : start + 1_000]])
        for lease in leases:
            lease.has_ended = True
    return [
        Figure("10,000 leases of 30 s: cores used to renew them", used, "", at_most=CORE_MAX),
        Figure("10,000 leases of 30 s: lost", lost, "", at_most=0, is_promise=True),
        Figure("10,000 leases of 30 s: threads", threads, "", at_most=1, is_promise=True),
    ]


def _keepers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "segmented-keeper"}


def _held(store: RedisStore) -> list[Lease]:
    claims = [LockClaim(f"renewed-{index}", f"h{index}", TTL_MS) for index in range(LEASES)]
    asked_at = store.clock.now()
    answers = store.execute_many([claim.acquiring() for claim in claims])
    renewal = Renewal(is_wanted=True, seconds_max=3_600)
    return [
        Lease(store, claim, renewal, answer, asked_at)
        for claim, answer in zip(claims, answers, strict=True)
        if isinstance(answer, Acquired)
    ]
