"""Units put in and taken out while the pool sells, once for each change id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented.errors import ChangeMismatch, InvalidInput
from segmented.models import UNITS_MAX, Closed, Reserved, Restocked, SoldOut, TooFew
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
    shop.reserved("r1", 4)  # an order may have the same id
    assert shop.restock(5, "r1") == Restocked("r1", 5, sequence=2, available=7, replay=True)
    assert (shop.totals(), shop.state().restocked) == ((7, 4, 0), 5)
    shop.resize(5)
    assert shop.state().stock == (2, 2, 1, 1, 1)
    shop.restock(2, "r2")
    assert shop.state().stock == (3, 3, 1, 1, 1)


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


def test_a_pool_that_was_sold_out_sells_what_was_put_in(shop: Shop) -> None:
    shop.open(6, 3)
    shop.withdraw(6, "w1")
    assert isinstance(shop.reserve("a"), SoldOut)
    shop.restock(6, "r1")
    assert shop.state().stock == (2, 2, 2)
    assert isinstance(shop.reserve("a", 6), Reserved)
    assert isinstance(shop.reserve("b"), SoldOut)


def test_free_units_are_withdrawn_from_wherever_they_are(shop: Shop) -> None:
    """All or nothing; what is on hold is not free; and a refused withdrawal is a new attempt when asked again."""
    shop.open(6, 3)
    shop.reserved("a", 2)
    assert shop.withdraw(5, "w1") == TooFew("w1", 5, available=4)
    assert (shop.totals(), shop.state().sequence) == ((4, 2, 0), 2)
    shop.cancel("a")
    for replay in (False, True):
        assert shop.withdraw(5, "w1") == Restocked("w1", 5, sequence=4, available=1, replay=replay)
    state = shop.state()
    assert (state.available, state.withdrawn, state.stocked, sum(state.stock)) == (1, 5, 1, 1)
    assert (shop.ledger()[-1].kind, sum(units for _, units in shop.ledger()[-1].parts)) == ("withdrawn", 5)


def test_a_cancelled_order_returns_to_a_pool_whose_stock_was_withdrawn(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 4)
    shop.withdraw(2, "w1")
    shop.cancel("a")
    assert (shop.totals(), shop.state().stocked) == ((4, 0, 0), 4)


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


def test_a_withdrawal_does_not_wait_for_holds_that_have_lapsed(shop: Shop) -> None:
    shop.open(6, 3)
    shop.reserved("a", 2, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    assert shop.withdraw(6, "w1") == TooFew("w1", 6, available=4)


def test_change_ids_of_any_text_are_told_apart(shop: Shop) -> None:
    shop.open(1, 1)
    for number, word in enumerate(("restocked 5", "{r}", "100 %", "ü票", "x" * 256), start=2):
        for replay in (False, True):
            assert shop.restock(1, word) == Restocked(word, 1, number, number, replay=replay)
