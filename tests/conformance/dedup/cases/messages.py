"""Cases about messages: submitted at once by many, without a broker or a store, and delivered twice after a kill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.clusters import free_port
from segmented.models.ids import counted
from tests.conformance.dedup.context import ORDER, Finding, one_effect, one_run
from tests.conformance.dedup.settings import CHARGE

if TYPE_CHECKING:
    from tests.conformance.dedup.context import BenchContext

THREADS: Final = 16
RUN_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 15.0
OTHER: Final = "order-before"
HELD_SECONDS: Final = 15.0
ABSORBED_SECONDS: Final = 25.0


def sixteen_together(context: BenchContext) -> Finding:
    """F6: count the runs."""
    _submit_together(context)
    messages = context.messages()
    context.worker(replace(context.base, seconds_before=0.5))
    context.settle()
    found = one_run(context)
    return replace(found, evidence=f"{found.evidence}, {counted(messages, 'message')}")


def sixteen_handles(context: BenchContext) -> Finding:
    """F6: compare the handles."""
    ids = _submit_together(context)
    known = {found for found in ids if found is not None and not found.startswith("raised ")}
    without = [found for found in ids if found is None or found.startswith("raised ")]
    evidence = f"{THREADS} submissions: {counted(len(known), 'id')}"
    if without:
        evidence += f", {len(without)} without one ({'None' if without[0] is None else without[0]})"
    return Finding(len(known) == 1 and len(ids) == THREADS and not without, evidence)


def broker_refuses(context: BenchContext) -> Finding:
    """F12: one submission fails at the broker, the next one succeeds there."""
    context.worker(context.base)
    away = replace(context.base, broker=f"redis://127.0.0.1:{free_port()}/0")
    failed = context.publisher(away).submit(CHARGE, ORDER, 1)
    context.publisher().submit(CHARGE, ORDER, 1)
    ran = context.until(lambda: context.effects() > 0, RUN_SECONDS)
    what = "the first submission raised" if failed.error else "the first submission raised nothing"
    if ran:
        return Finding(context.effects() == 1, f"{what}, the second one ran")
    return Finding(held=False, evidence=f"{what}, the second one did not run within 10 s: {context.claim_left()}")


def publisher_killed(context: BenchContext) -> Finding:
    """F12: it had claimed the key, if the contender does that, and had sent nothing."""
    context.worker(context.base)
    context.publisher().ask("submit_and_die", {"order_id": ORDER})
    sent = context.messages() + context.effects()
    submissions, seconds = context.repeat_until_effect(context.publisher(), STUCK_SECONDS)
    if sent:
        return Finding(held=False, evidence="the publisher was killed too late: its message was sent")
    if seconds is None:
        return Finding(held=False, evidence=f"no run after {counted(submissions, 'repeat')}: {context.claim_left()}")
    context.settle()
    effects = context.effects()
    what = f"it ran {seconds:.1f} s later, after {counted(submissions, 'repeat')}: {counted(effects, 'effect')}"
    return Finding(held=effects == 1, evidence=what)


def store_down_refused(context: BenchContext) -> Finding:
    """Submit while the store is down, with the setting to refuse."""
    publisher = context.publisher()
    publisher.submit(CHARGE, OTHER, 1)
    before = context.messages()
    context.stop_store()
    answer = publisher.submit(CHARGE, ORDER, 1)
    sent = context.messages() - before
    what = f"raised {answer.error}" if answer.error else "raised nothing"
    return Finding(bool(answer.error) and "no answer" not in answer.error and sent == 0, f"{what}; {sent} sent")


def store_down_run(context: BenchContext) -> Finding:
    """Submit while the store is down, with the setting to run."""
    settings = replace(context.base, store_down="run")
    context.worker(settings)
    publisher = context.publisher(settings)
    publisher.submit(CHARGE, OTHER, 1)
    context.until(lambda: context.effects(OTHER) > 0, RUN_SECONDS)
    context.stop_store()
    answer = publisher.submit(CHARGE, ORDER, 1)
    ran = context.until(lambda: context.effects() > 0, RUN_SECONDS)
    return Finding(ran, "it ran" if ran else f"it did not run: {answer.error or 'no error either'}")


def _submit_together(context: BenchContext) -> list[str | None]:
    answer = context.publisher().ask("submit_together", {"order_id": ORDER, "count": THREADS}, seconds=40.0)
    ids: list[str | None] = answer.ok or []
    return ids


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
