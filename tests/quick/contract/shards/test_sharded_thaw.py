"""A shard that is thawed takes over what other shards know of its transfers, so no unit is free twice or nowhere."""

from collections.abc import Callable

import pytest

from segmented import protocol as op
from segmented.errors import InvalidInput, PoolFrozen, PoolNotFrozen
from segmented.models import Received, Shard, SoldOut, Thawed, Transfer
from segmented.models.shards import note_of
from segmented.stock.sharded import ShardedPool
from tests.fixtures.stores import Side, another_process
from tests.support.contract.shards.sharding import check_all, remembered, sharded, shards_of, taken

STOCK = 40


class Pair:
    """A pool in two shards of 20 units each; five units of shard 0 go to shard 1."""

    def __init__(self, side: Side) -> None:
        self.side, self.sku = side, side.name()
        self.pool: ShardedPool = sharded(side, self.sku)
        self.pool.open(stock=STOCK, segments=4, shards=2)
        self.source, self.target = shards_of(side, self.sku)

    def send(self) -> Transfer:
        sent = self.side.execute(op.SendUnits(self.source, 1, 5))
        assert sent is not None
        return sent

    def receive(self, sent: Transfer) -> Received:
        return self.side.execute(op.ReceiveUnits(self.target, 0, sent.number, sent.sent, sent.epoch))

    def acknowledge(self, sent: Transfer) -> None:
        self.side.execute(op.AcknowledgeUnits(self.source, 1, sent.number, sent.epoch))

    def move(self) -> Transfer:
        sent = self.send()
        assert self.receive(sent).units == 5
        self.acknowledge(sent)
        return sent

    def thaw(self, shard: Shard, *, sold: int = 0) -> Thawed:
        """Thaw a shard that memory does not know to have lost anything."""
        self.side.execute(op.FreezePool(shard, 1))
        return self.side.pool(shard).thaw(sold=sold)

    def free(self) -> tuple[int, int]:
        states = [self.side.execute(op.ReadPool(shard)) for shard in (self.source, self.target)]
        return states[0].available, states[1].available

    def check_sells(self, units: int) -> None:
        """Sell that many units, from whatever shard they are in, and no more."""
        for number in range(units):
            taken(self.pool.reserve(f"last {number}"))
        assert isinstance(self.pool.reserve("none"), SoldOut)
        check_all(self.pool)


@pytest.fixture
def pair(side: Side) -> Pair:
    return Pair(side)


def test_a_source_that_forgot_what_it_sent_has_those_units_no_more_after_its_thaw(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    thawed = pair.thaw(pair.source)
    assert (pair.free(), thawed.state.sent, thawed.cancelled_count) == ((15, 25), 5, 0)
    pair.check_sells(STOCK)


def test_a_target_that_forgot_what_it_received_has_those_units_after_its_thaw(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.target)
    pair.move()
    fail_over()
    thawed = pair.thaw(pair.target)
    assert (pair.free(), thawed.state.received) == ((15, 25), 5)
    pair.check_sells(STOCK)


def both_forget(pair: Pair) -> list[Callable[[], None]]:
    """Move units; returns what makes each shard forget it."""
    fail_overs = [remembered(pair.side, shard) for shard in (pair.source, pair.target)]
    pair.move()
    return fail_overs


def test_units_sold_after_a_transfer_that_both_forgot_are_taken_from_the_other_shard(pair: Pair) -> None:
    for fail_over in both_forget(pair):
        fail_over()
    pair.side.execute(op.FreezePool(pair.target, 1))
    with pytest.raises(InvalidInput, match=r"^23 sold units are more than the 20 units that pool"):
        pair.thaw(pair.source, sold=23)  # the other shard is frozen, and has nothing to send
    pair.thaw(pair.source)
    state = pair.thaw(pair.target, sold=23).state
    assert (state.confirmed, state.received, state.available, pair.free()) == (23, 3, 0, (17, 0))
    assert pair.pool.finish_transfers() == 1
    pair.check_sells(17)


def test_a_source_that_forgot_one_transfer_of_two_takes_over_the_second(pair: Pair) -> None:
    pair.move()
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    with another_process(pair.side) as other:  # it has not seen the loss, and sends again
        again = other.execute(op.SendUnits(pair.source, 1, 2))
        assert again is not None
        assert (again.number, again.units) == (2, 2)
        assert other.execute(op.ReceiveUnits(pair.target, 0, again.number, again.sent, again.epoch)).units == 0
    pair.thaw(pair.source)
    assert pair.free() == (10, 30)
    state = pair.side.execute(op.ReadPool(pair.source))
    assert note_of(state, "sent", 1).units == 10
    assert note_of(state, "away", 1).units == 0
    pair.check_sells(STOCK)


def test_a_transfer_that_was_forgotten_on_its_way_never_arrives(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    sent = pair.send()
    fail_over()
    pair.thaw(pair.source)
    assert pair.free() == (20, 20)
    assert pair.receive(sent) == Received(1, 0, later_epoch=2)
    again = pair.send()
    assert (again.number, again.epoch) == (1, 2)
    pair.acknowledge(sent)  # of the forgotten transfer of the same number
    assert note_of(pair.side.execute(op.ReadPool(pair.source)), "away", 1).units == 5
    assert pair.receive(again).units == 5
    pair.acknowledge(again)
    assert pair.free() == (15, 25)
    pair.check_sells(STOCK)


@pytest.mark.parametrize("lost", ["source", "target"])
def test_a_shard_that_another_knows_to_have_lost_a_transfer_is_frozen_at_the_thaw(pair: Pair, lost: str) -> None:
    forgetful, other_shard = (pair.source, pair.target) if lost == "source" else (pair.target, pair.source)
    fail_over = remembered(pair.side, forgetful)
    pair.move()
    fail_over()
    with another_process(pair.side) as other:
        pair.side = other
        pair.thaw(other_shard)
        with pytest.raises(PoolFrozen):
            other.pool(forgetful).reserve("a")
        other.pool(forgetful).thaw(sold=0)
        assert pair.free() == (15, 25)
        check_all(sharded(other, pair.sku))


def test_a_thaw_that_ended_before_its_last_step_is_repeated_in_a_later_epoch(pair: Pair) -> None:
    fail_over = remembered(pair.side, pair.source)
    pair.move()
    fail_over()
    assert pair.side.execute(op.NoteEpoch(pair.target, 0, 2)) == 0  # as a thaw does that goes no further
    state = pair.thaw(pair.source).state
    assert (state.epoch, pair.free()) == (3, (15, 25))
    with pytest.raises(PoolNotFrozen):
        pair.side.pool(pair.source).thaw(sold=0)
    pair.check_sells(STOCK)


def test_a_shard_that_forgot_its_thaw_is_frozen_when_it_sends_units(pair: Pair) -> None:
    pair.side.execute(op.NoteEpoch(pair.target, 0, 2))
    assert pair.receive(pair.send()) == Received(1, 0, later_epoch=2)
    assert pair.pool.finish_transfers() == 1
    with pytest.raises(PoolFrozen):
        pair.side.pool(pair.source).reserve("a")
    assert pair.side.pool(pair.source).thaw(sold=0).state.epoch == 3
    assert pair.pool.finish_transfers() == 1
    assert pair.free() == (15, 25)
    pair.check_sells(STOCK)
