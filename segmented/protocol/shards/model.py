"""The model of pools in shards: the directory, and transfers between shards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from segmented import protocol as op
from segmented.errors import PoolDrifted, TransferGated
from segmented.models import Received, ShardDirectory, ShardFound, Transfer
from segmented.protocol.pool.model_records import Room, even_parts, pool_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.protocol.pool.model import PoolModel


class ShardModel:
    """Directories by sku, and transfers between shards, which are pools of their own."""

    def __init__(self, pools: PoolModel) -> None:
        """Create a model without directories, for the shards among `pools`."""
        self._pools = pools
        self._directories: dict[tuple[str, int], ShardDirectory] = {}

    def bodies(self) -> dict[type[op.Operation[Any]], Callable[[Any], object]]:
        """Return the method that performs each operation."""
        return {
            op.ReadDirectory: self.read,
            op.WriteDirectory: self.write,
            op.LookAtShard: self.look,
            op.SendUnits: self.send,
            op.ReceiveUnits: self.receive,
            op.AcknowledgeUnits: self.acknowledge,
            op.NoteEpoch: self.note_epoch,
        }

    def read(self, operation: op.ReadDirectory) -> ShardDirectory | None:
        """Read one copy."""
        return self._directories.get((operation.sku, operation.copy))

    def write(self, operation: op.WriteDirectory) -> ShardDirectory | None:
        """Write one copy once, and mark it open."""
        directory = operation.directory
        if operation.copy == 0 and self._pools.has(directory.sku):
            return None
        place = directory.sku, operation.copy
        found = self._directories.setdefault(place, directory)
        if found.is_archived and directory.epoch > found.epoch:
            found = self._directories[place] = directory
        if operation.copy == 0:
            self._pools.in_shards.add(directory.sku)
        if directory.is_open and found.content == directory.content:
            self._directories[place] = directory
        return self._directories[place]

    def retire(self, directory: ShardDirectory, copy: int) -> bool:
        """Note in a copy that all shards are archived; False if it is the directory of another pool."""
        found = self._directories.get((directory.sku, copy))
        if found is not None and (found.content != directory.content or not (found.is_open or found.is_archived)):
            return False
        if found is not None:
            self._directories[directory.sku, copy] = replace(found, is_open=False, is_archived=True)
            self._pools.in_shards.discard(directory.sku)
        return True

    def look(self, operation: op.LookAtShard) -> ShardFound:
        """Expire due holds, and read the shard's numbers."""
        pool = self._pools.found(operation.shard)
        is_more_due = self._pools.give_back_some(pool, Room())
        away = tuple(
            Transfer("away", target, *pool.away[target], pool.sent_to[target][1], pool.epoch)
            for target in sorted(pool.away)
        )
        return ShardFound(
            operation.shard, pool.available, pool.reserved, away, is_more_due, pool.increases, pool.sequence
        )

    def send(self, operation: op.SendUnits) -> Transfer | None:
        """Take units out for another shard."""
        pool, target = self._pools.found(operation.shard), operation.target
        if pool.gated and not operation.is_stored:
            raise TransferGated(operation.shard)
        if target in pool.away:
            return Transfer("away", target, *pool.away[target], pool.sent_to[target][1], pool.epoch)
        units = min(operation.units, pool.available)
        if units <= 0:
            return None
        last, sum_before = pool.sent_to.get(target, (0, 0))
        parts = pool.gather(pool.cursor, units)
        pool.available -= units
        self._pools.append(pool, "sent", [pool_entry(units, parts, change_id=f"{target}:{last + 1}")])
        pool.away[target] = (last + 1, units)
        pool.sent_to[target] = (last + 1, sum_before + units)
        pool.sent += units
        return Transfer("away", target, last + 1, units, sum_before + units, pool.epoch)

    def receive(self, operation: op.ReceiveUnits) -> Received:
        """Add the units that another shard has sent and that are missing here."""
        pool, source = self._pools.found(operation.shard), operation.source
        if pool.gated and not operation.is_stored:
            raise TransferGated(operation.shard)
        if sum(units for _, units in pool.received_from.values()) != pool.received:
            raise PoolDrifted(operation.shard)
        if operation.epoch < pool.epochs_of.get(source, 0):
            return Received(operation.number, 0, pool.epochs_of[source])
        units = operation.sent - pool.received_from.get(source, (0, 0))[1]
        if units <= 0:
            return Received(operation.number, 0)
        parts = even_parts(units, pool.segment_count)
        for segment, share in parts:
            pool.stock[segment] += share
        pool.available += units
        entry = pool_entry(units, parts, change_id=f"{source}:{operation.number}")
        self._pools.append(pool, "received", [entry])
        pool.received_from[source] = (operation.number, operation.sent)
        pool.received += units
        return Received(operation.number, units)

    def acknowledge(self, operation: op.AcknowledgeUnits) -> None:
        """Drop the note of a transfer."""
        if not self._pools.has(operation.shard):
            return
        pool = self._pools.found(operation.shard)
        if pool.away.get(operation.target, (0, 0))[0] == operation.number and pool.epoch == operation.epoch:
            del pool.away[operation.target]

    def note_epoch(self, operation: op.NoteEpoch) -> int:
        """Note the epoch of another shard, and return the one noted before."""
        pool = self._pools.found(operation.shard)
        before = pool.epochs_of.get(operation.source, 0)
        pool.epochs_of[operation.source] = max(before, operation.epoch)
        return before
