"""How rarely units travel between shards. Memory shows it as a cluster would: the plans are the same."""

from __future__ import annotations

from typing import Final

from bench.micro.stock.shards import count_transfers
from segmented.clock import ManualClock
from segmented.stores.memory import MemoryStore

EARLY_MAX: Final = 0.05
"""Of the sales until 90 % of the stock is sold."""
TRANSFERS_MAX: Final = 16
"""In this sale, which has 11; 23 without the halving."""


def test_fewer_than_one_sale_in_twenty_needs_a_transfer_until_nine_tenths_are_sold() -> None:
    count = count_transfers(MemoryStore(clock=ManualClock()), "ticket", stock=2_000, seed=4)
    assert count.early_sales > 560
    assert count.early_transfers == 0
    assert count.transfers <= TRANSFERS_MAX


def test_small_stock_on_many_shards_stays_below_the_bound_as_well() -> None:
    store = MemoryStore(clock=ManualClock())
    assert count_transfers(store, "many shards", stock=2_000, shards=16).early_share <= EARLY_MAX
    assert count_transfers(store, "small stock", stock=200).early_share <= EARLY_MAX
