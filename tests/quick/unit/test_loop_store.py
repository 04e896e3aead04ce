"""A thread that asks a store beside an event loop does not wait for a loop that has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.plans.loop_store import LoopStore
from segmented.stores.memory import AsyncMemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stopped() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run: what it is given waits in it."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_a_closed_loop_is_asked_nothing(stopped: asyncio.AbstractEventLoop) -> None:
    stopped.close()
    with pytest.raises(StoreUnavailable, match="the event loop of the store ended"):
        LoopStore(AsyncMemoryStore(), stopped).execute(op.ReadPool("mug"))
