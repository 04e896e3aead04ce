"""What the tests of tasks' bodies share: order databases in SQLite, and pools that orders are submitted to.

| fixture | what a test gets |
| --- | --- |
| `setup` | a pool of 200 units in memory, on a clock that the test moves: ungated, and with an order database |
| `gated_till` | only the latter |
"""

from collections.abc import Callable

import pytest

from segmented import MemoryStore
from segmented.clock import ManualClock
from segmented.orders import Gate
from tests.quick.orders.conftest import made_tables, order_database
from tests.support.workers.envelope_till import EnvelopeSetup, opened

__all__ = ["made_tables", "order_database"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def gated_till(memory: MemoryStore, order_database: str, open_gate: Callable[..., Gate]) -> EnvelopeSetup:
    gate = open_gate(order_database)
    return EnvelopeSetup(opened(memory, "in the worker", gate), gate)


@pytest.fixture(params=["plain", "gated"])
def setup(request: pytest.FixtureRequest, memory: MemoryStore) -> EnvelopeSetup:
    if request.param == "plain":
        return EnvelopeSetup(opened(memory, "at acceptance", None), None)
    found: EnvelopeSetup = request.getfixturevalue("gated_till")
    return found
