"""What happens where an order is submitted: many at once, and a broker or a store that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import CHARGE
from bench.dedup_peers.testbed import ORDER, free_port
from bench.plurals import counted

if TYPE_CHECKING:
    from bench.dedup_peers.testbed import Testbed

THREADS: Final = 16
RUN_SECONDS: Final = 10.0
STUCK_SECONDS: Final = 15.0
OTHER: Final = "order-before"


def sixteen_together(testbed: Testbed) -> Finding:
    """F6: count the runs."""
    _submit_together(testbed)
    messages = testbed.messages()
    testbed.worker(replace(testbed.base, seconds_before=0.5))
    testbed.settle()
    found = one_run(testbed)
    return replace(found, evidence=f"{found.evidence}, {counted(messages, 'message')}")


def sixteen_handles(testbed: Testbed) -> Finding:
    """F6: look at the handles."""
    ids = _submit_together(testbed)
    known = {found for found in ids if found is not None and not found.startswith("raised ")}
    without = [found for found in ids if found is None or found.startswith("raised ")]
    evidence = f"{THREADS} submissions: {counted(len(known), 'id')}"
    if without:
        evidence += f", {len(without)} without one ({'None' if without[0] is None else without[0]})"
    return Finding(len(known) == 1 and len(ids) == THREADS and not without, evidence)


def broker_refuses(testbed: Testbed) -> Finding:
    """F12: one submission fails at the broker, the next one finds it well."""
    testbed.worker(testbed.base)
    away = replace(testbed.base, broker=f"redis://127.0.0.1:{free_port()}/0")
    failed = testbed.publisher(away).submit(CHARGE, ORDER, 1)
    testbed.publisher().submit(CHARGE, ORDER, 1)
    ran = testbed.until(lambda: testbed.effects() > 0, RUN_SECONDS)
    what = "the first submission raised" if failed.error else "the first submission raised nothing"
    if ran:
        return Finding(testbed.effects() == 1, f"{what}, the second one ran")
    return Finding(held=False, evidence=f"{what}, the second one did not run within 10 s: {testbed.claim_left()}")


def publisher_killed(testbed: Testbed) -> Finding:
    """F12: it had claimed the key, where the contender does so, and had sent nothing."""
    testbed.worker(testbed.base)
    testbed.publisher().ask("submit_and_die", {"order_id": ORDER})
    sent = testbed.messages() + testbed.effects()
    submissions, seconds = testbed.repeat_until_effect(testbed.publisher(), STUCK_SECONDS)
    if sent:
        return Finding(held=False, evidence="the publisher was killed too late: its message was sent")
    if seconds is None:
        return Finding(held=False, evidence=f"no run after {counted(submissions, 'repeat')}: {testbed.claim_left()}")
    testbed.settle()
    effects = testbed.effects()
    what = f"it ran {seconds:.1f} s later, after {counted(submissions, 'repeat')}: {counted(effects, 'effect')}"
    return Finding(held=effects == 1, evidence=what)


def store_down_refused(testbed: Testbed) -> Finding:
    """Down, and told to refuse."""
    publisher = testbed.publisher()
    publisher.submit(CHARGE, OTHER, 1)
    before = testbed.messages()
    testbed.stop_store()
    answer = publisher.submit(CHARGE, ORDER, 1)
    sent = testbed.messages() - before
    what = f"raised {answer.error}" if answer.error else "raised nothing"
    return Finding(bool(answer.error) and "no answer" not in answer.error and sent == 0, f"{what}; {sent} sent")


def store_down_run(testbed: Testbed) -> Finding:
    """Down, and told to run."""
    settings = replace(testbed.base, store_down="run")
    testbed.worker(settings)
    publisher = testbed.publisher(settings)
    publisher.submit(CHARGE, OTHER, 1)
    testbed.until(lambda: testbed.effects(OTHER) > 0, RUN_SECONDS)
    testbed.stop_store()
    answer = publisher.submit(CHARGE, ORDER, 1)
    ran = testbed.until(lambda: testbed.effects() > 0, RUN_SECONDS)
    return Finding(ran, "it ran" if ran else f"it did not run: {answer.error or 'no error either'}")


def _submit_together(testbed: Testbed) -> list[str | None]:
    answer = testbed.publisher().ask("submit_together", {"order_id": ORDER, "count": THREADS}, seconds=40.0)
    ids: list[str | None] = answer.ok or []
    return ids
