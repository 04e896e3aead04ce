"""Messages that come twice, because a worker was slow or was killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.finding import one_effect, one_run
from bench.dedup_peers.settings import CHARGE
from bench.dedup_peers.stage import ORDER

if TYPE_CHECKING:
    from bench.dedup_peers.finding import Finding
    from bench.dedup_peers.stage import Stage

HELD_SECONDS: Final = 15.0
ABSORBED_SECONDS: Final = 25.0


def visibility_timeout(stage: Stage) -> Finding:
    """F4: the message comes again while its task is still running."""
    settings = replace(stage.base, visibility_seconds=3, seconds_before=8)
    for _ in range(2):
        stage.worker(settings)
    stage.publisher(settings).submit(CHARGE, ORDER, 1)
    stage.until(lambda: stage.effects() > 0, HELD_SECONDS)
    stage.settle(ABSORBED_SECONDS, unless=lambda: stage.effects() > 1)
    return one_run(stage)


def killed_after_effect(stage: Stage) -> Finding:
    """F1: nothing but the effect knows that the effect was had."""
    return _killed(stage, "effect")


def killed_after_return(stage: Stage) -> Finding:
    """F18: everything is recorded, and the message comes again."""
    return _killed(stage, "returned")


def _killed(stage: Stage, hold_at: str) -> Finding:
    worker = stage.worker(replace(stage.base, hold_at=hold_at))
    stage.publisher().submit(CHARGE, ORDER, 1)
    stage.until(lambda: bool(stage.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = stage.unacked()
    stage.worker(stage.base)
    stage.redeliver(tags)
    stage.settle(ABSORBED_SECONDS, unless=lambda: stage.effects() > 1)
    return one_effect(stage, "1 kill")


def forked_retry(stage: Stage) -> Finding:
    """F8: the first attempt is delivered again while the second one is running."""
    worker = stage.worker(replace(stage.base, retries=1, hold_at="retry"))
    stage.publisher().submit(CHARGE, ORDER, 1)
    stage.until(lambda: bool(stage.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = stage.unacked()
    for _ in range(2):
        stage.worker(replace(stage.base, retries=1, seconds_before=4))
    stage.until(lambda: any(entry.attempt == 1 for entry in stage.seen("began", ORDER)), HELD_SECONDS)
    stage.redeliver(tags)
    stage.settle(ABSORBED_SECONDS, unless=lambda: stage.effects() > 1)
    attempts = [str(entry.attempt) for entry in stage.seen("began", ORDER)]
    return one_effect(stage, f"attempts {', '.join(attempts)}")
