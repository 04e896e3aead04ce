"""Messages that come twice, because a worker was slow or was killed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.context import ORDER
from bench.dedup_peers.finding import one_effect, one_run
from bench.dedup_peers.settings import CHARGE

if TYPE_CHECKING:
    from bench.dedup_peers.context import BenchContext
    from bench.dedup_peers.finding import Finding

HELD_SECONDS: Final = 15.0
ABSORBED_SECONDS: Final = 25.0


def visibility_timeout(context: BenchContext) -> Finding:
    """F4: the message comes again while its task is still running."""
    settings = replace(context.base, visibility_seconds=3, seconds_before=8)
    for _ in range(2):
        context.worker(settings)
    context.publisher(settings).submit(CHARGE, ORDER, 1)
    context.until(lambda: context.effects() > 0, HELD_SECONDS)
    context.settle(ABSORBED_SECONDS, unless=lambda: context.effects() > 1)
    return one_run(context)


def killed_after_effect(context: BenchContext) -> Finding:
    """F1: only the effect itself shows that it happened."""
    return _killed(context, "effect")


def killed_after_return(context: BenchContext) -> Finding:
    """F18: everything is recorded, and the message comes again."""
    return _killed(context, "returned")


def _killed(context: BenchContext, hold_at: str) -> Finding:
    worker = context.worker(replace(context.base, hold_at=hold_at))
    context.publisher().submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = context.unacked()
    context.worker(context.base)
    context.redeliver(tags)
    context.settle(ABSORBED_SECONDS, unless=lambda: context.effects() > 1)
    return one_effect(context, "1 kill")


def forked_retry(context: BenchContext) -> Finding:
    """F8: the first attempt is delivered again while the second one is running."""
    worker = context.worker(replace(context.base, retries=1, hold_at="retry"))
    context.publisher().submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("held")), HELD_SECONDS)
    worker.kill()
    tags = context.unacked()
    for _ in range(2):
        context.worker(replace(context.base, retries=1, seconds_before=4))
    context.until(lambda: any(entry.attempt == 1 for entry in context.seen("began", ORDER)), HELD_SECONDS)
    context.redeliver(tags)
    context.settle(ABSORBED_SECONDS, unless=lambda: context.effects() > 1)
    attempts = [str(entry.attempt) for entry in context.seen("began", ORDER)]
    return one_effect(context, f"attempts {', '.join(attempts)}")
