"""Claims that are too short, and claims that outlive whoever made them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import CHARGE
from bench.dedup_peers.testbed import ORDER
from bench.plurals import counted

if TYPE_CHECKING:
    from bench.dedup_peers.testbed import Testbed

RUN_SECONDS: Final = 10.0
ORPHAN_SECONDS: Final = 20.0
OTHER: Final = "order-before"


def lease_shorter_than_task(testbed: Testbed) -> Finding:
    """F7: the lease would end in the middle of the run."""
    settings = replace(testbed.base, lease_seconds=2, seconds_before=6)
    for _ in range(2):
        testbed.worker(settings)
    publisher = testbed.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    testbed.until(lambda: bool(testbed.seen("began", ORDER)), RUN_SECONDS)
    testbed.pause(3)
    publisher.submit(CHARGE, ORDER, 1)
    testbed.settle()
    return one_run(testbed)


def retry_runs(testbed: Testbed) -> Finding:
    """F8: the second attempt is submitted while the first one has the key."""
    settings = replace(testbed.base, retries=1)
    testbed.worker(settings)
    publisher = testbed.publisher(settings)
    submitted = publisher.submit(CHARGE, ORDER, 1)
    ran = testbed.until(lambda: testbed.effects() > 0, RUN_SECONDS)
    attempts = counted(len(testbed.seen("began", ORDER)), "attempt")
    if ran:
        testbed.settle()
        return Finding(testbed.effects() == 1, f"{attempts}, {counted(testbed.effects(), 'effect')}")
    answer = publisher.result(submitted, seconds=2.0)
    state = answer.error or f"its state is {answer.ok['state']}"
    return Finding(held=False, evidence=f"{attempts} and no effect within 10 s: {state}, {testbed.claim_left()}")


def revoked_then_again(testbed: Testbed) -> Finding:
    """F10: the worker drops the revoked message, and the order is submitted again."""
    testbed.worker(replace(testbed.base, seconds_before=3), pool="prefork")
    publisher = testbed.publisher()
    publisher.submit(CHARGE, OTHER, 1)
    testbed.until(lambda: bool(testbed.seen("began", OTHER)), RUN_SECONDS)
    revoked = publisher.submit(CHARGE, ORDER, 1)
    heard = publisher.ask("revoke", {"task_id": revoked.ok["id"]}) if revoked.ok else revoked
    state = publisher.result(revoked)
    if heard.error or not heard.ok or state.error or state.ok["state"] != "REVOKED":
        return Finding(held=False, evidence=f"it could not be revoked: {heard}, {state}")
    again = publisher.submit(CHARGE, ORDER, 1)
    if testbed.until(lambda: testbed.effects() > 0, RUN_SECONDS):
        return Finding(held=True, evidence="the second submission ran")
    same = again.ok and again.ok["id"] == revoked.ok["id"]
    handle = "the revoked handle again" if same else again.error or f"handle {again.ok['id']}"
    return Finding(held=False, evidence=f"no run within 10 s; it got {handle}, and {testbed.claim_left()}")


def killed_in_body(testbed: Testbed) -> Finding:
    """F13: messages are acknowledged early, as by default, so that only a repeat can bring the order back."""
    settings = replace(testbed.base, acks_late=False)
    worker = testbed.worker(replace(settings, seconds_before=60), pool="prefork")  # solo acknowledges at the end only
    publisher = testbed.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    testbed.until(lambda: bool(testbed.seen("began", ORDER)) and not testbed.unacked(), RUN_SECONDS)
    worker.kill()
    testbed.worker(settings)
    submissions, seconds = testbed.repeat_until_effect(publisher, ORPHAN_SECONDS)
    if seconds is None:
        return Finding(held=False, evidence=f"no run after {counted(submissions, 'repeat')}: {testbed.claim_left()}")
    testbed.settle()
    effects = counted(testbed.effects(), "effect")
    ran = f"it ran {seconds:.1f} s later, after {counted(submissions, 'repeat')}, {effects}"
    return Finding(testbed.effects() == 1, ran)


def hard_time_limit(testbed: Testbed) -> Finding:
    """F19: the pool kills the body, and the key is its task's still."""
    testbed.worker(replace(testbed.base, acks_late=False, time_limit=2, seconds_before=60), pool="prefork")
    publisher = testbed.publisher()
    first = publisher.result(publisher.submit(CHARGE, ORDER, 1))
    if first.error or first.ok["state"] != "FAILURE":
        return Finding(held=False, evidence=f"the time limit ended nothing: {first}")
    testbed.pause(1)
    again = publisher.submit(CHARGE, ORDER, 1)
    if testbed.until(lambda: len(testbed.seen("began", ORDER)) > 1, RUN_SECONDS / 2):
        return Finding(held=True, evidence="a repeat ran")
    answer = publisher.result(again, seconds=RUN_SECONDS / 2)
    if not answer.error and answer.ok["state"] == "FAILURE":
        return Finding(held=True, evidence="a repeat got the failure")
    return Finding(held=False, evidence=f"a repeat neither ran nor got the failure: {testbed.claim_left()}")
