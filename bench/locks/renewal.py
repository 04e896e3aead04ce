"""Ten thousand held leases of 30 s, renewed by one scheduler: the share of a core that this takes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from bench.locks.figures import Figure
from segmented import Lease, RedisStore
from segmented.locks.lease_state import Renewal
from segmented.locks.lock import LockClaim
from segmented.models import Acquired

if TYPE_CHECKING:
    from collections.abc import Callable

LEASES: Final = 10_000
TTL_MS: Final = 30_000
WATCHED_SECONDS: Final = 30.0
"""Seconds of the measurement: three renewals of every lease."""
CORE_MAX: Final = 0.05


def measure_renewal(url: str, progress: Callable[[str, int, int], None]) -> list[Figure]:
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
