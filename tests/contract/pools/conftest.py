"""A small pool on each store on which somebody can wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.stock import Pool
    from tests.fixtures.stores import Side


@pytest.fixture
def pool(waiting_side: Side) -> Iterator[Pool]:
    """Eight units in two segments; the audit must be clean at the end."""
    pool = waiting_side.pool(waiting_side.name())
    pool.open(stock=8, segments=2)
    yield pool
    report = pool.audit()
    assert report.is_clean
    assert report.state.stocked == report.state.available + report.state.reserved + report.state.confirmed
