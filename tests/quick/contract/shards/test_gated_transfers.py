"""Gated shards: no unit moves unless the order database stores it, and a rebuild takes over what that has stored."""

import pytest

from segmented import protocol as op
from segmented.errors import TransferGated
from segmented.models import PoolState, Shard, Transfer, Verified
from tests.fixtures.stores import Side, another_process


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
