"""What somebody else has written of transfers stops what it must stop, before anything is changed, and is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted
from segmented.models.pools import Transfer
from tests.support.contract.shards.banks import ShardPair

if TYPE_CHECKING:
    from tests.fixtures.stores import Side


@pytest.fixture
def plain_banks(plain_redis_side: Side) -> ShardPair:
    """On Redis, not audited at the end: somebody else writes to them."""
    return ShardPair(plain_redis_side)


@pytest.mark.parametrize("said", ["", "x", "1", "1 x", "1 -2", "2 "])
@pytest.mark.parametrize("kind", ["sent", "away"])
def test_a_transfer_that_cannot_be_read_stops_the_sending_and_is_named(
    plain_banks: ShardPair, kind: str, said: str
) -> None:
    shop, raw = plain_banks.source, plain_banks.side.raw()
    plain_banks.move(2)
    raw.hset(shop.keys.transfers, f"{kind}:1", said)
    before = shop.state()
    with pytest.raises(PoolDrifted):
        shop.send(1)
    assert shop.state() == before
    assert ("transfer", f"{kind}:1") in shop.drift()


@pytest.mark.parametrize("said", ["", "x", "1", "1 x"])
def test_a_receipt_that_cannot_be_read_stops_the_receiving_and_is_named(plain_banks: ShardPair, said: str) -> None:
    shop, raw = plain_banks.target, plain_banks.side.raw()
    plain_banks.move(2)
    raw.hset(shop.keys.transfers, "received:0", said)
    before = shop.state()
    with pytest.raises(PoolDrifted):
        shop.receive(2, 1)
    assert shop.state() == before
    assert ("transfer", "received:0") in shop.drift()


@pytest.mark.parametrize("said", ["x", "1", "1 x"])
def test_a_look_at_a_shard_with_an_unreadable_transfer_says_that_it_drifted(plain_banks: ShardPair, said: str) -> None:
    plain_banks.side.raw().hset(plain_banks.source.keys.transfers, "away:1", said)
    with pytest.raises(PoolDrifted):
        plain_banks.source.look()


@pytest.mark.parametrize("said", ["", "x", "1.5", None])
@pytest.mark.parametrize("name", ["sent", "received"])
def test_a_total_of_transfers_that_cannot_be_read_stops_them_and_is_named(
    plain_banks: ShardPair, name: str, said: str | None
) -> None:
    shop, raw = plain_banks.source, plain_banks.side.raw()
    if said is None:
        raw.hdel(shop.keys.meta, name)
    else:
        raw.hset(shop.keys.meta, name, said)
    before = shop.state()
    with pytest.raises(PoolDrifted):
        shop.send(1) if name == "sent" else shop.receive(1, 1, source=1)
    with pytest.raises(PoolDrifted):
        shop.side.execute(op.TrimLedger(shop.sku, 0))
    assert shop.state() == before
    assert ("total", name) in shop.drift()


@pytest.mark.parametrize("said", ["", "x", "1.5", "99999999999999999999"])
def test_a_count_of_increases_that_cannot_be_read_is_begun_anew_and_stops_nothing(
    plain_banks: ShardPair, said: str
) -> None:
    shop = plain_banks.source
    plain_banks.side.raw().hset(shop.keys.meta, "increases", said)
    before = shop.increases()
    shop.reserved("a", 2)
    shop.cancel("a")
    between_both = shop.increases()
    assert between_both > before
    shop.restock(1, "r")
    assert shop.increases() == between_both + 1
    assert shop.state().stock == (4, 2, 2)
    shop.check_books()


@pytest.mark.parametrize("text", ["x", ""])
def test_units_of_a_segment_that_cannot_be_read_are_not_added_to(plain_banks: ShardPair, text: str) -> None:
    shop = plain_banks.target
    plain_banks.side.raw().hset(shop.keys.stock, "1", text)
    before = shop.state()
    with pytest.raises(PoolDrifted):
        shop.receive(1, 2)
    assert shop.state() == before


def test_a_stock_that_has_less_than_the_total_says_is_not_sent(plain_banks: ShardPair) -> None:
    shop = plain_banks.source
    plain_banks.side.raw().hset(shop.keys.stock, "1", "0")
    with pytest.raises(PoolDrifted):
        shop.send(7)
    assert shop.state().transfers == ()
    assert shop.send(5) == Transfer("away", 1, 1, 5)


def test_a_field_of_nobodys_is_named_and_stops_nothing(plain_banks: ShardPair) -> None:
    shop = plain_banks.source
    plain_banks.side.raw().hset(shop.keys.transfers, mapping={"away:x": "1 1", "lent:1": "1 1"})
    assert plain_banks.move(1) == 1
    assert shop.drift() == [("transfer", "away:x"), ("transfer", "lent:1")]


def test_after_a_trim_a_receipt_that_is_deleted_is_still_missed(plain_banks: ShardPair) -> None:
    plain_banks.move(2)
    shop = plain_banks.target
    shop.side.execute(op.TrimLedger(shop.sku, 0))
    plain_banks.side.raw().hdel(shop.keys.transfers, "received:0")
    assert shop.drift() == [("transfer", "received")]
