"""Two shards under test, between which units travel."""

from segmented import protocol as op
from segmented.models import Received, Shard, ShardFound
from segmented.models.pools import Transfer
from segmented.stock.audit import audit_plan
from tests.fixtures.stores import Side
from tests.support.contract.pools.shop import Shop


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
