"""How rarely units travel between shards. Memory shows it as a cluster would: the plans are the same."""

from __future__ import annotations

from typing import Final

from bench.micro.stock.shards import TransferCount, count_transfers
from segmented.clock import ManualClock
from segmented.stores.memory import MemoryStore
from tests.support.sim.seeds import each_seed

EARLY_MAX: Final = 0.05
"""Of the sales until 90 % of the stock is sold."""
TRANSFERS_MAX: Final = 40
"""In one sale; 150 random sales had 5 to 18, 12 on average."""


@each_seed(range(5))
def test_fewer_than_one_sale_in_twenty_needs_a_transfer_until_nine_tenths_are_sold(seed: int) -> None:
    count = count_transfers(MemoryStore(clock=ManualClock()), "ticket", seed=seed)
    assert count.early_sales > 5_900
    assert count.early_share <= EARLY_MAX
    assert count.early_transfers == 0
    assert count.transfers <= TRANSFERS_MAX


def test_small_stock_on_many_shards_stays_below_the_bound_as_well() -> None:
    store = MemoryStore(clock=ManualClock())
    assert count_transfers(store, "many shards", shards=64).early_share <= EARLY_MAX
    assert count_transfers(store, "small stock", stock=200).early_share <= EARLY_MAX


def test_a_count_is_told_in_one_line() -> None:
    count = TransferCount(early_sales=6_000, early_transfers=3, sales=6_700, transfers=134)
    assert str(count) == (
        "transfers per sale: 0.05% until 90% was sold (3 of 6,000 sales), 2.00% to the last unit (134 of 6,700)"
    )
