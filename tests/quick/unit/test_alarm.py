"""The deadline of a task: its cancellation is told from those of others."""

from __future__ import annotations

import asyncio

import pytest

from segmented.plans.tasks import Alarm


def test_a_deadline_in_the_clean_up_of_a_cancelled_task_is_a_deadline() -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(TimeoutError), Alarm(0.001):
                await asyncio.Event().wait()
            told.append("deadline")

    async def cancelled() -> bool:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancelled())
    assert told == ["deadline"]
