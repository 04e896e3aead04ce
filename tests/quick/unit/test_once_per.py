from __future__ import annotations

from datetime import timedelta

import pytest

from segmented.clock import ManualClock
from segmented.dedup import once_per
from segmented.errors import InvalidInput
from segmented.stores.memory import MemoryStore

NOON = 1_796_040_000.0


def test_a_function_runs_once_in_each_slot_whichever_process_asks_first() -> None:
    store, here, there, ran = MemoryStore(), ManualClock(NOON + 1), ManualClock(NOON + 298), list[str]()

    def report(who: str) -> str:
        ran.append(who)
        return who

    first = once_per("5m", store=store, clock=here)(report)
    second = once_per(timedelta(minutes=5), store=lambda: store, clock=there)(report)
    assert [first("a"), second("b"), first("a")] == ["a", None, None]
    there.advance(3)
    assert [second("b"), first("a")] == ["b", None]
    here.advance(300)
    assert (first("a"), ran) == (None, ["a", "b"])


def test_a_run_that_raises_frees_its_slot_for_the_next_call() -> None:
    found: list[BaseException | str] = [ZeroDivisionError(), "done"]

    def report() -> str:
        one = found.pop(0)
        if isinstance(one, BaseException):
            raise one
        return one

    run = once_per(60, store=MemoryStore(), clock=ManualClock(NOON))(report)
    with pytest.raises(ZeroDivisionError):
        run()
    assert [run(), run()] == ["done", None]


@pytest.mark.parametrize("period", ["5", "m", "5 minutes", "0s", 0, -1, True, float("nan"), None])
def test_a_bad_period_is_refused(period: object) -> None:
    with pytest.raises(InvalidInput, match=r"^a period of .* is not one: give seconds from 1 on"):
        once_per(period, store=MemoryStore())  # type: ignore[arg-type]  # that is the point


def test_a_coroutine_function_is_refused() -> None:
    async def report() -> None: ...

    with pytest.raises(InvalidInput, match=r"^once_per runs a function, and .* is a coroutine function$"):
        once_per("5m", store=MemoryStore())(report)
