"""A grant whose handle is dropped: a warning that names the order, and units that stay reserved until the hold ends."""

from typing import Final

import pytest

from segmented import MemoryStore, Pool
from segmented.clock import ManualClock
from segmented.models import Busy
from segmented.stock import Grant

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
