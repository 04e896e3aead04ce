"""Units on the way between two shards: each message is safe to repeat, and changes nothing when it comes late."""

from collections.abc import Iterator

import pytest

from segmented import protocol as op
from segmented.errors import ShardVanished
from segmented.models import Order, PoolState, Received
from segmented.models.pools import Transfer
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import SHORT_MS
from tests.support.contract.shards.banks import ShardPair, TransferShard


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
