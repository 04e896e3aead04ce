"""Event loops that are left in the middle, after any number of rounds, and what Python says of that."""

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Literal

Leaving = Literal["closed, then its work", "its work, then closed", "closed"]


def said_of_leaving(make: Callable[[], Coroutine[Any, Any, object]], rounds: int, leaving: Leaving) -> list[str]:
    """Run a task for so many rounds of a new loop, leave the loop, and return what Python warns of."""
    gc.collect()  # what others have left is not ours to tell
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _left(make(), rounds, leaving)
        gc.collect()
    return [str(warning.message) for warning in said]


def _left(work: Coroutine[Any, Any, object], rounds: int, leaving: Leaving) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    for _ in range(rounds):
        run_a_round(loop)
        time.sleep(0.001)  # a server answers meanwhile, and its answer counts in the next round
    is_done = task.done()
    if leaving == "its work, then closed":
        work.close()
    loop.close()
    if leaving == "closed, then its work":
        work.close()
    assert not is_done, "there was nothing left to leave"


def run_a_round(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop call whoever it has to call now."""
    loop.call_soon(loop.stop)
    loop.run_forever()
