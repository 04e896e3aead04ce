"""A refusal is checked against the ledger: were the units free when it was decided?"""

from __future__ import annotations

import pytest

from bench.strategies.base import Refused
from bench.strategies.pooled import count_wrong
from segmented.models import EntryKind, LedgerEntry
from segmented.stock import LedgerFold
from tests.support.pools.ledgers import opened


def entry(sequence: int, kind: EntryKind, order_id: str | None, quantity: int, *, at_us: int = 0) -> LedgerEntry:
    return LedgerEntry(1, sequence, kind, at_us, order_id, quantity, ((0, quantity),), 0, None)


def fold_of(*entries: LedgerEntry) -> LedgerFold:
    fold = LedgerFold()
    fold.apply(entries)
    return fold


SALE = fold_of(
    opened(3, 1),
    entry(2, "reserved", "a", 2),
    entry(3, "reserved", "b", 1),
    entry(4, "cancelled", "a", 2),
    entry(5, "confirmed", "b", 1),
)


@pytest.mark.parametrize(
    ("sequence", "quantity", "wrong"), [(1, 3, 1), (1, 4, 0), (2, 1, 1), (2, 2, 0), (3, 1, 0), (4, 2, 1), (5, 3, 0)]
)
def test_a_refusal_is_wrong_where_the_units_free_covered_it(sequence: int, quantity: int, wrong: int) -> None:
    assert count_wrong([Refused(sequence, quantity)], SALE) == wrong


def test_every_wrong_refusal_counts() -> None:
    assert count_wrong([Refused(1, 1), Refused(3, 1), Refused(4, 1)], SALE) == 2
