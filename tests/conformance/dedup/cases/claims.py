"""Claims that are too short, and claims that outlive their owner.

Which submissions are the same order, and whether a publisher can bypass the check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from segmented.models.ids import counted
from tests.conformance.dedup.context import ORDER, Finding, one_run
from tests.conformance.dedup.settings import CHARGE, LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conformance.dedup.context import BenchContext

RUN_SECONDS: Final = 10.0
ORPHAN_SECONDS: Final = 20.0
OTHER: Final = "order-before"


def lease_shorter_than_task(context: BenchContext) -> Finding:
    """F7: the lease would end in the middle of the run."""
    settings = replace(context.base, lease_seconds=2, seconds_before=6)
    for _ in range(2):
        context.worker(settings)
    publisher = context.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("began", ORDER)), RUN_SECONDS)
    context.pause(3)
    publisher.submit(CHARGE, ORDER, 1)
    context.settle()
    return one_run(context)


def retry_runs(context: BenchContext) -> Finding:
    """F8: the second attempt is submitted while the first one has the key."""
    settings = replace(context.base, retries=1)
    context.worker(settings)
    publisher = context.publisher(settings)
    submitted = publisher.submit(CHARGE, ORDER, 1)
    ran = context.until(lambda: context.effects() > 0, RUN_SECONDS)
    attempts = counted(len(context.seen("began", ORDER)), "attempt")
    if ran:
        context.settle()
        return Finding(context.effects() == 1, f"{attempts}, {counted(context.effects(), 'effect')}")
    answer = publisher.result(submitted, seconds=2.0)
    state = answer.error or f"its state is {answer.ok['state']}"
    return Finding(held=False, evidence=f"{attempts} and no effect within 10 s: {state}, {context.claim_left()}")


def revoked_then_again(context: BenchContext) -> Finding:
    """F10: the worker drops the revoked message, and the order is submitted again."""
    context.worker(replace(context.base, seconds_before=3), pool="prefork")
    publisher = context.publisher()
    publisher.submit(CHARGE, OTHER, 1)
    context.until(lambda: bool(context.seen("began", OTHER)), RUN_SECONDS)
    revoked = publisher.submit(CHARGE, ORDER, 1)
    heard = publisher.ask("revoke", {"task_id": revoked.ok["id"]}) if revoked.ok else revoked
    state = publisher.result(revoked)
    if heard.error or not heard.ok or state.error or state.ok["state"] != "REVOKED":
        return Finding(held=False, evidence=f"it could not be revoked: {heard}, {state}")
    again = publisher.submit(CHARGE, ORDER, 1)
    if context.until(lambda: context.effects() > 0, RUN_SECONDS):
        return Finding(held=True, evidence="the second submission ran")
    same = again.ok and again.ok["id"] == revoked.ok["id"]
    handle = "the revoked handle again" if same else again.error or f"handle {again.ok['id']}"
    return Finding(held=False, evidence=f"no run within 10 s; it got {handle}, and {context.claim_left()}")


def killed_in_body(context: BenchContext) -> Finding:
    """F13: messages are acknowledged early, as by default, so that only a repeat can bring the order back."""
    settings = replace(context.base, acks_late=False)
    worker = context.worker(replace(settings, seconds_before=60), pool="prefork")  # solo acknowledges only at the end
    publisher = context.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    context.until(lambda: bool(context.seen("began", ORDER)) and not context.unacked(), RUN_SECONDS)
    worker.kill()
    context.worker(settings)
    submissions, seconds = context.repeat_until_effect(publisher, ORPHAN_SECONDS)
    if seconds is None:
        return Finding(held=False, evidence=f"no run after {counted(submissions, 'repeat')}: {context.claim_left()}")
    context.settle()
    effects = counted(context.effects(), "effect")
    ran = f"it ran {seconds:.1f} s later, after {counted(submissions, 'repeat')}, {effects}"
    return Finding(context.effects() == 1, ran)


def hard_time_limit(context: BenchContext) -> Finding:
    """F19: the pool kills the body, and its task still has the key."""
    context.worker(replace(context.base, acks_late=False, time_limit=2, seconds_before=60), pool="prefork")
    publisher = context.publisher()
    first = publisher.result(publisher.submit(CHARGE, ORDER, 1))
    if first.error or first.ok["state"] != "FAILURE":
        return Finding(held=False, evidence=f"the time limit ended nothing: {first}")
    context.pause(1)
    again = publisher.submit(CHARGE, ORDER, 1)
    if context.until(lambda: len(context.seen("began", ORDER)) > 1, RUN_SECONDS / 2):
        return Finding(held=True, evidence="a repeat ran")
    answer = publisher.result(again, seconds=RUN_SECONDS / 2)
    if not answer.error and answer.ok["state"] == "FAILURE":
        return Finding(held=True, evidence="a repeat got the failure")
    return Finding(held=False, evidence=f"a repeat neither ran nor got the failure: {context.claim_left()}")


def parts_do_not_run_together(context: BenchContext) -> Finding:
    """F25: a part may contain the separator of the parts of a key."""
    return _runs_of(context, {"a": "1_b-2"}, {"a": 1, "b": 2}, expected=2)


def types_differ(context: BenchContext) -> Finding:
    """F25: a number and its text."""
    return _runs_of(context, {"a": 1}, {"a": "1"}, expected=2)


def names_and_positions(context: BenchContext) -> Finding:
    """F25: the same call, written in two ways."""
    return _runs_of(context, {"a": 1}, None, expected=1)


def foreign_publisher(context: BenchContext) -> Finding:
    """Foreign: the messages exist, whatever the library would have answered."""
    for _ in range(2):
        context.worker(replace(context.base, seconds_before=1))
    publisher = context.foreign_publisher()
    for _ in range(2):
        publisher.ask("send", {"order_id": ORDER})
    context.settle()
    return one_run(context)


def _runs_of(
    context: BenchContext, first: Mapping[str, object], second: Mapping[str, object] | None, *, expected: int
) -> Finding:
    """Submit both without a worker, then count; `second` None: the first one's value by position."""
    publisher = context.publisher()
    publisher.submit(LABEL, named=first)
    if second is None:
        publisher.submit(LABEL, first["a"])
    else:
        publisher.submit(LABEL, named=second)
    context.worker(context.base)
    context.settle()
    runs = len(context.seen("effect"))
    return Finding(runs == expected, f"{counted(runs, 'run')} of {counted(expected, 'order')}")
