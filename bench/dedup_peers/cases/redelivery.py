"""Messages that come twice, because a worker was slow or was killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.finding import one_effect, one_run
from bench.dedup_peers.settings import CHARGE
from bench.dedup_peers.testbed import ORDER

if TYPE_CHECKING:
    from bench.dedup_peers.finding import Finding
    from bench.dedup_peers.testbed import Testbed

HELD_SECONDS: Final = 15.0
ABSORBED_SECONDS: Final = 25.0


def visibility_timeout(testbed: Testbed) -> Finding:
    """F4: the message comes again while its task is still running."""
    settings = replace(testbed.base, visibility_seconds=3, seconds_before=8)
    for _ in range(2):
        testbed.worker(settings)
    testbed.publisher(settings).submit(CHARGE, ORDER, 1)
    testbed.until(lambda: testbed.effects() > 0, HELD_SECONDS)
    testbed.settle(ABSORBED_SECONDS, unless=lambda: testbed.effects() > 1)
    return one_run(testbed)


def killed_after_effect(testbed: Testbed) -> Finding:
    """F1: nothing but the effect knows that the effect was had."""
    return _killed(testbed, "effect")


def killed_after_return(testbed: Testbed) -> Finding:
    """F18: everything is recorded, and the message comes again."""
    return _killed(testbed, "returned")


def _killed(testbed: Testbed, hold_at: str) -> Finding:
    worker = testbed.worker(replace(testbed.base, hold_at=hold_at))
    testbed.publisher().submit(CHARGE, ORDER, 1)
    testbed.until(lambda: bool(testbed.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = testbed.unacked()
    testbed.worker(testbed.base)
    testbed.redeliver(tags)
    testbed.settle(ABSORBED_SECONDS, unless=lambda: testbed.effects() > 1)
    return one_effect(testbed, "1 kill")


def forked_retry(testbed: Testbed) -> Finding:
    """F8: the first attempt is delivered again while the second one is running."""
    worker = testbed.worker(replace(testbed.base, retries=1, hold_at="retry"))
    testbed.publisher().submit(CHARGE, ORDER, 1)
    testbed.until(lambda: bool(testbed.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = testbed.unacked()
    for _ in range(2):
        testbed.worker(replace(testbed.base, retries=1, seconds_before=4))
    testbed.until(lambda: any(entry.attempt == 1 for entry in testbed.seen("began", ORDER)), HELD_SECONDS)
    testbed.redeliver(tags)
    testbed.settle(ABSORBED_SECONDS, unless=lambda: testbed.effects() > 1)
    attempts = [str(entry.attempt) for entry in testbed.seen("began", ORDER)]
    return one_effect(testbed, f"attempts {', '.join(attempts)}")
