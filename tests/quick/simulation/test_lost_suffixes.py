"""Servers that lose a suffix of their changes, interleaved from seeds: pools freeze, are rebuilt and sell out.

The invariants are in the world, tests/support/sim/gated_losses.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.sim.gated_losses import gated_sale
from tests.support.sim.seeds import each_seed

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

LOST: Final = ("kills", "losses", "lost suffixes", "PoolFrozen", "thaws")
BEHIND: Final = (*LOST, "clocks behind", "frozen by a process that was ahead", "overtaken changes noticed")
GATED: Final = (*BEHIND, "rebuilds", "superseded", "steps that a rebuild overtook", "crashes inside a rebuild")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Leave out the log lines of rebuilds that void orders."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@each_seed(5, meets=GATED)
def test_a_gated_sale_that_loses_changes_is_rebuilt_and_sells_exactly_its_quota(seed: int) -> Counter[str]:
    return gated_sale(seed)
