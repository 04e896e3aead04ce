"""A grant whose handle is dropped: a warning that names the order, and units that stay reserved until the hold ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from segmented import AsyncMemoryStore, AsyncPool, MemoryStore, Pool
from segmented.clock import ManualClock
from segmented.models import Busy, Settled
from segmented.stock import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("watched_drops")

DROPPED: Final = (
    r"^grant of order 'a' was dropped: its 2 units stay reserved until its hold ends; "
    r"confirm or cancel it, or use it in a with statement$"
)


def opened(clock: ManualClock | None = None) -> Pool:
    pool = Pool(MemoryStore(clock=clock or ManualClock()), "poster", ttl=30, hold=60)
    pool.open(stock=5, segments=1)
    return pool


def granted(pool: Pool) -> Grant:
    grant = pool.grant("a", quantity=2, timeout=0)
    assert isinstance(grant, Grant)
    return grant


def test_a_dropped_grant_warns_and_leaves_its_units_reserved_and_its_segment_locked() -> None:
    pool = opened()
    with pytest.warns(ResourceWarning, match=DROPPED):
        granted(pool)
    state = pool.state()
    assert (state.available, state.reserved) == (3, 2)
    assert isinstance(pool.grant("b", timeout=0), Busy)


def test_a_dropped_grant_warns_in_asyncio_too() -> None:
    async def drop() -> tuple[int, int]:
        pool = AsyncPool(AsyncMemoryStore(), "poster", ttl=30, hold=60)
        await pool.open(stock=5, segments=1)
        with pytest.warns(ResourceWarning, match=DROPPED):
            await pool.grant("a", quantity=2, timeout=0)
        state = await pool.state()
        return state.available, state.reserved

    assert asyncio.run(drop()) == (3, 2)


def test_a_grant_that_was_settled_or_whose_lease_has_ended_is_dropped_without_a_word() -> None:
    ends: tuple[Callable[[Grant], object], ...] = (Grant.confirm, Grant.cancel)
    for end in ends:
        end(granted(opened()))
    clock = ManualClock()
    grants = [granted(opened(clock))]
    clock.advance(31)
    grants.clear()


def test_a_dropped_grant_whose_holder_id_was_read_gives_no_warning() -> None:
    """With the holder id, somebody else may confirm it."""
    pool = opened()
    holder_id = granted(pool).holder_id
    settled = pool.confirm("a", holder_id=holder_id)
    assert isinstance(settled, Settled)
    assert settled.state == "confirmed"
