"""Units on the way between two shards: each message is safe to repeat, and changes nothing when it comes late."""

from collections.abc import Iterator

import pytest

from segmented import protocol as op
from segmented.errors import PoolDrifted, ShardVanished, TransferGated
from segmented.models import Order, PoolState, Received, Shard, ShardFound, Verified
from segmented.models.pools import Transfer
from segmented.stock.audit import audit_plan
from tests.fixtures.stores import Side, another_process
from tests.support.contract.pools.shop import SHORT_MS, Shop


class TransferShard(Shop):
    """One of two shards, which have seven units in three segments and three units in two."""

    def __init__(self, side: Side, sku: str, number: int) -> None:
        self.shard = Shard(sku, number, "a")
        super().__init__(side, self.shard)

    def look(self) -> ShardFound:
        return self.side.execute(op.LookAtShard(self.shard))

    def send(self, units: int, target: int = 1) -> Transfer | None:
        return self.side.execute(op.SendUnits(self.shard, target, units))

    def receive(self, number: int, sent: int, source: int = 0) -> Received:
        return self.side.execute(op.ReceiveUnits(self.shard, source, number, sent, epoch=1))

    def acknowledge(self, number: int) -> None:
        self.side.execute(op.AcknowledgeUnits(self.shard, 1, number, epoch=1))

    def increases(self) -> int:
        return self.look().increases

    def drift(self) -> list[tuple[str, str]]:
        report, _ = self.side.run(audit_plan(self.sku))
        return [(one.about, one.name) for one in report.drift]


class ShardPair:
    """Both shards."""

    def __init__(self, side: Side) -> None:
        sku = side.name()
        self.side, self.source, self.target = side, TransferShard(side, sku, 0), TransferShard(side, sku, 1)
        self.source.open(7, 3)
        self.target.open(3, 2)

    def move(self, units: int) -> int:
        """Make a whole transfer; returns how many units came."""
        sent = self.source.send(units)
        if sent is None:
            return 0
        self.target.receive(sent.number, sent.sent)
        self.source.acknowledge(sent.number)
        return sent.units


@pytest.fixture
def pair(side: Side) -> Iterator[ShardPair]:
    """Audited when the test ends."""
    made = ShardPair(side)
    yield made
    made.source.check_books()
    made.target.check_books()


def between(state: PoolState) -> tuple[int, int, int, int]:
    return state.stocked, state.available, state.sent, state.received


def test_a_transfer_takes_units_out_here_and_puts_them_in_there(pair: ShardPair) -> None:
    assert pair.source.send(4) == Transfer("away", 1, 1, 4)
    assert between(pair.source.state()) == (3, 3, 4, 0)
    assert pair.source.state().transfers == (Transfer("away", 1, 1, 4), Transfer("sent", 1, 1, 4))
    assert pair.target.receive(1, 4) == Received(1, 4)
    assert between(pair.target.state()) == (7, 7, 0, 4)
    assert pair.target.state().stock == (4, 3)
    assert pair.source.look().away == (Transfer("away", 1, 1, 4),)
    pair.source.acknowledge(1)
    assert pair.source.look().away == ()
    assert pair.source.state().transfers == (Transfer("sent", 1, 1, 4),)
    assert pair.target.state().transfers == (Transfer("received", 0, 1, 4),)


def test_every_message_may_come_twice(pair: ShardPair) -> None:
    for _ in range(2):
        assert pair.source.send(4) == Transfer("away", 1, 1, 4)
    assert [pair.target.receive(1, 4).replay for _ in range(2)] == [False, True]
    for _ in range(2):
        pair.source.acknowledge(1)
    assert (pair.source.totals(), pair.target.totals()) == ((3, 0, 0), (7, 0, 0))
    assert pair.source.state().transfers == (Transfer("sent", 1, 1, 4),)


def test_an_old_number_that_comes_late_changes_nothing(pair: ShardPair) -> None:
    assert [pair.move(1) for _ in range(3)] == [1, 1, 1]
    for number in (1, 2, 3):
        assert pair.target.receive(number, number).replay
    pair.source.send(2)
    for number in (1, 2, 3):
        pair.source.acknowledge(number)
    assert pair.source.look().away == (Transfer("away", 1, 4, 2),)
    assert pair.target.totals() == (6, 0, 0)
    assert pair.target.state().transfers == (Transfer("received", 0, 3, 3),)


def test_a_source_that_forgot_a_transfer_gives_those_units_once(pair: ShardPair) -> None:
    assert pair.target.receive(1, 3) == Received(1, 3)  # a failover took back that they were sent
    sent = pair.source.send(4)
    assert sent is not None
    assert pair.target.receive(sent.number, sent.sent) == Received(1, 1)
    pair.source.acknowledge(1)
    assert pair.source.totals()[0] + pair.target.totals()[0] == 10


def test_what_is_sent_is_at_most_what_is_free(pair: ShardPair) -> None:
    assert pair.source.send(0) is None
    pair.source.reserved("a", 4)
    assert pair.source.send(100) == Transfer("away", 1, 1, 3)
    assert pair.source.totals() == (0, 4, 0)
    assert pair.source.send(1, target=2) is None
    assert [kind for kind, _ in pair.source.story()] == ["opened", "reserved", "sent"]


def test_every_transfer_stands_in_both_ledgers(pair: ShardPair) -> None:
    pair.move(4)
    pair.move(3)
    sent = [(entry.kind, entry.order_id, entry.quantity, sorted(entry.parts)) for entry in pair.source.ledger(1)]
    assert sent == [("sent", "1:1", 4, [(0, 3), (1, 1)]), ("sent", "1:2", 3, [(1, 1), (2, 2)])]
    got = [(entry.kind, entry.order_id, entry.quantity, entry.parts) for entry in pair.target.ledger(1)]
    assert got == [("received", "0:1", 4, ((0, 2), (1, 2))), ("received", "0:2", 3, ((0, 2), (1, 1)))]


def test_no_other_than_an_open_shard_sends_or_receives(side: Side) -> None:
    shard = TransferShard(side, side.name(), 0)
    for ask in (shard.look, lambda: shard.send(1), lambda: shard.receive(1, 1)):
        with pytest.raises(ShardVanished):
            ask()
    shard.acknowledge(1)
    with pytest.raises(ShardVanished):
        shard.state()


def test_a_look_returns_lapsed_holds_16_at_a_time_and_says_whether_more_are_due(side: Side) -> None:
    shard = TransferShard(side, side.name(), 0)
    shard.open(40, 2)
    shard.reserve_many((Order(f"o{index}", 1) for index in range(40)), hold_ms=SHORT_MS)
    shard.let_short_holds_lapse()
    found = [shard.look() for _ in range(4)]
    assert [(one.available, one.reserved, one.is_more_due) for one in found] == [
        (16, 24, True),
        (32, 8, True),
        (40, 0, False),
        (40, 0, False),
    ]
    assert [one.increases - found[0].increases for one in found] == [0, 1, 2, 2]
    shard.check_books()


def test_increases_grow_with_every_growth_of_what_is_free_and_with_nothing_else(pair: ShardPair) -> None:
    shop, seen = pair.source, pair.source.increases()

    def grew() -> int:
        nonlocal seen
        before, seen = seen, shop.increases()
        return seen - before

    shop.reserved("a", 1)
    shop.granted("b", 1)
    shop.renew("b")
    shop.confirm("b")
    shop.confirm("b")
    assert grew() == 0
    shop.cancel("a")
    assert grew() == 1
    shop.cancel("a")
    assert grew() == 0
    shop.restock(3, "r1")
    assert grew() == 1
    shop.restock(3, "r1")
    shop.withdraw(1, "w1")
    shop.withdraw(100, "w2")
    shop.reserve("too many", 100)
    shop.grant("refused", 100, keep_refusal=True)
    shop.resize(2)
    shop.send(1)
    shop.send(1)
    shop.acknowledge(1)
    assert grew() == 0
    shop.receive(1, 2, source=1)
    assert grew() == 1
    shop.receive(1, 2, source=1)
    assert grew() == 0
    shop.reserved("c", 1, hold_ms=SHORT_MS)
    shop.let_short_holds_lapse()
    shop.expire_due()
    assert grew() == 1
    shop.close()
    shop.side.execute(op.TrimLedger(shop.sku, 0))
    assert grew() == 0


# What somebody else has written of transfers stops what it must stop, before anything is changed, and is named.


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


# Gated shards: no unit moves unless the order database stores it, and a rebuild takes over what that has stored.


class GatedShards:
    """Two gated shards of ten units; a test is their order database."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.source, self.target = (Shard(side.name(), number, "a") for number in (0, 1))
        for shard in (self.source, self.target):
            side.execute(op.OpenPool(shard, 10, 2, gated=True, epoch=1))

    def send(self, units: int) -> Transfer:
        sent = self.side.execute(op.SendUnits(self.source, 1, units, is_stored=True))
        assert sent is not None
        return sent

    def receive(self, sent: Transfer) -> int:
        operation = op.ReceiveUnits(self.target, 0, sent.number, sent.sent, sent.epoch, is_stored=True)
        return self.side.execute(operation).units

    def acknowledge(self, sent: Transfer) -> None:
        self.side.execute(op.AcknowledgeUnits(self.source, 1, sent.number, sent.epoch))

    def rebuild(self, shard: Shard, stocked: int, *, sent: int = 0, received: int = 0) -> PoolState:
        """Rebuild a shard as the database has it: what the other one has `sent` to it, and `received` from it."""
        other = 1 - shard.number
        transfers = (Transfer("sent", other, 0, sent), Transfer("received", other, 0, received))
        self.side.execute(op.FreezePool(shard, 1))
        self.side.execute(op.ThawPool(shard, 2, 0, stocked, is_stored=True, transfers=transfers))
        answer = self.side.execute(op.VerifyPool(shard, 2, 0))
        if isinstance(answer, str):
            answer = self.side.execute(op.VerifyPool(shard, 2, 0, answer))
        assert isinstance(answer, Verified)
        return self.side.execute(op.ReadPool(shard))


@pytest.fixture
def shards(side: Side) -> GatedShards:
    return GatedShards(side)


def notes(state: PoolState) -> dict[str, tuple[int, int]]:
    return {one.kind: (one.number, one.units) for one in state.transfers}


def numbers(state: PoolState) -> tuple[int, int, int, int]:
    return state.stocked, state.available, state.sent, state.received


def test_a_gated_shard_neither_sends_nor_receives_what_its_database_does_not_store(shards: GatedShards) -> None:
    with pytest.raises(TransferGated, match="gate=gate"):
        shards.side.execute(op.SendUnits(shards.source, 1, 3))
    sent = shards.send(3)
    with pytest.raises(TransferGated, match="gate=gate"):
        shards.side.execute(op.ReceiveUnits(shards.target, 0, sent.number, sent.sent, sent.epoch))
    assert shards.side.execute(op.ReadPool(shards.target)).available == 10
    assert [shards.receive(sent), shards.receive(sent)] == [3, 0]


def test_a_rebuilt_source_has_the_units_of_a_transfer_that_was_never_stored(shards: GatedShards) -> None:
    first = shards.send(2)
    assert shards.receive(first) == 2
    shards.acknowledge(first)
    assert shards.send(3).number == 2
    state = shards.rebuild(shards.source, 8, received=2)
    assert numbers(state) == (8, 8, 2, 0)
    assert notes(state) == {"sent": (3, 2)}
    again = shards.send(1)
    assert (again.number, again.sent, again.epoch) == (4, 3, 2)
    assert shards.receive(again) == 1


def test_a_rebuilt_source_that_forgot_a_stored_transfer_sends_it_again(shards: GatedShards) -> None:
    state = shards.rebuild(shards.source, 6, received=4)
    assert numbers(state) == (6, 6, 4, 0)
    assert notes(state) == {"away": (1, 4), "sent": (1, 4)}
    with another_process(shards.side) as other:
        (away,) = other.execute(op.LookAtShard(shards.source)).away
    assert shards.receive(away) == 4
    shards.acknowledge(away)
    assert notes(shards.side.execute(op.ReadPool(shards.source))) == {"sent": (1, 4)}


def test_a_rebuilt_target_has_what_was_stored_and_gets_nothing_twice(shards: GatedShards) -> None:
    sent = shards.send(3)
    state = shards.rebuild(shards.target, 13, sent=3)
    assert numbers(state) == (13, 13, 0, 3)
    assert shards.receive(sent) == 0
    shards.acknowledge(sent)
    assert shards.receive(shards.send(2)) == 2
