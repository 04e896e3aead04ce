"""A thread that asks a store beside an event loop does not wait for a loop that has ended."""

import asyncio
import threading
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.plans import store_kinds
from segmented.plans.store_kinds import LoopStore
from segmented.stores.memory import AsyncMemoryStore


@pytest.fixture
def stopped() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run: what it is given waits in it."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_a_thread_gives_up_a_loop_that_does_not_run(
    stopped: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_kinds, "WAIT_SECONDS_MAX", inf)
    with pytest.raises(StoreUnavailable, match="the event loop of the store ended"):
        LoopStore(AsyncMemoryStore(), stopped).execute(op.ReadPool("mug"))


def test_a_thread_gives_up_a_loop_that_is_closed_over_its_request(
    stopped: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_kinds, "STOPPED_SECONDS", inf)
    failures: list[StoreUnavailable] = []
    give, has_it = stopped.call_soon_threadsafe, threading.Event()

    def given(*args: Any, **kwargs: Any) -> asyncio.Handle:  # noqa: ANN401  # those of the loop's method
        handle = give(*args, **kwargs)
        has_it.set()
        return handle

    monkeypatch.setattr(stopped, "call_soon_threadsafe", given)

    def ask() -> None:
        try:
            LoopStore(AsyncMemoryStore(), stopped).execute_many([op.ReadPool("mug")])
        except StoreUnavailable as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert has_it.wait(30)
    stopped.close()
    asking.join(30)
    assert len(failures) == 1
