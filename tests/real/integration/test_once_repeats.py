"""Repeats of a deduplicated Celery task, with a real worker that nobody kills.

The rows F6 to F25 of the catalogue of failures that need no dead process; those that do are in tests/faults.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from celery import Celery, chain, chord, group, signature
from celery.exceptions import TaskRevokedError

from segmented.dedup import FailedBefore, OtherPayload
from segmented.dedup.celery import OnceResult
from segmented.models.dedup import RecordName
from segmented.protocol import ReadRecord
from segmented.stores.redis import RedisStore
from tests.support.workers.once_app import build
from tests.support.workers.once_workers import close_app, publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery.result import AsyncResult

    from tests.support.workers.once_workers import OnceSide

SOON = 60
CROWD = 16


@pytest.fixture(autouse=True)
def _quiet(shared_once: OnceSide) -> Iterator[None]:
    yield
    shared_once.wait_for(shared_once.is_quiet)


@pytest.fixture
def held(shared_once: OnceSide) -> Iterator[OnceSide]:
    """Bodies that were called with a negative number of seconds end when the side says that it is enough."""
    shared_once.enough(is_so=False)
    yield shared_once
    shared_once.enough()


@pytest.fixture
def foreign(shared_once: OnceSide) -> Iterator[Celery]:
    """A publisher that knows the name of a task, and nothing of its rule."""
    app = Celery("foreign", broker=shared_once.setup.broker, backend=shared_once.setup.backend, set_as_current=False)
    yield app
    close_app(app)


# --- headers that hide others ---


@pytest.fixture(params=[1, 2], ids=["protocol 1", "protocol 2"])
def publishing(request: pytest.FixtureRequest, shared_once: OnceSide) -> Iterator[Celery]:
    app = build(shared_once.changed(task_protocol=request.param))
    yield app
    close_app(app)


@pytest.mark.parametrize("hiding", [{"trace": "1"}, {}, "text"], ids=["tracing", "empty", "text"])
def test_a_header_called_headers_hides_neither_key_nor_claim(
    publishing: Celery, held: OnceSide, hiding: object, request: pytest.FixtureRequest
) -> None:
    """Celery's request then has that one as its headers. ddtrace and sentry-sdk send one; so may users."""
    name, given = request.node.callspec.id.replace(" ", "-"), {"headers": {"headers": hiding}}
    task: Any = publishing.tasks["kept"]
    handles = [task.apply_async((name, 1), once_key=f"{name}-{number}", **given) for number in range(2)]
    assert [handle.get(timeout=SOON) for handle in handles] == [[name, 1]] * 2
    assert held.runs(name) == 2

    task = publishing.tasks["latest"]
    first = task.apply_async((f"{name}-last", 0, -1), **given)
    held.wait_for(lambda: held.runs(f"{name}-last"))
    last = [task.apply_async((f"{name}-last", number), **given) for number in (1, 2)][-1]
    task = publishing.tasks["retried"]
    retried = task.apply_async((f"{name}-retried", 2), once_key=f"{name}-retried", **given)
    assert retried.get(timeout=SOON) == 2
    assert held.lines(key=f"{name}-retried") == ["0", "1", "2"]
    held.enough()
    assert [one.get(timeout=SOON) for one in (first, last)] == [[f"{name}-last", number] for number in (0, 2)]
    held.wait_for(held.is_quiet)
    assert held.lines(key=f"{name}-last") == ["0", "2"]

    task = publishing.tasks["plain"]
    expired = task.apply_async((name, 3), once_key=f"{name}-expired", expires=-1, **given)
    with pytest.raises(TaskRevokedError):
        expired.get(timeout=SOON)
    held.wait_for(lambda: not held.is_waiting(expired))


# --- F6: the same moment ---


def test_f6_16_threads_at_once_are_one_run_and_16_equal_handles_with_its_result(shared_once: OnceSide) -> None:
    start = threading.Barrier(CROWD)

    def publish(_: int) -> Any:  # noqa: ANN401  # a handle
        start.wait(SOON)
        return shared_once.task("kept").delay("f6-threads", 7)

    with ThreadPoolExecutor(CROWD) as crowd:
        handles = list(crowd.map(publish, range(CROWD)))
    assert len(set(handles)) == 1
    assert [handle.get(timeout=SOON) for handle in handles] == [["f6-threads", 7]] * CROWD
    assert shared_once.runs("f6-threads") == 1
    assert sum(not handle.is_repeat for handle in handles) == 1


# --- F7, F8: the lease, and attempts under it ---


def test_f7_a_lease_is_renewed_while_its_task_runs_and_a_repeat_does_not_run(held: OnceSide) -> None:
    task = held.task("renewed")
    first = task.delay("f7", seconds=-1)
    held.wait_for(lambda: held.runs("f7"))
    with RedisStore.from_url(held.setup.records) as store:
        left: list[int] = []

        def is_renewed() -> bool:
            state = store.execute(ReadRecord(RecordName("once", task.once_key("f7", seconds=-1))))
            assert state is not None
            assert state.run is not None
            left.append(state.run.ends_in_ms)
            return left[-1] > min(left) + 1_000

        held.wait_for(is_renewed)
    repeat = task.delay("f7", seconds=-1)
    assert repeat == first
    held.enough()
    assert repeat.get(timeout=SOON) == ["f7", 0]
    assert held.runs("f7") == 1


@pytest.mark.parametrize("name", ["retried_early", "unsteady"])
def test_f8_a_retry_runs_under_the_claim_of_its_own_message(held: OnceSide, name: str) -> None:
    key = f"f8-{name}"
    first = held.task(name).delay(key, 3, seconds=-1)
    held.wait_for(lambda: held.runs(key) == 2)
    assert held.task(name).delay(key, 3, seconds=-1) == first
    held.enough()
    assert first.get(timeout=SOON) == 3
    assert held.lines(key=key) == ["0", "1", "2", "3"]
    assert held.task(name).delay(key, 0).get(timeout=SOON) == 0  # the key is free


@pytest.mark.parametrize("requeue", [True, False])
def test_a_message_that_is_rejected_keeps_its_key_only_if_it_comes_back(
    shared_once: OnceSide, *, requeue: bool
) -> None:
    key = f"rejected-{requeue}"
    first = shared_once.task("rejected").delay(key, requeue)
    shared_once.wait_for(lambda: shared_once.runs(key) == 1 + requeue)
    shared_once.wait_for(shared_once.is_quiet)
    second = shared_once.task("rejected").delay(key, True)  # noqa: FBT003  # a task's argument
    assert second != first
    assert second.get(timeout=SOON) == key


# --- F10: revoked, expired ---


def test_f10_a_queued_task_revoked_behind_our_back_frees_its_key_at_its_worker(shared_once: OnceSide) -> None:
    """The key is freed when the worker meets the revoked task."""
    message, control = str(uuid4()), shared_once.app.control
    control.revoke(message)
    shared_once.wait_for(lambda: message in str(control.inspect(timeout=5, limit=1).revoked()))
    first = shared_once.task("plain").apply_async(("f10-control", "old"), task_id=message)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=SOON)
    shared_once.wait_for(lambda: not shared_once.is_waiting(first))  # a moment after Celery has stored that it is
    second = shared_once.task("plain").delay("f10-control", "new")
    assert second.get(timeout=SOON) == ["f10-control", "new"]
    assert shared_once.lines(key="f10-control") == ["new"]


# --- F11: chords, groups, chains, links ---


def test_f11_a_chord_of_two_equal_tasks_fires_once_with_both_slots(shared_once: OnceSide) -> None:
    kept, gathered = shared_once.task("kept"), shared_once.task("gathered")
    found = chord([kept.s("f11", 1), kept.s("f11", 1)], gathered.s())().get(timeout=SOON)
    assert found == [["f11", 1], ["f11", 1]]
    assert shared_once.runs("f11") == 1
    assert shared_once.lines(task="gathered") == ["2"]


@pytest.mark.parametrize("name", ["serial", "kept"])
def test_f11_a_group_with_repeats_completes_under_every_rule(shared_once: OnceSide, name: str) -> None:
    key = f"f11-group-{name}"
    members = [shared_once.task(name).s(key, 1, 0.3) for _ in range(3)]
    found = group(members)().get(timeout=SOON)
    assert len(found) == 3
    assert found == [[key, 1]] * 3
    assert 1 <= shared_once.runs(key) <= 3


def test_a_next_step_that_a_task_publishes_under_its_own_key_runs_after_it(shared_once: OnceSide) -> None:
    shared_once.task("paged").delay("paged", 2)
    shared_once.wait_for(lambda: len(shared_once.lines(key="paged")) == 3)
    assert shared_once.lines(key="paged") == ["2", "1", "0"]


def test_a_next_step_that_arrives_while_its_task_still_works_runs_after_it(held: OnceSide) -> None:
    received = held.received()
    held.task("paged").delay("early", 1, -1)
    held.wait_for(lambda: held.received() >= received + 2)
    held.enough()
    held.wait_for(lambda: len(held.lines(key="early")) == 2)
    assert held.lines(key="early") == ["1", "0"]


def test_a_chain_whose_next_task_is_refused_at_publication_keeps_the_task_before_it(held: OnceSide) -> None:
    retried, gathered = held.task("retried_again"), held.task("gathered")
    busy = retried.delay("chained", 1, seconds=-1)
    held.wait_for(lambda: held.runs("chained") == 2)  # its second attempt goes on until the test says so
    last = chain(gathered.si([]), retried.si("chained", 1, seconds=0))()
    assert last.parent.get(timeout=SOON) == []
    with pytest.raises(OtherPayload):
        last.get(timeout=SOON)
    held.enough()
    assert busy.get(timeout=SOON) == 1


@pytest.mark.parametrize("error", ["no such order", ""], ids=["failed", "succeeded"])
def test_a_copy_of_a_message_that_has_ended_changes_neither_its_state_nor_calls_back(
    shared_once: OnceSide, foreign: Celery, error: str
) -> None:
    """With task_track_started, Celery stores STARTED before it asks the task."""
    message, key = str(uuid4()), "copied-failed" if error else "copied"
    undo = signature("compensate", (key,), immutable=True, app=foreign)

    def ended(times: int) -> AsyncResult[Any]:
        handle = foreign.send_task("kept", (key,), {"error": error}, task_id=message, link_error=undo)
        shared_once.wait_for(lambda: shared_once.ends_of(message) == times)
        return handle

    _, handle = ended(1), ended(2)
    shared_once.wait_for(shared_once.is_quiet)
    assert (handle.state, type(handle.result)) == (("FAILURE", ValueError) if error else ("SUCCESS", list))
    assert shared_once.lines(task="kept", key=key) == ["0"]
    assert len(shared_once.lines(task="compensate", key=key)) == (1 if error else 0)


# --- F12: the broker ---


def test_f12b_a_repeat_mends_a_publisher_that_died_between_claim_and_publication(shared_once: OnceSide) -> None:
    with publisher(shared_once.changed(fail="after_claim"), "resent", "f12b", "x") as dying:
        dying.communicate(timeout=2 * SOON)
    assert dying.returncode < 0
    threading.Event().wait(0.3)  # more than resend_after
    again = shared_once.task("resent").delay("f12b", "x")
    assert again.is_repeat
    assert again.get(timeout=SOON) == ["f12b", "x"]
    assert shared_once.runs("f12b") == 1


# --- F22, F23, F25: payloads, ends, keys ---


def test_f22_a_key_that_was_used_with_another_payload_is_refused_in_the_worker(
    shared_once: OnceSide, foreign: Celery
) -> None:
    shared_once.task("kept").delay("f22-foreign", 1).get(timeout=SOON)
    with pytest.raises(OtherPayload):
        foreign.send_task("kept", ("f22-foreign", 2)).get(timeout=SOON)
    assert shared_once.runs("f22-foreign") == 1


def test_f23_a_repeat_after_completion_gets_the_stored_result_and_does_not_run(shared_once: OnceSide) -> None:
    first = shared_once.task("kept").delay("f23", {"a": [1.5, None]})
    assert first.get(timeout=SOON) == ["f23", {"a": [1.5, None]}]
    shared_once.forget_result(first)
    repeat = shared_once.task("kept").delay("f23", {"a": [1.5, None]})
    assert isinstance(repeat, OnceResult)
    assert (repeat.is_repeat, repeat.id, repeat.status) == (True, first.id, "SUCCESS")
    assert repeat.get() == ["f23", {"a": [1.5, None]}]
    assert shared_once.runs("f23") == 1


def test_f23_a_repeat_after_a_failure_gets_the_stored_failure_and_does_not_run(shared_once: OnceSide) -> None:
    with pytest.raises(ValueError, match="no such order"):
        shared_once.task("kept").delay("f23-failed", error="no such order").get(timeout=SOON)
    repeat = shared_once.task("kept").delay("f23-failed", error="no such order")
    with pytest.raises(FailedBefore) as caught:
        repeat.get(timeout=SOON)
    assert (caught.value.kind, caught.value.detail) == ("ValueError", "no such order")
    assert shared_once.runs("f23-failed") == 1


def test_f23_a_failure_that_is_not_kept_runs_again(shared_once: OnceSide) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            shared_once.task("plain").delay("f23-unkept", error="bad").get(timeout=SOON)
    assert shared_once.runs("f23-unkept") == 2


# --- publishers without the library, and odd headers ---


@pytest.mark.parametrize("name", ["retried", "retried_again"])
def test_a_message_of_a_foreign_publisher_is_retried_under_its_own_claim(
    shared_once: OnceSide, foreign: Celery, name: str
) -> None:
    key = f"foreign-{name}"
    assert foreign.send_task(name, (key, 2)).get(timeout=SOON) == 2
    assert shared_once.lines(key=key) == ["0", "1", "2"]
