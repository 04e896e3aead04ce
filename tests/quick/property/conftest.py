"""Two pools on an emptied server that nobody else uses meanwhile, for tests that compare every key of it."""

from collections.abc import Iterator
from typing import Final

import pytest

from segmented.servers import ValkeyServer
from tests.support.pools.pool_callers import Caller

LONG: Final = 600.0
"""Seconds of a grant, whose key is compared until the test ends, on a busy machine too."""


@pytest.fixture
def caller(valkey: ValkeyServer) -> Iterator[Caller]:
    made = Caller(valkey.url)
    with_limit, _ = made.pools("limited")
    with_limit.open(stock=9, segments=3, limit_per_customer=2)
    pool, _ = made.pools(ttl=LONG)
    pool.open(stock=9, segments=3)
    pool.reserve("held", quantity=2)
    pool.reserve("sold")
    pool.confirm("sold")
    pool.grant("granted", timeout=0, holder_id="h")
    pool.restock(3, restock_id="r")
    yield made
    made.close()
