"""J: locks on other servers, and a lock before a cache."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from tests.support.contract.locks.lab import Lab, told
from tests.support.contract.locks.parties import CALL_SECONDS
from tests.support.contract.locks.rows import must, row

CALLERS: Final = 8
LOADING_SECONDS: Final = 0.15
VALUE: Final = 7


@row("J1", "a row lock is one transaction's, also through a proxy that pools by transaction", needs=("rows",))
def j1_a_pooler_in_between(lab: Lab) -> None:
    first, second = lab.caller(), lab.caller()
    for holder, other in [(first, second), (second, first)] * 5:
        hold = holder.take(lab.lock())
        must(other.try_acquire(lab.lock()) is None, "the lock was given twice")
        holder.release(hold)
        must(lab.is_open(), "the lock stayed with a session after its transaction had ended")


@row(
    "J7",
    "of 8 callers that miss a cache one loads, and not all of them when that one loses its lease",
    needs=("single flight",),
)
def j7_a_lock_before_a_cache(lab: Lab) -> None:
    loads, values = _load_together(lab, lambda: None)
    must(values == [VALUE] * CALLERS, f"the callers were given {values}")
    must(loads == 1, f"the loader ran {loads} times")
    if "wire" not in lab.contender.offers:
        return
    lab.forget_everything()
    loads, values = _load_together(lab, lab.forget_everything)
    must(values == [VALUE] * CALLERS, f"after the loss of a lease the callers were given {values}")
    must(1 <= loads <= CALLERS // 2, f"after the loss of a lease the loader ran {loads} times")


def _load_together(lab: Lab, during: Callable[[], None]) -> tuple[int, list[Any]]:
    loads: list[int] = []
    has_begun = threading.Event()

    def load() -> int:
        loads.append(1)
        has_begun.set()
        lab.pause(LOADING_SECONDS)
        return VALUE

    async def load_async() -> int:
        loads.append(1)
        has_begun.set()
        await asyncio.sleep(LOADING_SECONDS)
        return VALUE

    get = lab.made(lab.contender.guard_cache, load_async if lab.contender.is_async else load)
    calls = [lab.caller().start(get) for _ in range(CALLERS)]
    must(has_begun.wait(CALL_SECONDS), "nobody loads")
    during()
    errors = [error for call in calls if (error := call.exception(CALL_SECONDS))]
    must(not errors, f"a caller was given {told(errors[0])}" if errors else "")
    return len(loads), [call.result() for call in calls]
