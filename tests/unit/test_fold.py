from __future__ import annotations

from typing import TYPE_CHECKING

from segmented.stock import LedgerFold
from tests.ledgers import chained, entry, opened

if TYPE_CHECKING:
    from segmented.models import LedgerEntry

OPENED = opened(10, 4)


def folded(*entries: LedgerEntry) -> LedgerFold:
    fold = LedgerFold()
    fold.apply(chained(entries))
    return fold


def test_an_opened_pool_is_split_as_evenly_as_whole_units_allow() -> None:
    fold = folded(OPENED)
    assert (fold.opened, fold.available, fold.stock) == (10, 10, [3, 3, 2, 2])


def test_every_kind_moves_its_units() -> None:
    fold = folded(
        OPENED,
        entry(2, "reserved", "a", 4, (0, 3), (1, 1)),
        entry(3, "granted", "a", 4, (0, 3), (1, 1)),
        entry(4, "confirmed", "a", 4, (0, 3), (1, 1)),
        entry(5, "reserved", "b", 2, (2, 2)),
        entry(6, "cancelled", "b", 2, (2, 2)),
        entry(7, "reserved", "c", 1, (3, 1)),
        entry(8, "expired", "c", 1, (3, 1)),
        entry(9, "reserved", "d", 1, (3, 1)),
        entry(10, "refused", "e", 6),
    )
    assert (fold.available, fold.reserved, fold.confirmed) == (5, 1, 4)
    assert fold.stock == [0, 2, 2, 1]
    assert {order_id: order.state for order_id, order in fold.orders.items()} == {
        "a": "confirmed",
        "b": "cancelled",
        "c": "expired",
        "d": "reserved",
        "e": "refused",
    }
    assert (fold.gaps, fold.impossible, fold.refused_wrongly) == ([], [], [])


def test_folding_in_pages_is_folding_at_once() -> None:
    entries = [OPENED, entry(2, "reserved", "a", 4, (0, 3), (1, 1)), entry(3, "confirmed", "a", 4, (0, 3), (1, 1))]
    whole, paged = folded(*entries), LedgerFold()
    for one in chained(entries):
        paged.apply([one])
    assert paged == whole


def test_what_was_free_after_each_change_is_kept() -> None:
    fold = folded(OPENED, entry(2, "reserved", "a", 4, (0, 3), (1, 1)), entry(3, "cancelled", "a", 4, (0, 3), (1, 1)))
    assert fold.available_after == [0, 10, 6, 10]
    assert [fold.covers(7, sequence) for sequence in (1, 2, 3)] == [True, False, True]
    assert [fold.covers(11, sequence) for sequence in (1, 2, 3)] == [False, False, False]


def test_a_refusal_beside_enough_free_units_was_wrong() -> None:
    assert folded(OPENED, entry(2, "refused", "a", 10)).refused_wrongly == ["a"]
    assert folded(OPENED, entry(2, "refused", "a", 11)).refused_wrongly == []


def test_missing_entries_are_named_by_their_sequence_numbers() -> None:
    fold = folded(OPENED, entry(5, "reserved", "a", 4, (0, 3), (1, 1)))
    assert fold.gaps == [2, 3, 4]
    assert fold.sequence == 5
    assert fold.available_after == [0, 10, 10, 10, 10, 6]


def test_a_ledger_without_its_beginning_has_a_gap_there() -> None:
    assert folded(entry(2, "reserved", "a", 1, (0, 1))).gaps == [1]


def test_entries_that_contradict_each_other_name_their_order() -> None:
    taken = entry(2, "reserved", "a", 1, (0, 1))
    ended = entry(3, "confirmed", "a", 1, (0, 1))
    assert folded(OPENED, entry(2, "confirmed", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, entry(2, "granted", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, entry(3, "reserved", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, ended, entry(4, "cancelled", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, taken, ended, entry(4, "reserved", "a", 1, (0, 1))).impossible == ["a"]
    assert folded(OPENED, entry(2, "refused", "a", 99), entry(3, "confirmed", "a", 99)).impossible == ["a"]
