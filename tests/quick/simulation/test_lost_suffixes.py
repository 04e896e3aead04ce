"""Servers that lose a suffix of their changes, interleaved from seeds: pools freeze, are rebuilt or thawed, sell out.

The invariants are in the worlds: gated_losses.py, ungated_losses.py and sharded_losses.py in tests/support/sim.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.sim.gated_losses import gated_sale
from tests.support.sim.seeds import each_seed
from tests.support.sim.sharded_losses import forgetful_sale
from tests.support.sim.ungated_losses import ungated_sale

LOST: Final = ("kills", "losses", "lost suffixes", "PoolFrozen", "thaws")
BEHIND: Final = (*LOST, "clocks behind", "frozen by a process that was ahead", "overtaken changes noticed")
GATED: Final = (*BEHIND, "rebuilds", "superseded", "steps that a rebuild overtook", "crashes inside a rebuild")
UNGATED: Final = (*BEHIND, "reserved orders cancelled by a thaw")
SHARDED: Final = (*LOST, "forgotten sendings", "forgotten receipts", "forgotten transfers that came late")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Leave out the log lines of rebuilds that void orders."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@each_seed(5, meets=GATED)
def test_a_gated_sale_that_loses_changes_is_rebuilt_and_sells_exactly_its_quota(seed: int) -> Counter[str]:
    return gated_sale(seed)


@each_seed(5, meets=UNGATED)
def test_an_ungated_sale_that_loses_changes_answers_nobody_until_it_is_thawed(seed: int) -> Counter[str]:
    return ungated_sale(seed)


@each_seed(5, meets=SHARDED)
def test_a_sale_in_shards_that_forget_transfers_sells_exactly_its_stock(seed: int) -> Counter[str]:
    return forgetful_sale(seed)
