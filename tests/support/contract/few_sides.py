"""Sides for operations that are a script and a codec: what stores of both colours do is shown with pools and locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from segmented.clock import ManualClock
from tests.fixtures.stores import MEMORY, REDIS, Side, opened_side

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDES: Final = [MEMORY[0], REDIS[1], REDIS[3]]
"""Memory; sync with texts, which is long; async with bytes, which is real."""


@pytest.fixture(params=SIDES, ids=str)
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    yield from opened_side(request, ManualClock())
