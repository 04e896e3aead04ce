"""Points and what a test tells a worker about them, without a worker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput
from segmented.testing.control import (
    Control,
    Strike,
    checked_point,
    has_struck,
    known_points,
    operation_names,
    passages,
    release,
    write_plan,
)
from segmented.testing.worker_process import Launch, WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

WAIT_SECONDS = 20.0


def test_every_operation_of_the_stores_has_a_point_on_either_side() -> None:
    assert len(operation_names()) >= 100
    assert {"AcquireLock", "Reserve", "TakeOrders", "BeginRun", "ListNamespaces"} <= set(operation_names())
    assert known_points()[:7] == (
        "popped",
        "before:commit",
        "after:commit",
        "before:publish",
        "after:publish",
        "before:ack",
        "after:ack",
    )
    assert checked_point("after:SettleMany") == "after:SettleMany"


def test_a_wrong_point_is_refused_in_one_sentence_with_the_nearest_one_and_all() -> None:
    with pytest.raises(InvalidInput) as refused:
        checked_point("after:SettelMany")
    said = str(refused.value)
    assert said.startswith(
        "there is no point 'after:SettelMany' (did you mean 'after:SettleMany'?): known are popped, "
    )
    assert "\n" not in said
    assert all(name in said for name in operation_names())


def test_a_wrong_point_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no point 'before:ship'"):
        WorkerProcess(Launch("no_such_app", tmp_path), pause_at="before:ship")
    assert list(tmp_path.iterdir()) == []


def test_a_worker_takes_one_message_at_a_time_or_more(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="concurrency is 0"):
        Launch("segmented.celery.app", tmp_path, concurrency=0)


def test_what_happens_at_a_point_happens_at_the_passage_that_was_named_from_then_on(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.reach("before:ack")
    pause = Strike(0, "before:ack", "pause", nth=2)
    write_plan(tmp_path, [pause])
    control.reach("before:ack")
    control.reach("after:ack")
    assert not has_struck(tmp_path, pause)
    release(tmp_path, pause)
    control.reach("before:ack")
    assert has_struck(tmp_path, pause)
    assert passages(tmp_path) == ["before:ack", "before:ack", "after:ack", "before:ack"]


def test_passages_of_all_processes_and_threads_are_counted_together(tmp_path: Path) -> None:
    last = Strike(0, "popped", "pause", nth=40)
    write_plan(tmp_path, [last])
    release(tmp_path, last)
    controls = [Control(tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: [one.reach("popped") for _ in range(10)]) for one in controls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert has_struck(tmp_path, last)
    assert (tmp_path / "count-0").stat().st_size == 40


def test_a_pause_of_a_coroutine_lets_the_others_go_on(tmp_path: Path) -> None:
    pause = Strike(0, "after:Grant", "pause")
    write_plan(tmp_path, [pause])
    control = Control(tmp_path)

    async def both() -> list[str]:
        said: list[str] = []

        async def paused() -> None:
            await control.areach("after:Grant")
            said.append("went on")

        async def other() -> None:
            while not has_struck(tmp_path, pause):  # noqa: ASYNC110  # it is told by a file, as from another process
                await asyncio.sleep(0)
            said.append("looked")
            release(tmp_path, pause)

        await asyncio.wait_for(asyncio.gather(paused(), other()), WAIT_SECONDS)
        return said

    assert asyncio.run(both()) == ["looked", "went on"]
