"""Pools in shards whose master has a replica: a transfer is answered when the replica has it, or not at all."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from segmented import protocol as op
from segmented.errors import StoreUnavailable
from segmented.keys import shard_keys
from segmented.models import Reserved, Shard
from segmented.models.pools import Transfer
from segmented.protocol import Operation
from segmented.stock import AsyncShardedPool, ShardedPool
from segmented.stock.sharded.opening import directory_plan
from tests.fixtures.stores import Side
from tests.fixtures.stores_deployed import deployed_side
from tests.support.servers.deployments import ReplicaPair
from tests.support.servers.nodes import eventually

SKU: Final = "concert"
ANSWER_SECONDS: Final = 60.0


class Replicated:
    """A pool of twenty units in two shards of ten, on a master with a replica."""

    def __init__(self, side: Side, pair: ReplicaPair) -> None:
        """Open it."""
        self.side, self.pair = side, pair
        self.pool: ShardedPool = side.made(
            lambda store: ShardedPool(store, SKU), lambda store: AsyncShardedPool(store, SKU)
        )
        self.pool.open(stock=20, segments=4, shards=2)
        self.shards: tuple[Shard, ...] = side.run(directory_plan(SKU)).shards

    def send(self, units: int) -> op.SendUnits:
        return op.SendUnits(self.shards[1], 0, units)

    def receive(self, number: int, sent: int) -> op.ReceiveUnits:
        return op.ReceiveUnits(self.shards[0], 1, number, sent, epoch=1)

    def kept_by_replica(self, shard: int, note: str) -> str | None:
        found: str | None = self.pair.replica.ask("HGET", shard_keys(self.shards[shard]).transfers, note)
        return found

    def is_kept_back(self) -> bool:
        """Does the master keep an answer until its replica has what was written?"""
        return bool(self.pair.master.info("clients")["blocked_clients"])

    def answered_after(self, operation: Operation[object]) -> object:
        """Perform it while the replica is paused, which goes on once the answer is waited for."""
        self.pair.replica.pause()
        answer = self.side.start(lambda: self.side.execute(operation))
        eventually(self.is_kept_back, "the master waits for its replica")
        assert not answer.done()
        self.pair.replica.resume()
        return answer.result(ANSWER_SECONDS)

    def check(self) -> None:
        report = self.pool.audit()
        assert (report.drift, report.away, report.oversold) == ((), 0, 0)


@pytest.fixture
def replicated(replica_pair: ReplicaPair) -> Iterator[Replicated]:
    side = deployed_side(replica_pair.url, "sync")
    made = Replicated(side, replica_pair)
    yield made
    replica_pair.replica.resume()
    side.close()


@pytest.fixture(autouse=True)
def _long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take a while to let the replica go on."""
    monkeypatch.setattr("segmented.protocol.shards.REPLICA_MS", 20_000)


def test_sent_units_are_answered_when_the_replica_has_them(replicated: Replicated) -> None:
    assert replicated.answered_after(replicated.send(5)) == Transfer("away", 0, 1, 5)
    assert [replicated.kept_by_replica(1, note) for note in ("away:0", "sent:0")] == ["1 5", "1 5"]
    assert replicated.pool.finish_transfers() == 1
    replicated.check()


SAID: Final = "no replica of shard {} of 'concert' has acknowledged a transfer within 1000 ms"


def failing(replicated: Replicated, ask: Callable[[], object]) -> str:
    """Ask while the replica hears nothing, with the usual time to wait for it; return what was said."""
    replicated.pair.replica.pause()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segmented.protocol.shards.REPLICA_MS", 1_000)
        with pytest.raises(StoreUnavailable) as caught:
            ask()
    replicated.pair.replica.resume()
    return str(caught.value)


def test_units_sent_without_an_acknowledging_replica_come_with_the_next_look(replicated: Replicated) -> None:
    """They stay away until somebody looks and finishes the transfer."""
    said = failing(replicated, lambda: replicated.side.execute(replicated.send(5)))
    assert said == SAID.format(1)
    state = replicated.pool.state()
    assert ([shard.available for shard in state.shards], state.away) == ([10, 5], 5)
    answer = replicated.pool.reserve("all", quantity=20)
    assert isinstance(answer, Reserved)
    assert answer.quantity == 20
    replicated.check()


def test_units_whose_receipt_no_replica_acknowledged_stay_away_and_come_in_once(replicated: Replicated) -> None:
    replicated.side.execute(replicated.send(5))
    said = failing(replicated, lambda: replicated.side.execute(replicated.receive(1, 5)))
    assert said == SAID.format(0)
    assert replicated.side.execute(op.LookAtShard(replicated.shards[1])).away == (Transfer("away", 0, 1, 5),)
    assert replicated.pool.finish_transfers() == 1
    assert [shard.available for shard in replicated.pool.state().shards] == [15, 5]
    replicated.check()
