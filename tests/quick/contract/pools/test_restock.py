"""Units put in and taken out while the pool sells, once for each change id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import ChangeMismatch, InvalidInput, PoolMissing
from segmented.models import STOCK_MAX, UNITS_MAX, Closed, Reserved, Restocked, SoldOut, TooFew
from tests.support.contract.pools.shop import SHORT_MS

if TYPE_CHECKING:
    from tests.support.contract.pools.shop import Shop


def test_a_restock_is_split_evenly_and_told(shop: Shop) -> None:
    shop.open(6, 3)
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=11, replay=False)
    state = shop.state()
    assert (state.stock, state.available, state.opened, state.restocked, state.stocked) == ((4, 4, 3), 11, 6, 5, 11)
    entry = shop.ledger()[-1]
    assert (entry.kind, entry.order_id, entry.quantity) == ("restocked", "r1", 5)
    assert entry.parts == ((0, 2), (1, 2), (2, 1))


def test_the_same_restock_again_puts_nothing_in(shop: Shop) -> None:
    shop.open(6, 3)
    shop.restock(5, "r1")
    shop.reserved("a", 4)
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=7, replay=True)
    assert shop.totals() == (7, 4, 0)
    assert shop.state().restocked == 5


def test_an_id_counts_for_one_change(shop: Shop) -> None:
    shop.open(6, 3)
    shop.restock(5, "r1")
    sentence = rf"^change 'r1' of pool '{shop.sku}' was something else before$"
    with pytest.raises(ChangeMismatch, match=sentence) as caught:
        shop.restock(4, "r1")
    assert (caught.value.sku, caught.value.change_id) == (shop.sku, "r1")
    with pytest.raises(ChangeMismatch):
        shop.withdraw(5, "r1")
    shop.withdraw(5, "w1")
    with pytest.raises(ChangeMismatch):
        shop.restock(5, "w1")
    assert shop.totals() == (6, 0, 0)


def test_a_change_id_may_be_an_order_id_too(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 2)
    assert isinstance(shop.restock(2, "a"), Restocked)
    shop.confirm("a")
    assert shop.totals() == (6, 0, 2)


def test_a_pool_that_was_sold_out_sells_what_was_put_in(shop: Shop) -> None:
    shop.open(2, 2)
    shop.reserved("a", 2)
    assert isinstance(shop.reserve("b", 3), SoldOut)
    shop.restock(3, "r1")
    assert isinstance(shop.reserve("b", 3), Reserved)
    assert isinstance(shop.reserve("c", 1), SoldOut)


def test_a_kept_refusal_stays_refused_after_a_restock(shop: Shop) -> None:
    shop.open(1, 2)
    shop.grant("a", 2, keep_refusal=True)
    shop.restock(50, "r1")
    assert isinstance(shop.grant("a", 2), SoldOut)


def test_free_units_are_withdrawn_from_wherever_they_are(shop: Shop) -> None:
    shop.open(6, 3)
    assert shop.withdraw(5, "w1") == Restocked("w1", 5, sequence=2, available=1, replay=False)
    state = shop.state()
    assert (state.available, state.withdrawn, state.stocked, sum(state.stock)) == (1, 5, 1, 1)
    assert (shop.ledger()[-1].kind, sum(units for _, units in shop.ledger()[-1].parts)) == ("withdrawn", 5)


def test_the_same_withdrawal_again_takes_nothing_out(shop: Shop) -> None:
    shop.open(6, 3)
    shop.withdraw(5, "w1")
    assert shop.withdraw(5, "w1") == Restocked("w1", 5, sequence=2, available=1, replay=True)
    assert shop.totals() == (1, 0, 0)


def test_a_withdrawal_takes_all_or_nothing_and_what_is_on_hold_is_not_free(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 2)
    assert shop.withdraw(5, "w1") == TooFew("w1", 5, available=4)
    assert shop.totals() == (4, 2, 0)
    assert shop.state().sequence == 2


def test_a_refused_withdrawal_is_a_new_attempt_when_asked_again(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 2)
    shop.withdraw(5, "w1")
    shop.cancel("a")
    answer = shop.withdraw(5, "w1")
    assert isinstance(answer, Restocked)
    assert not answer.replay


def test_the_whole_stock_can_be_withdrawn_and_put_back(shop: Shop) -> None:
    shop.open(6, 3)
    shop.withdraw(6, "w1")
    assert isinstance(shop.reserve("a"), SoldOut)
    shop.restock(6, "r1")
    assert shop.state().stock == (2, 2, 2)
    assert isinstance(shop.reserve("a", 6), Reserved)


def test_a_cancelled_order_returns_to_a_pool_whose_stock_was_withdrawn(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 4)
    shop.withdraw(2, "w1")
    shop.cancel("a")
    assert shop.totals() == (4, 0, 0)
    assert shop.state().stocked == 4


def test_a_closed_pool_is_not_restocked_but_answers_a_repeat(shop: Shop) -> None:
    shop.open(6, 3)
    shop.restock(5, "r1")
    shop.close()
    assert shop.restock(5, "r2") == Closed("r2")
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=11, replay=True)
    with pytest.raises(ChangeMismatch):
        shop.restock(6, "r1")
    assert isinstance(shop.withdraw(11, "w1"), Restocked)


def test_a_pool_is_never_given_more_units_than_a_script_can_count(shop: Shop) -> None:
    shop.open(6, 3)
    most = UNITS_MAX - 6
    assert isinstance(shop.restock(most - 1, "r1"), Restocked)
    before = shop.state()
    with pytest.raises(InvalidInput, match=r"^2 units are too many to restock .*, 1 more is possible$"):
        shop.restock(2, "r2")
    assert shop.state() == before
    assert isinstance(shop.withdraw(before.available - 1, "w1"), Restocked)
    with pytest.raises(InvalidInput):  # `restocked` is a total, too
        shop.restock(2, "r2")
    assert isinstance(shop.restock(1, "r3"), Restocked)
    assert shop.restock(most - 1, "r1").replay  # type: ignore[union-attr]  # a repeat is answered, not refused
    assert (shop.state().available, shop.state().stocked) == (2, 2)


def test_a_gated_pool_is_restocked_and_withdrawn_from_as_any(shop: Shop) -> None:
    shop.open(6, 3, gated=True)
    shop.restock(5, "r1")
    shop.withdraw(4, "w1")
    assert shop.totals() == (7, 0, 0)


def test_a_withdrawal_does_not_wait_for_holds_that_have_lapsed(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.withdraw(6, "w1") == TooFew("w1", 6, available=4)


def test_units_put_in_after_a_resize_go_over_the_new_segments(shop: Shop) -> None:
    shop.open(4, 2)
    shop.resize(4)
    shop.restock(4, "r1")
    assert shop.state().stock == (2, 2, 2, 2)
    shop.resize(1)
    shop.restock(4, "r2")
    assert shop.state().stock == (12,)


def test_a_restock_of_fewer_units_than_segments_is_told_to_the_unit(shop: Shop) -> None:
    shop.open(1, 5)
    shop.restock(2, "r1")
    assert shop.state().stock == (2, 1, 0, 0, 0)


def test_the_largest_restock_is_counted_to_the_unit(shop: Shop) -> None:
    shop.open(STOCK_MAX, 3)
    shop.restock(STOCK_MAX, "r1")
    assert shop.totals() == (2 * STOCK_MAX, 0, 0)
    shop.withdraw(STOCK_MAX - 1, "w1")
    assert shop.totals() == (STOCK_MAX + 1, 0, 0)


def test_change_ids_of_any_text_are_told_apart(shop: Shop) -> None:
    shop.open(1, 1)
    for word in ("restocked 5", "{r}", "100 %", "ü票", "x" * 256):
        assert shop.restock(1, word) == Restocked(word, 1, shop.state().sequence, shop.totals()[0], replay=False)
        repeat = shop.restock(1, word)
        assert isinstance(repeat, Restocked)
        assert repeat.replay
    assert shop.totals() == (6, 0, 0)


def test_a_pool_that_is_not_open_is_not_changed(shop: Shop) -> None:
    with pytest.raises(PoolMissing):
        shop.restock(1, "r1")
    with pytest.raises(PoolMissing):
        shop.withdraw(1, "w1")
    shop.open(1, 1)
    assert isinstance(shop.restock(1, "r1"), Restocked)
