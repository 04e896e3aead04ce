"""Memory alone, whose clock only the test moves."""

from collections.abc import Iterator

import pytest

from segmented.clock import ManualClock
from tests.fixtures.stores import MEMORY, Side, make_side


@pytest.fixture
def memory() -> Iterator[Side]:
    """A store on a clock that stands still."""
    made = make_side(MEMORY[0], ManualClock())
    yield made
    made.close()
