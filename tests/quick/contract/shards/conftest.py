"""A pool in three shards; and memory alone, whose clock only the test moves."""

from collections.abc import Iterator

import pytest

from segmented.clock import ManualClock
from segmented.stock import ShardedPool
from tests.fixtures.stores import MEMORY, Side, make_side
from tests.support.contract.shards.sharding import SHARDS, STOCK, check_all, sharded


@pytest.fixture
def memory() -> Iterator[Side]:
    """A store on a clock that stands still."""
    made = make_side(MEMORY[0], ManualClock())
    yield made
    made.close()


@pytest.fixture
def pool(side: Side) -> Iterator[ShardedPool]:
    """Eleven units in seven segments of three shards: four, four and three units."""
    made = sharded(side, side.name())
    made.open(stock=STOCK, segments=7, shards=SHARDS)
    yield made
    check_all(made)
