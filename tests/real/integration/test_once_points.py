"""Each point until which a key is taken, with the policies that it may have, in a real worker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

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
        handles.append(task.delay("quiet", 3))
    assert handles[-1].get(timeout=SOON) == ["quiet", 3]
    side.wait_for(side.is_quiet)
    assert side.lines(key="quiet") == ["3"]


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


# --- exactly_once ---


# --- what a replaced message is told ---


# --- handles ---
