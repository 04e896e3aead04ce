"""Each point until which a key is taken, with the policies that it may have, in a real worker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from celery.exceptions import TaskRevokedError

from segmented.dedup import InFlight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.workers.once_workers import OnceSide

SOON = 60


@pytest.fixture(autouse=True)
def _quiet(shared_once: OnceSide) -> Iterator[None]:
    yield
    shared_once.wait_for(shared_once.is_quiet)


@pytest.fixture
def side(shared_once: OnceSide) -> Iterator[OnceSide]:
    """Bodies that were called with a negative number of seconds end when the side says that it is enough."""
    shared_once.enough(is_so=False)
    yield shared_once
    shared_once.enough()


def begun(side: OnceSide, key: str, count: int = 1) -> Callable[[], bool]:
    return lambda: side.runs(key) >= count


# --- until_executing ---


def test_until_executing_takes_the_key_while_a_message_waits_and_no_longer(side: OnceSide) -> None:
    task = side.task("until_executing")
    with side.standing_still():
        waiting = task.apply_async(("ue", 1, -1), countdown=0.3)
        assert task.delay("ue", 1, -1) == waiting
    side.wait_for(begun(side, "ue"))
    second = task.delay("ue", 1, -1)
    assert second != waiting
    side.wait_for(begun(side, "ue", 2))  # beside the first
    assert not side.lines(key="ue", what="end")
    side.enough()
    assert [one.get(timeout=SOON) for one in (waiting, second)] == [["ue", 1]] * 2
    assert side.runs("ue") == 2


def test_until_executing_with_replace_runs_the_newest_of_those_that_wait(side: OnceSide) -> None:
    task = side.task("until_executing_newest")
    with side.standing_still():
        handles = [task.apply_async(("uer", number), countdown=0.3) for number in range(3)]
    assert handles[2].get(timeout=SOON) == ["uer", 2]
    side.wait_for(side.is_quiet)
    assert side.lines(key="uer") == ["2"]


# --- until_executed ---


def test_until_executed_takes_the_key_until_the_task_ends(side: OnceSide) -> None:
    task = side.task("until_executed")
    first = task.delay("ud", 1, -1)
    side.wait_for(begun(side, "ud"))
    assert task.delay("ud", 1, -1) == first
    side.enough()
    assert first.get(timeout=SOON) == ["ud", 1]
    second = task.delay("ud", 1, -1)
    assert second != first
    assert second.get(timeout=SOON) == ["ud", 1]
    assert side.runs("ud") == 2


def test_raise_tells_a_publisher_who_has_the_key_and_a_worker_too(side: OnceSide) -> None:
    task = side.task("raising")
    first = task.delay("raise", 1, -1)
    side.wait_for(begun(side, "raise"))
    with pytest.raises(InFlight, match="is running"):
        task.delay("raise", 1, -1)
    foreign = side.app.send_task("raising", ("raise", 1, -1))
    with pytest.raises(InFlight, match="is running"):
        foreign.get(timeout=SOON)
    side.enough()
    assert first.get(timeout=SOON) == ["raise", 1]
    assert side.runs("raise") == 1


def test_drop_publishes_nothing_and_its_handle_says_so(side: OnceSide) -> None:
    task = side.task("dropping")
    first = task.delay("drop", 1, -1)
    dropped = task.delay("drop", 1, -1)
    assert (dropped.status, dropped.get(), dropped.id != first.id) == ("IGNORED", None, True)
    side.enough()
    assert first.get(timeout=SOON) == ["drop", 1]
    assert task.delay("drop", 1, -1).status == "IGNORED"  # its result is kept
    assert side.runs("drop") == 1


def test_a_repeat_that_is_dropped_in_the_worker_does_not_run(side: OnceSide) -> None:
    first = side.task("dropping").delay("drop-worker", 1, -1)
    side.wait_for(begun(side, "drop-worker"))
    received = side.received()
    side.app.send_task("dropping", ("drop-worker", 1, -1))
    side.wait_for(lambda: side.received() > received)
    side.enough()
    assert first.get(timeout=SOON) == ["drop-worker", 1]
    side.wait_for(side.is_quiet)
    assert side.runs("drop-worker") == 1


def test_reschedule_runs_a_repeat_after_the_first_with_its_own_payload(side: OnceSide) -> None:
    task = side.task("again")
    handles = [task.delay("later", number, 0.2) for number in range(3)]
    assert [handle.get(timeout=SOON) for handle in handles] == [["later", number] for number in range(3)]
    assert len(set(handles)) == 3
    assert sorted(side.lines(key="later")) == ["0", "1", "2"]


def test_wait_publishes_when_the_first_has_ended_and_gives_up_after_its_time(side: OnceSide) -> None:
    task = side.task("waiting")
    first = task.delay("wait", 1, -1)
    side.wait_for(begun(side, "wait"))
    impatient = side.task("impatient").delay("wait", 1, -1)
    with pytest.raises(InFlight):
        side.task("impatient").delay("wait", 1, -1)
    timer = threading.Timer(0.2, side.enough)
    timer.start()
    second = task.delay("wait", 2, 0)
    timer.join()
    assert [one.get(timeout=SOON) for one in (first, second, impatient)] == [["wait", 1], ["wait", 2], ["wait", 1]]
    assert side.lines(task="waiting", key="wait") == ["1", "2"]


def test_replace_runs_the_newest_and_the_one_that_waited_never(side: OnceSide) -> None:
    task = side.task("newest")
    with side.standing_still():
        old = task.apply_async(("replace", "old"), countdown=0.4)
        new = task.delay("replace", "new")
    assert new.get(timeout=SOON) == ["replace", "new"]
    assert old != new
    side.wait_for(side.is_quiet)
    assert side.lines(key="replace") == ["new"]


def test_keep_last_runs_the_newest_once_more_after_the_one_at_work(side: OnceSide) -> None:
    task = side.task("last")
    first = task.delay("last", 0, -1)
    side.wait_for(begun(side, "last"))
    later = [task.delay("last", number) for number in (1, 2, 3)]
    side.enough()
    assert first.get(timeout=SOON) == ["last", 0]
    assert later[-1].get(timeout=SOON) == ["last", 3]
    side.wait_for(side.is_quiet)
    assert side.lines(key="last") == ["0", "3"]


def test_debounce_runs_the_newest_once_it_has_been_quiet(side: OnceSide) -> None:
    task = side.task("quiet")
    with side.standing_still():
        handles = [task.delay("quiet", number) for number in range(3)]
        began = time.monotonic()
        handles.append(task.delay("quiet", 3))
    assert handles[-1].get(timeout=SOON) == ["quiet", 3]
    assert time.monotonic() - began >= 0.5  # its delay
    side.wait_for(side.is_quiet)
    assert side.lines(key="quiet") == ["3"]


def test_debounce_puts_a_task_off_no_longer_than_its_delay_max(side: OnceSide) -> None:
    """Published every 0.2 s until it has run, with a delay of 0.5 s, and of 0.9 s in all."""
    task, pause = side.task("quiet_for_long"), threading.Event()
    handles: list[object] = []
    while not side.runs("debounce"):
        assert len(handles) < 5 * SOON
        handles.append(task.delay("debounce", len(handles)))
        pause.wait(0.2)
    last = task.delay("debounce", len(handles))
    assert last.get(timeout=SOON) == ["debounce", len(handles)]
    side.wait_for(side.is_quiet)
    ran = [int(value) for value in side.lines(key="debounce")]
    assert ran == sorted(set(ran))
    assert ran[-1] == len(handles)


# --- until_expired ---


def test_until_expired_gives_its_result_until_the_window_is_over_and_then_runs_again(side: OnceSide) -> None:
    task = side.task("until_expired_long")
    first = task.delay("ux", 1)
    assert task.delay("ux", 1) == first
    assert first.get(timeout=SOON) == ["ux", 1]
    repeat = task.delay("ux", 1)
    assert (repeat, repeat.get(timeout=SOON)) == (first, ["ux", 1])
    assert side.runs("ux") == 1
    brief = side.task("until_expired")  # its window is over within the test
    over = brief.delay("ux-over", 1)
    assert over.get(timeout=SOON) == ["ux-over", 1]
    side.wait_for(lambda: brief.delay("ux-over", 1) != over)
    side.wait_for(begun(side, "ux-over", 2))


def test_until_expired_holds_for_messages_of_a_publisher_that_does_not_know_of_it(side: OnceSide) -> None:
    results = [side.app.send_task("until_expired_long", ("ux-foreign", 1)) for _ in range(3)]
    assert [one.get(timeout=SOON) for one in results] == [["ux-foreign", 1]] * 3
    assert side.runs("ux-foreign") == 1


# --- while_executing ---


def test_while_executing_gives_a_repeat_that_meets_a_run_its_result(side: OnceSide) -> None:
    task = side.task("while_executing")
    first = task.delay("we", 1, -1)
    side.wait_for(begun(side, "we"))
    received = side.received()
    second = task.delay("we", 1, -1)
    assert second != first  # nothing is taken at publication
    side.wait_for(lambda: side.received() >= received + 2)  # it has met the run, and has come back
    side.enough()
    assert [one.get(timeout=SOON) for one in (first, second)] == [["we", 1]] * 2
    assert side.runs("we") == 1
    assert task.delay("we", 1, -1).get(timeout=SOON) == ["we", 1]
    assert side.runs("we") == 2


def test_while_executing_with_raise_fails_a_repeat_that_meets_a_run(side: OnceSide) -> None:
    task = side.task("while_executing_raise")
    first = task.delay("we-raise", 1, -1)
    side.wait_for(begun(side, "we-raise"))
    with pytest.raises(InFlight) as caught:
        task.delay("we-raise", 1, -1).get(timeout=SOON)
    assert (caught.value.message_id, caught.value.state) == (first.id, "running")
    side.enough()
    assert first.get(timeout=SOON) == ["we-raise", 1]


def test_while_executing_with_drop_drops_a_repeat_that_meets_a_run(side: OnceSide) -> None:
    task = side.task("while_executing_drop")
    first = task.delay("we-drop", 1, -1)
    side.wait_for(begun(side, "we-drop"))
    received = side.received()
    task.delay("we-drop", 1, -1)
    side.wait_for(lambda: side.received() > received and side.unacknowledged() == 1)
    side.enough()
    assert first.get(timeout=SOON) == ["we-drop", 1]
    assert side.lines(key="we-drop") == ["1"]


@pytest.mark.parametrize("how", ["again", "wait", "impatient"])
def test_while_executing_runs_repeats_one_after_another_with_their_own_payloads(side: OnceSide, how: str) -> None:
    task, key = side.task(f"while_executing_{how}"), f"we-{how}"
    handles = [task.delay(key, number, 0.2) for number in range(3)]
    assert [handle.get(timeout=SOON) for handle in handles] == [[key, number] for number in range(3)]
    lines = [line.split()[3] for line in side.log.read_text().splitlines() if line.split()[1] == key]
    assert lines == ["begin", "end"] * 3


# --- until_and_while_executing ---


def test_until_and_while_executing_lets_one_wait_while_one_runs(side: OnceSide) -> None:
    task = side.task("both")
    first = task.delay("both", 1, -1)
    side.wait_for(begun(side, "both"))
    second = task.delay("both", 1, -1)
    assert second != first
    assert task.delay("both", 1, -1) == second
    side.enough()
    assert [one.get(timeout=SOON) for one in (first, second)] == [["both", 1]] * 2
    lines = [line.split()[3] for line in side.log.read_text().splitlines() if line.split()[1] == "both"]
    assert lines == ["begin", "end"] * 2


@pytest.mark.parametrize("name", ["both_newest", "both_quiet"])
def test_until_and_while_executing_runs_the_newest_of_those_that_wait(side: OnceSide, name: str) -> None:
    task = side.task(name)
    first = task.delay(name, 0, -1)
    side.wait_for(begun(side, name))
    handles = [task.delay(name, number) for number in (1, 2, 3)]
    side.enough()
    assert [first.get(timeout=SOON), handles[-1].get(timeout=SOON)] == [[name, 0], [name, 3]]
    side.wait_for(side.is_quiet)
    assert side.lines(key=name) == ["0", "3"]


# --- exactly_once ---


def test_exactly_once_does_an_effect_in_the_store_once_and_gives_repeats_its_result(side: OnceSide) -> None:
    task = side.task("points")
    first = task.delay("exact", 5)
    assert first.get(timeout=SOON) == 5
    assert task.delay("exact", 5).get(timeout=SOON) == 5
    assert side.app.send_task("points", ("exact", 5)).get(timeout=SOON) == 5
    assert side.records.get("points:exact") == "5"
    assert side.runs("exact") == 1


# --- what a replaced message is told ---


def test_a_message_that_was_replaced_gets_the_outcome_of_the_one_that_took_its_place_or_is_revoked(
    side: OnceSide,
) -> None:
    task = side.task("newest")
    with side.standing_still():
        old = task.apply_async(("replaced", "old"), countdown=0.3)
        task.apply_async(("replaced", "new"), countdown=0.6)
    try:
        found = old.get(timeout=SOON)
    except TaskRevokedError:
        found = "revoked"
    assert found in (["replaced", "new"], "revoked")
    side.wait_for(begun(side, "replaced"))
    assert side.lines(key="replaced") == ["new"]


# --- handles ---


def test_an_ignored_result_is_still_given_to_repeats_while_the_record_keeps_it(side: OnceSide) -> None:
    kept = side.task("kept")
    kept.apply_async(("ignored", 1), ignore_result=True)
    side.wait_for(lambda: side.lines(key="ignored", what="end"))
    side.wait_for(side.is_quiet)
    repeat = kept.apply_async(("ignored", 1), ignore_result=True)
    assert repeat.is_repeat
    assert repeat.get(timeout=SOON) == ["ignored", 1]
    assert side.runs("ignored") == 1


def test_a_repeat_that_is_refused_says_who_has_the_key(side: OnceSide) -> None:
    raising = side.task("raising")
    first = raising.delay("refused", 1, -1)
    side.wait_for(lambda: side.runs("refused"))
    with pytest.raises(InFlight) as caught:
        raising.delay("refused", 1, -1)
    assert (caught.value.message_id, caught.value.state) == (first.id, "running")
    side.enough()
    first.get(timeout=SOON)
    with pytest.raises(InFlight) as caught:
        raising.delay("refused", 1, -1)
    assert caught.value.state == "done"
