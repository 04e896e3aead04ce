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


def test_a_transfer_that_cannot_be_read_stops_the_sending_and_is_named(plain_banks: ShardPair) -> None:
    shop, raw = plain_banks.source, plain_banks.side.raw()
    plain_banks.move(2)
    for kind in ("sent", "away"):
        had = raw.hget(shop.keys.transfers, f"{kind}:1")
        for said in ("", "x", "1", "1 x", "1 -2", "2 "):
            raw.hset(shop.keys.transfers, f"{kind}:1", said)
            before = shop.state()
            with pytest.raises(PoolDrifted):
                shop.send(1)
            assert shop.state() == before, (kind, said)
            assert ("transfer", f"{kind}:1") in shop.drift(), (kind, said)
        raw.hset(shop.keys.transfers, f"{kind}:1", str(had)) if had else raw.hdel(shop.keys.transfers, f"{kind}:1")
    for said in ("x", "1", "1 x"):
        raw.hset(shop.keys.transfers, "away:1", said)
        with pytest.raises(PoolDrifted):
            shop.look()


def test_a_receipt_that_cannot_be_read_stops_the_receiving_and_is_named(plain_banks: ShardPair) -> None:
    """And no units are added to a segment that cannot be read."""
    shop, raw = plain_banks.target, plain_banks.side.raw()
    plain_banks.move(2)
    places = [(shop.keys.transfers, "received:0", said) for said in ("", "x", "1", "1 x")]
    for key, field, said in (*places, (shop.keys.stock, "1", "x"), (shop.keys.stock, "1", "")):
        had = str(raw.hget(key, field))
        raw.hset(key, field, said)
        before = shop.state()
        with pytest.raises(PoolDrifted):
            shop.receive(2, 6)
        assert shop.state() == before, (field, said)
        assert field == "1" or ("transfer", field) in shop.drift(), said
        raw.hset(key, field, had)
    assert shop.receive(2, 6).units == 4


def test_a_total_of_transfers_that_cannot_be_read_stops_them_and_is_named(plain_banks: ShardPair) -> None:
    shop, raw = plain_banks.source, plain_banks.side.raw()
    for name in ("sent", "received"):
        for said in ("", "x", "1.5", None):
            raw.hdel(shop.keys.meta, name) if said is None else raw.hset(shop.keys.meta, name, said)
            before = shop.state()
            with pytest.raises(PoolDrifted):
                shop.send(1) if name == "sent" else shop.receive(1, 1, source=1)
            with pytest.raises(PoolDrifted):
                shop.side.execute(op.TrimLedger(shop.sku, 0))
            assert shop.state() == before, (name, said)
            assert ("total", name) in shop.drift(), (name, said)
        raw.hset(shop.keys.meta, name, "0")


def test_a_count_of_increases_that_cannot_be_read_is_begun_anew_and_stops_nothing(plain_redis_side: Side) -> None:
    for said in ("", "x", "1.5", "99999999999999999999"):
        shop = ShardPair(plain_redis_side).source
        shop.side.raw().hset(shop.keys.meta, "increases", said)
        before = shop.increases()
        shop.reserved("a", 2)
        shop.cancel("a")
        between_both = shop.increases()
        assert between_both > before, said
        shop.restock(1, "r")
        assert shop.increases() == between_both + 1, said
        assert shop.state().stock == (4, 2, 2), said
        shop.check_books()


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
