from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented.errors import InvalidInput
from segmented.ledger_lines import Checkpoint, parse_checkpoint
from segmented.stock import LedgerFold
from tests.support.pools.ledgers import chained, entry, opened

if TYPE_CHECKING:
    from segmented.models import EntryKind, LedgerEntry, Part

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


def test_a_refusal_by_a_customers_limit_is_right_whatever_is_free() -> None:
    limited = replace(entry(2, "refused", "a", 10), note="limit")
    assert folded(OPENED, limited).refused_wrongly == []


def test_a_customer_has_what_is_reserved_or_confirmed_and_not_what_went_back() -> None:
    def ann(sequence: int, kind: EntryKind, order_id: str, quantity: int) -> LedgerEntry:
        return replace(entry(sequence, kind, order_id, quantity, (0, quantity)), customer_id="ann")

    taken = ann(2, "reserved", "a", 1), ann(3, "reserved", "b", 2), ann(4, "confirmed", "a", 1)
    assert folded(OPENED, *taken).bought == {"ann": 3}
    assert folded(OPENED, *taken, ann(5, "expired", "b", 2)).bought == {"ann": 1}
    assert folded(OPENED, ann(2, "reserved", "a", 1), ann(3, "cancelled", "a", 1)).bought == {}


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


def checkpoint(sequence: int, quantity: int, note: Checkpoint, *parts: Part) -> LedgerEntry:
    return replace(entry(sequence, "checkpoint", None, quantity, *parts), note=note.note())


def begun_at_checkpoint(*later: LedgerEntry) -> LedgerFold:
    """A ledger of which the first three changes were trimmed: of 10 units 5 are free, 2 reserved, 3 confirmed."""
    before = chained([OPENED, entry(2, "reserved", "old", 2, (0, 2)), entry(3, "confirmed", "sold", 3, (1, 3))])
    note = Checkpoint(2, 10, 0, 0, 0, 0, 2, 3, is_closed=False, chain_before=before[-1].chain)
    ledger = chained([*before, checkpoint(4, 5, note, (0, 1), (1, 4)), *later])
    fold = LedgerFold(sequence=3, first_sequence=4)
    fold.apply(one for one in ledger if one.sequence > 3)
    return fold


def test_a_fold_begins_with_a_checkpoint() -> None:
    fold = begun_at_checkpoint()
    assert (fold.opened, fold.available, fold.reserved, fold.confirmed, fold.stock) == (10, 5, 2, 3, [1, 4])
    assert (fold.gaps, fold.broken, fold.is_sound) == ([], [], True)


def test_an_order_from_before_the_checkpoint_is_inherited() -> None:
    fold = begun_at_checkpoint(entry(5, "confirmed", "old", 2, (0, 2)), entry(6, "reserved", "new", 1, (1, 1)))
    assert {order_id: order.quantity for order_id, order in fold.inherited.items()} == {"old": 2}
    assert (fold.impossible, fold.reserved, fold.confirmed) == ([], 1, 5)


def test_a_refusal_is_judged_from_the_checkpoint_on() -> None:
    fold = begun_at_checkpoint(entry(5, "reserved", "new", 1, (1, 1)))
    assert [fold.covers(5, sequence) for sequence in (4, 5)] == [True, False]
    with pytest.raises(InvalidInput, match="change 2 was trimmed: the ledger begins with 4"):
        fold.covers(5, 2)


def test_a_ledger_that_should_begin_with_a_checkpoint_but_does_not_is_broken() -> None:
    fold = LedgerFold(sequence=1, first_sequence=2)
    fold.apply(chained([OPENED, entry(2, "reserved", "a", 4, (0, 4))])[1:])
    assert fold.broken == [(2, ("a",))]


def test_a_checkpoint_on_the_way_is_compared() -> None:
    right = Checkpoint(4, 10, 0, 0, 0, 0, 4, 0, is_closed=False, chain_before="")
    taken = entry(2, "reserved", "a", 4, (0, 3), (1, 1))
    rest = ((1, 2), (2, 2), (3, 2))
    assert folded(OPENED, taken, checkpoint(3, 6, right, *rest)).contradicted == []
    wrong = replace(right, reserved=3, is_closed=True)
    ((sequence, what),) = folded(OPENED, taken, checkpoint(3, 6, wrong, (0, 6))).contradicted
    assert sequence == 3
    assert what.split("; ") == [
        "it says reserved 3, the changes before it 4",
        "another answer to whether the pool is closed",
        "other units in segments",
    ]
    unread = replace(entry(3, "checkpoint", None, 6, *rest), note="nonsense")
    assert folded(OPENED, taken, unread).contradicted == [(3, "it cannot be read")]


def test_what_a_checkpoint_says_is_read_as_written() -> None:
    written = Checkpoint(4, 10, 3, 2, 6, 7, 4, 1, is_closed=True, chain_before="0123456789abcdef")
    assert parse_checkpoint(written.note()) == written
    assert parse_checkpoint("4 10") is None
    assert parse_checkpoint("") is None


def test_a_repair_changes_nothing_in_the_fold() -> None:
    before, after = folded(OPENED), folded(OPENED, replace(entry(2, "repaired", "a", 3), note="record written"))
    assert (after.available, after.stock, after.orders) == (before.available, before.stock, {})
    assert (after.sequence, after.is_sound) == (2, True)


def test_a_resize_that_spread_too_much_is_followed_with_what_there_should_be() -> None:
    resized = replace(entry(2, "resized", None, 17, (0, 9), (1, 8)), note="2")
    assert folded(OPENED, resized).stock == [5, 5]


def test_restocks_and_withdrawals_are_kept_by_their_ids() -> None:
    fold = folded(OPENED, entry(2, "restocked", "r", 5, (0, 5)), entry(3, "withdrawn", "w", 2, (0, 2)))
    assert fold.changes == {"r": "restocked 5 2", "w": "withdrawn 2 3"}


def test_a_changed_entry_names_its_orders() -> None:
    ledger = chained([OPENED, entry(2, "reserved", "a", 4, (0, 3), (1, 1))])
    fold = LedgerFold()
    fold.apply([ledger[0], replace(ledger[1], quantity=3)])
    assert fold.broken == [(2, ("a",))]
