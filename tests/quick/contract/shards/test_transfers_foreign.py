"""What somebody else has written of transfers stops what it must stop, before anything is changed, and is named."""

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted
from tests.fixtures.stores import Side
from tests.support.contract.shards.banks import ShardPair


@pytest.fixture
def plain_banks(plain_redis_side: Side) -> ShardPair:
    """On Redis, not audited at the end: somebody else writes to them."""
    return ShardPair(plain_redis_side)


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
