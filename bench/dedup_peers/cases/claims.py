"""Claims that are too short, claims that outlive whoever made them, and which submissions are the same order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.dedup_peers.finding import Finding, one_run
from bench.dedup_peers.settings import CHARGE, LABEL
from bench.dedup_peers.stage import ORDER
from bench.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.dedup_peers.stage import Stage

RUN_SECONDS: Final = 10.0
ORPHAN_SECONDS: Final = 20.0
OTHER: Final = "order-before"


def lease_shorter_than_task(stage: Stage) -> Finding:
    """F7: the lease would end in the middle of the run."""
    settings = replace(stage.base, lease_seconds=2, seconds_before=6)
    for _ in range(2):
        stage.worker(settings)
    publisher = stage.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    stage.until(lambda: bool(stage.seen("began", ORDER)), RUN_SECONDS)
    stage.pause(3)
    publisher.submit(CHARGE, ORDER, 1)
    stage.settle()
    return one_run(stage)


def retry_runs(stage: Stage) -> Finding:
    """F8: the second attempt is submitted while the first one has the key."""
    settings = replace(stage.base, retries=1)
    stage.worker(settings)
    publisher = stage.publisher(settings)
    submitted = publisher.submit(CHARGE, ORDER, 1)
    ran = stage.until(lambda: stage.effects() > 0, RUN_SECONDS)
    attempts = counted(len(stage.seen("began", ORDER)), "attempt")
    if ran:
        stage.settle()
        return Finding(stage.effects() == 1, f"{attempts}, {counted(stage.effects(), 'effect')}")
    answer = publisher.result(submitted, seconds=2.0)
    state = answer.error or f"its state is {answer.ok['state']}"
    return Finding(held=False, evidence=f"{attempts} and no effect within 10 s: {state}, {stage.claim_left()}")


def revoked_then_again(stage: Stage) -> Finding:
    """F10: the worker drops the revoked message, and the order is submitted again."""
    stage.worker(replace(stage.base, seconds_before=3), pool="prefork")
    publisher = stage.publisher()
    publisher.submit(CHARGE, OTHER, 1)
    stage.until(lambda: bool(stage.seen("began", OTHER)), RUN_SECONDS)
    revoked = publisher.submit(CHARGE, ORDER, 1)
    heard = publisher.ask("revoke", {"task_id": revoked.ok["id"]}) if revoked.ok else revoked
    state = publisher.result(revoked)
    if heard.error or not heard.ok or state.error or state.ok["state"] != "REVOKED":
        return Finding(held=False, evidence=f"it could not be revoked: {heard}, {state}")
    again = publisher.submit(CHARGE, ORDER, 1)
    if stage.until(lambda: stage.effects() > 0, RUN_SECONDS):
        return Finding(held=True, evidence="the second submission ran")
    same = again.ok and again.ok["id"] == revoked.ok["id"]
    handle = "the revoked handle again" if same else again.error or f"handle {again.ok['id']}"
    return Finding(held=False, evidence=f"no run within 10 s; it got {handle}, and {stage.claim_left()}")


def killed_in_body(stage: Stage) -> Finding:
    """F13: messages are acknowledged early, as by default, so that only a repeat can bring the order back."""
    settings = replace(stage.base, acks_late=False)
    worker = stage.worker(replace(settings, seconds_before=60), pool="prefork")  # solo acknowledges at the end only
    publisher = stage.publisher(settings)
    publisher.submit(CHARGE, ORDER, 1)
    stage.until(lambda: bool(stage.seen("began", ORDER)) and not stage.unacked(), RUN_SECONDS)
    worker.kill()
    stage.worker(settings)
    submissions, seconds = stage.repeat_until_effect(publisher, ORPHAN_SECONDS)
    if seconds is None:
        return Finding(held=False, evidence=f"no run after {counted(submissions, 'repeat')}: {stage.claim_left()}")
    stage.settle()
    effects = counted(stage.effects(), "effect")
    ran = f"it ran {seconds:.1f} s later, after {counted(submissions, 'repeat')}, {effects}"
    return Finding(stage.effects() == 1, ran)


def hard_time_limit(stage: Stage) -> Finding:
    """F19: the pool kills the body, and the key is its task's still."""
    stage.worker(replace(stage.base, acks_late=False, time_limit=2, seconds_before=60), pool="prefork")
    publisher = stage.publisher()
    first = publisher.result(publisher.submit(CHARGE, ORDER, 1))
    if first.error or first.ok["state"] != "FAILURE":
        return Finding(held=False, evidence=f"the time limit ended nothing: {first}")
    stage.pause(1)
    again = publisher.submit(CHARGE, ORDER, 1)
    if stage.until(lambda: len(stage.seen("began", ORDER)) > 1, RUN_SECONDS / 2):
        return Finding(held=True, evidence="a repeat ran")
    answer = publisher.result(again, seconds=RUN_SECONDS / 2)
    if not answer.error and answer.ok["state"] == "FAILURE":
        return Finding(held=True, evidence="a repeat got the failure")
    return Finding(held=False, evidence=f"a repeat neither ran nor got the failure: {stage.claim_left()}")


def parts_do_not_run_together(stage: Stage) -> Finding:
    """F25: what separates the parts of a key may be in a part."""
    return _runs_of(stage, {"a": "1_b-2"}, {"a": 1, "b": 2}, expected=2)


def types_differ(stage: Stage) -> Finding:
    """F25: a number and its text."""
    return _runs_of(stage, {"a": 1}, {"a": "1"}, expected=2)


def names_and_positions(stage: Stage) -> Finding:
    """F25: the same call, written in two ways."""
    return _runs_of(stage, {"a": 1}, None, expected=1)


def foreign_publisher(stage: Stage) -> Finding:
    """Foreign: the messages are there, whatever the library would have said of them."""
    for _ in range(2):
        stage.worker(replace(stage.base, seconds_before=1))
    publisher = stage.foreign_publisher()
    for _ in range(2):
        publisher.ask("send", {"order_id": ORDER})
    stage.settle()
    return one_run(stage)


def _runs_of(
    stage: Stage, first: Mapping[str, object], second: Mapping[str, object] | None, *, expected: int
) -> Finding:
    """Submit both while no worker is there, then count; `second` None: the first one's value by position."""
    publisher = stage.publisher()
    publisher.submit(LABEL, named=first)
    if second is None:
        publisher.submit(LABEL, first["a"])
    else:
        publisher.submit(LABEL, named=second)
    stage.worker(stage.base)
    stage.settle()
    runs = len(stage.seen("effect"))
    return Finding(runs == expected, f"{counted(runs, 'run')} of {counted(expected, 'order')}")
