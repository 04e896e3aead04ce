"""Memory alone, whose clock only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.clock import ManualClock
from tests.fixtures.stores import MEMORY, Side, make_side

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory() -> Iterator[Side]:
    """A store on a clock that stands still."""
    made = make_side(MEMORY[0], ManualClock())
    yield made
    made.close()
