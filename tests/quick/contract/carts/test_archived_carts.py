"""Carts over several pools, of which one is archived before the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.stock.archiving import FileArchive
from segmented.stock.archiving.checking import check_archive
from segmented.stock.archiving.file import lines_of
from segmented.stock.archiving.plan import archive_plan, no_progress
from segmented.stock.audit import audit_plan
from tests.support.contract.carts.carts import CartPools

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.stores import Side


@pytest.fixture
def pools(side: Side) -> CartPools:
    """Two pools with a cart of both, which is confirmed."""
    made = CartPools(side)
    made.open("a", 10)
    made.open("b", 10)
    cart = made.cart("basket", ("a", 1), ("b", 2))
    made.reserved(cart)
    made.confirm(cart)
    return made


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_pool_whose_carts_have_lines_in_an_archived_pool_is_archived(
    pools: CartPools, tmp_path: Path, order: str
) -> None:
    for letter in order:
        pools.shops[letter].close()
        file = tmp_path / f"{letter}.jsonl"
        answer = pools.side.run(archive_plan(pools.sku(letter), FileArchive(file), no_progress))
        assert answer.orders == 1
        carts = sum('"record":"carts"' in line for line in lines_of(file))
        assert carts == (letter == "a")
        assert check_archive(lines_of(file), "here").confirmed == (1 if letter == "a" else 2)


def test_lines_in_an_archived_pool_are_not_judged(pools: CartPools, tmp_path: Path) -> None:
    pools.shops["b"].close()
    pools.side.run(archive_plan(pools.sku("b"), FileArchive(tmp_path / "b.jsonl"), no_progress))
    report, _ = pools.side.run(audit_plan(pools.sku("a")))
    assert (report.is_clean, len(report.unread)) == (True, 1)
    assert "was archived to" in report.unread[0]


def test_a_cart_that_is_open_keeps_its_home_from_being_archived(pools: CartPools, tmp_path: Path) -> None:
    pools.reserved(pools.cart("late", ("a", 1), ("b", 1)))
    pools.shops["a"].close()
    with pytest.raises(InvalidInput, match="1 unit is reserved"):
        pools.side.run(archive_plan(pools.sku("a"), FileArchive(tmp_path / "a.jsonl"), no_progress))
    assert pools.side.execute(op.ListCarts(pools.sku("a"), 10)).count == 1
