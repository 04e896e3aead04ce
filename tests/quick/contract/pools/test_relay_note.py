"""A pool notes up to which change its ledger was relayed, and its ledger is trimmed only behind that change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, StoreRefused
from segmented.models import Trimmed
from segmented.stock.audit import audit_plan
from segmented.stock.ledger import trim_plan
from tests.support.contract.pools.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.stores import Side


class RelayedShop(Shop):
    def note(self, *relayed: int) -> tuple[int, int]:
        return self.side.execute(op.NoteRelayed(self.sku, (relayed[0], relayed[1]) if relayed else None))

    def relayed(self) -> tuple[int, int] | None:
        return self.side.execute(op.ReadPool(self.sku)).relayed

    def trim(self, keep: int, *, relayed_only: bool = False) -> Trimmed:
        return self.side.run(trim_plan(op.TrimLedger(self.sku, keep, relayed_only)))

    def ids(self, epoch: int, after: int) -> list[tuple[int, int]]:
        page = self.side.execute(op.ReadLedger(self.sku, after, 1_000, epoch))
        return [(entry.epoch, entry.sequence) for entry in page]

    def sell(self, count: int) -> None:
        """Two changes an order."""
        for _ in range(count):
            order_id = f"o{self.state().sequence}"
            self.reserve(order_id)
            self.confirm(order_id)

    def thaw(self, sold: int) -> None:
        epoch = self.state().epoch
        self.side.execute(op.FreezePool(self.sku, epoch))
        self.side.execute(op.ThawPool(self.sku, epoch + 1, sold))


@pytest.fixture
def shop(side: Side) -> Iterator[RelayedShop]:
    """Five changes: opened, and two units sold."""
    shop = RelayedShop(side, side.name())
    shop.open(100, 3)
    shop.sell(2)
    yield shop
    assert side.run(audit_plan(shop.sku))[0].is_clean


def test_the_note_follows_the_database_and_never_moves_back(shop: RelayedShop) -> None:
    before, ledger = shop.state(), shop.ledger()
    assert shop.relayed() is None
    assert shop.note() == (1, 0)
    assert [shop.note(1, change) for change in (3, 5, 3)] == [(1, 3), (1, 5), (1, 3)]
    assert shop.note() == (1, 0)
    assert shop.relayed() == (1, 5)
    assert (replace(shop.state(), relayed=None), shop.ledger()) == (before, ledger)


def test_the_age_of_what_is_not_relayed_is_that_of_its_oldest_change(shop: RelayedShop) -> None:
    shop.note(1, 4)
    shop.side.pass_time(0.05)
    age_ms = shop.side.execute(op.ReadPool(shop.sku)).relay_age_ms
    assert 50 <= age_ms < 60_000
    shop.note(1, 5)
    assert shop.side.execute(op.ReadPool(shop.sku)).relay_age_ms == 0


def test_a_database_that_is_ahead_of_the_pool_is_refused(shop: RelayedShop) -> None:
    with pytest.raises(InvalidInput, match=r"changes up to 1-6 of the ledger .* the pool is at change 1-5"):
        shop.note(1, 6)
    with pytest.raises(InvalidInput, match=r"changes up to 2-1 of the ledger"):
        shop.note(2, 1)
    assert shop.relayed() is None


def test_a_trim_beyond_the_relayed_change_is_refused_and_changes_nothing(shop: RelayedShop) -> None:
    shop.trim(4)
    shop.note(1, 4)
    with pytest.raises(StoreRefused, match=r"was relayed up to change 1-4, so it cannot be trimmed to 1-5"):
        shop.trim(0)
    assert [entry.sequence for entry in shop.ledger()] == [1, 2, 3, 4, 5, 6]
    shop.sell(1)
    shop.note(1, 5)
    assert shop.trim(2) == Trimmed(6, 9, is_more_left=False)
    assert [entry.sequence for entry in shop.ledger()] == [6, 7, 8, 9]
    assert shop.note(1, 9) == (1, 9)
    assert shop.trim(0) == Trimmed(9, 9, is_more_left=False)


def test_a_trim_of_what_was_relayed_keeps_the_rest(shop: RelayedShop) -> None:
    assert shop.trim(0, relayed_only=True) == Trimmed(1, 6, is_more_left=False)
    shop.note(1, 3)
    assert shop.trim(0, relayed_only=True) == Trimmed(1, 6, is_more_left=False)
    shop.note(1, 5)
    assert shop.trim(0, relayed_only=True) == Trimmed(6, 6, is_more_left=False)
    assert [entry.sequence for entry in shop.ledger()] == [6]
    shop.sell(1)
    assert shop.trim(0, relayed_only=True) == Trimmed(6, 9, is_more_left=False)
    shop.note(1, 9)
    assert shop.trim(2, relayed_only=True) == Trimmed(6, 9, is_more_left=False)
    assert shop.trim(0, relayed_only=True) == Trimmed(9, 9, is_more_left=False)


def test_a_trim_of_what_was_relayed_keeps_the_rest_of_an_earlier_epoch(shop: RelayedShop) -> None:
    shop.note(1, 3)
    shop.thaw(2)
    assert shop.trim(0, relayed_only=True) == Trimmed(6, 8, is_more_left=False)
    assert shop.ids(1, 0) == [(1, number) for number in range(1, 6)] + [(2, 6), (2, 7), (2, 8)]
    shop.note(1, 5)
    assert shop.trim(0, relayed_only=True) == Trimmed(6, 8, is_more_left=False)
    assert shop.ids(1, 0) == [(2, 6), (2, 7), (2, 8)]


def test_a_first_relay_of_a_trimmed_ledger_begins_with_its_checkpoint(shop: RelayedShop) -> None:
    shop.trim(0)
    assert shop.note() == (1, 5)
    assert shop.relayed() == (1, 5)
    assert shop.ids(1, 5) == [(1, 6)]


def test_another_database_is_refused_once_entries_are_deleted(shop: RelayedShop) -> None:
    shop.note(1, 5)
    assert shop.note() == (1, 0)
    shop.trim(0)
    with pytest.raises(InvalidInput, match=r"has nothing of the ledger .* goes on with change 1-6"):
        shop.note()
    with pytest.raises(InvalidInput, match=r"has changes up to 1-4 of the ledger .* goes on with change 1-6"):
        shop.note(1, 4)
    assert shop.note(1, 5) == (1, 5)


def test_after_a_thaw_the_ledger_is_relayed_from_the_earlier_epoch_on(shop: RelayedShop) -> None:
    shop.note(1, 3)
    shop.thaw(2)
    assert shop.ids(1, 3) == [(1, 4), (1, 5), (2, 6), (2, 7)]
    assert shop.ids(2, 6) == [(2, 7)]
    assert shop.note(1, 3) == (1, 3)
    with pytest.raises(StoreRefused, match="relayed up to change 1-3, so it cannot be trimmed to 2-7"):
        shop.trim(0)
    assert shop.note(1, 5) == (1, 5)
    with pytest.raises(StoreRefused, match="relayed up to change 1-5, so it cannot be trimmed to 2-7"):
        shop.trim(0)
    assert shop.trim(3) == Trimmed(6, 8, is_more_left=False)
    assert shop.note(2, 7) == (2, 7)
    assert shop.ids(1, 3) == [(2, 6), (2, 7), (2, 8)]


def test_a_note_that_cannot_be_read_is_refused_and_shown(redis_side: Side) -> None:
    shop = RelayedShop(redis_side, redis_side.name())
    shop.open(100, 3)
    shop.side.raw().hset(shop.keys.meta, "relayed", "soon")
    with pytest.raises(StoreRefused, match="do not add up"):
        shop.note(1, 1)
    with pytest.raises(StoreRefused, match="do not add up"):
        shop.trim(0)
    assert shop.state().unreadable == ("relayed",)
    assert len(shop.ledger()) == 1
