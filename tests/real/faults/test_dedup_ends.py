"""Processes that end: workers and the children of their pools. F3, F10, F13, F19 and F24 of the catalogue."""

from collections.abc import Callable

import pytest
from billiard.exceptions import WorkerLostError
from celery.exceptions import TaskRevokedError, TimeLimitExceeded

from tests.support.workers.once_workers import OnceSide

SOON = 100
LONG = 600.0
"""The lease of a worker that goes on, though it may stand still for a while."""
SHORT = 2.0
"""The lease of one that dies, which is to lapse."""
SOONER_THAN_THE_LEASE = 50.0
"""Seconds; the lease of these tasks is a minute."""


def test_f3_a_killed_child_leaves_its_message_to_run_once_its_lease_has_lapsed(prefork_once: OnceSide) -> None:
    handle = prefork_once.task("endless").delay("f3-again", kill=True)
    assert handle.get(timeout=SOON) == "f3-again"
    assert len(prefork_once.lines(key="f3-again", what="end")) == 1
    assert prefork_once.runs("f3-again") == 2


@pytest.mark.parametrize("headers", [{}, {"headers": {"trace": "1"}}], ids=["plain", "hiding"])
def test_f3_a_killed_child_frees_its_key_at_once_if_its_message_does_not_come_back(
    prefork_once: OnceSide, headers: dict[str, object]
) -> None:
    handle = prefork_once.task("ended").apply_async((f"f3-{len(headers)}", True), once_key="f3-lost", headers=headers)
    with pytest.raises(WorkerLostError):
        handle.get(timeout=SOON)
    assert not prefork_once.is_running(handle)
    second = prefork_once.task("ended").apply_async((f"f3-{len(headers)}", False), once_key="f3-lost", countdown=60)
    assert second != handle
    second.revoke()


@pytest.mark.parametrize("headers", [{}, {"headers": {"trace": "1"}}], ids=["plain", "hiding"])
def test_f10_a_running_task_that_is_terminated_frees_its_key_at_once(
    prefork_once: OnceSide, headers: dict[str, object]
) -> None:
    key = f"f10-{len(headers)}"
    handle = prefork_once.task("ended").apply_async((key,), once_key="f10", headers=headers)
    prefork_once.wait_for(lambda: prefork_once.runs(key))
    handle.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        handle.get(timeout=SOON)
    prefork_once.wait_for(lambda: not prefork_once.is_running(handle), SOONER_THAN_THE_LEASE)
    second = prefork_once.task("ended").apply_async((key,), once_key="f10", countdown=60)
    assert second != handle
    second.revoke()
    assert not prefork_once.lines(key=key, what="end")


def test_f13_a_message_that_returns_after_another_has_done_its_work_gets_the_outcome(
    make_once: Callable[..., OnceSide],
) -> None:
    once = make_once(visibility=4.0, lease=LONG)
    dying = once.start(once.changed(fail="in_body", lease=SHORT))
    first = once.task("kept").delay("f13", 1)
    dying.died()
    once.wait_for(lambda: once.task("kept").delay("f13", 1) != first)
    once.start()
    assert first.get(timeout=SOON) == ["f13", 1]
    assert len(once.lines(key="f13", what="end")) == 1


def test_f19_a_task_over_its_hard_time_limit_frees_its_key_before_its_end_is_told(prefork_once: OnceSide) -> None:
    task = prefork_once.task("ended")
    handle = task.apply_async(("f19",), once_key="f19", time_limit=0.5)
    with pytest.raises(TimeLimitExceeded):
        handle.get(timeout=SOON)
    second = task.apply_async(("f19",), once_key="f19")
    assert second != handle
    assert second.get(timeout=SOON) == "f19"
    assert prefork_once.runs("f19") == 2


def test_f19_a_message_that_returns_after_its_time_limit_keeps_its_claim_and_runs(prefork_once: OnceSide) -> None:
    task = prefork_once.task("endless")
    handle = task.apply_async(("f19-again",), time_limit=0.5)
    prefork_once.wait_for(lambda: prefork_once.runs("f19-again") == 2)
    prefork_once.wait_for(lambda: prefork_once.lines(key="f19-again", what="end"))
    prefork_once.wait_for(lambda: prefork_once.app.AsyncResult(handle.id).status == "SUCCESS")
    assert handle.get(timeout=SOON) == "f19-again"
