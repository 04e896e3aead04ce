"""Each rule of deduplication, in a real worker."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from segmented.dedup import OtherPayload
from tests.support.workers.once_workers import close_app

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


def test_unique_takes_the_key_until_the_task_ends(side: OnceSide) -> None:
    task = side.task("unique")
    first = task.delay("ud", 1, -1)
    side.wait_for(begun(side, "ud"))
    assert task.delay("ud", 1, -1) == first
    side.enough()
    assert first.get(timeout=SOON) == ["ud", 1]
    second = task.delay("ud", 1, -1)
    assert second != first
    assert second.get(timeout=SOON) == ["ud", 1]
    assert side.runs("ud") == 2


def test_per_runs_once_in_its_slot_and_a_failure_frees_it(side: OnceSide) -> None:
    task = side.task("daily")
    failed = task.delay("day", error="no")
    with pytest.raises(ValueError, match="no"):
        failed.get(timeout=SOON)
    first = task.delay("day", 1)
    assert first.get(timeout=SOON) == ["day", 1]
    repeat = task.delay("day", 1)
    assert (repeat, repeat.is_repeat, repeat.get(timeout=SOON)) == (first, True, ["day", 1])
    assert side.runs("day") == 2


def test_latest_runs_once_more_after_the_one_at_work_with_the_last_arguments(side: OnceSide) -> None:
    task = side.task("latest")
    first = task.delay("last", 0, -1)
    side.wait_for(begun(side, "last"))
    waiting, *repeats = [task.delay("last", number) for number in (1, 2, 3)]
    assert repeats == [waiting, waiting]
    assert [one.is_repeat for one in (waiting, *repeats)] == [False, True, True]
    side.enough()
    assert first.get(timeout=SOON) == ["last", 0]
    assert waiting.get(timeout=SOON) == ["last", 3]
    side.wait_for(side.is_quiet)
    assert side.lines(key="last") == ["0", "3"]


def test_latest_runs_once_it_has_been_quiet_and_has_published_one_message(side: OnceSide) -> None:
    task = side.task("quiet")
    received = side.received()
    with side.standing_still():
        handles = [task.delay("quiet", number) for number in range(300)]
    assert len(set(handles)) == 1
    assert handles[-1].get(timeout=SOON) == ["quiet", 299]
    side.wait_for(side.is_quiet)
    assert side.lines(key="quiet") == ["299"]
    assert side.received() - received <= 3


def test_unique_refuses_a_key_that_another_task_of_its_key_space_has_until_that_ends(side: OnceSide) -> None:
    charge, refund = side.task("charged"), side.task("refunded")
    first = charge.delay("space", 1, -1)
    side.wait_for(begun(side, "space"))
    assert charge.delay("space", 1, -1) == first
    with pytest.raises(OtherPayload, match="was used by task 'charged', which shares its key space, by mess") as caught:
        refund.delay("space", 1, -1)
    assert (caught.value.message_id, caught.value.task) == (first.id, "charged")
    side.enough()
    assert first.get(timeout=SOON) == ["space", 1]
    second = refund.delay("space", 1)
    assert (second.get(timeout=SOON), second.is_repeat, side.runs("space")) == (["space", 1], False, 2)


def test_a_message_that_finds_another_task_at_work_on_its_key_runs_after_it(side: OnceSide) -> None:
    """Its publisher does not know the library, so the worker decides."""
    first = side.task("charged").delay("behind", 1, -1)
    side.wait_for(begun(side, "behind"))
    received = side.received()
    with closing(Celery("foreign", broker=side.setup.broker, backend=side.setup.backend, set_as_current=False)) as app:
        second = app.send_task("refunded", ("behind", 2))
        side.wait_for(lambda: side.received() > received)
        side.enough()
        assert second.get(timeout=SOON) == ["behind", 2]
        close_app(app)
    assert first.get(timeout=SOON) == ["behind", 1]
    assert side.lines(key="behind") == ["1", "2"]


@pytest.mark.parametrize("names", [("settled", "dropped"), ("dropped", "settled")], ids=" before ".join)
def test_a_kept_result_is_never_that_of_another_task_of_the_key_space(side: OnceSide, names: tuple[str, str]) -> None:
    one, other = map(side.task, names)
    key = "-".join(names)
    first = one.delay(key, 1)
    assert first.get(timeout=SOON) == [key, 1]
    side.wait_for(side.is_quiet)
    with pytest.raises(OtherPayload, match=f"was used by task {names[0]!r}"):
        other.delay(key, 1)
    repeat = one.delay(key, 1)
    assert (repeat.get(timeout=SOON), repeat.first_id, side.runs(key)) == ([key, 1], first.id, 1)


def test_serial_runs_messages_of_two_tasks_of_a_key_space_one_at_a_time_in_order(side: OnceSide) -> None:
    tasks = [side.task("credited"), side.task("debited")]
    handles = [tasks[number % 2].delay("account", number, 0.1) for number in range(6)]
    assert [handle.get(timeout=SOON) for handle in handles] == [["account", number] for number in range(6)]
    lines = [line.split() for line in side.log.read_text().splitlines()]
    assert [what for _, key, _, what in lines if key == "account"] == ["begin", "end"] * 6
    assert {task for task, key, _, _ in lines if key == "account"} == {"credited", "debited"}


@pytest.mark.parametrize(("name", "most"), [("serial", 1), ("three", 3)])
def test_serial_runs_every_message_and_no_more_at_a_time_than_is_said(side: OnceSide, name: str, most: int) -> None:
    task = side.task(name)
    handles = [task.delay(name, number, 0.1) for number in range(6)]
    assert [handle.get(timeout=SOON) for handle in handles] == [[name, number] for number in range(6)]
    assert len(set(handles)) == 6
    running = peak = 0
    for line in side.log.read_text().splitlines():
        _, key, _, what = line.split()
        if key == name:
            running += 1 if what == "begin" else -1
            peak = max(peak, running)
    assert (side.runs(name), peak) == (6, most)


def test_serial_runs_many_short_messages_in_order_with_few_deliveries_each(side: OnceSide) -> None:
    task, count = side.task("serial"), 100
    received = side.received()
    with side.standing_still():
        handles = [task.delay("many", number, 0.02) for number in range(count)]
    assert [handle.get(timeout=SOON) for handle in handles] == [["many", number] for number in range(count)]
    numbers = [int(number) for number in side.lines(key="many")]
    assert max(abs(number - place) for place, number in enumerate(numbers)) < 8, "beyond the worker's eight threads"
    assert side.received() - received <= 6 * count
