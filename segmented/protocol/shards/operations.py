"""Operations on pools in shards: the directory, the state of one shard, and transfers between two.

The source takes units out for a target, notes them as away, and returns how many it has sent there in total
(`SendUnits`); the target adds what it lacks of that total (`ReceiveUnits`); then the source drops the note
(`AcknowledgeUnits`). A source has one transfer to a target at a time, and numbers them. So any process can finish one,
none can finish it twice, a late message changes nothing, and units that a target lost arrive with the next transfer.

A shard that is thawed may have forgotten transfers. So first every other shard notes its next epoch (`NoteEpoch`), and
adds no units of a transfer from an earlier one any more: what it has received from the thawed shard is final then. The
thawed shard takes over what the others have sent to it and received from it where that is more than it knows
(`ThawPool`). So the units of a forgotten transfer are in one shard, and free in none or one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from segmented.models import Received, ShardDirectory, ShardFound, Transfer
from segmented.protocol.base import Operation

if TYPE_CHECKING:
    from segmented.models import Shard

SlotRanges = tuple[tuple[int, int], ...]
"""First and last slot of each range."""


@dataclass(frozen=True, slots=True)
class ListMasters(Operation[tuple[SlotRanges, ...]]):
    """Return which hash slots each master of a cluster serves; nothing for a server outside a cluster."""


@dataclass(frozen=True, slots=True)
class ReadDirectory(Operation[ShardDirectory | None]):
    """Read one copy of the directory of the pool `sku`."""

    sku: str
    copy: int


@dataclass(frozen=True, slots=True)
class WriteDirectory(Operation[ShardDirectory | None]):
    """Write one copy of a directory, if there is none, or mark it open; None if a pool without shards exists.

    Returns the stored directory. An existing directory is never changed otherwise.
    """

    directory: ShardDirectory
    copy: int


@dataclass(frozen=True, slots=True)
class LookAtShard(Operation[ShardFound]):
    """Read a shard's numbers, after expiring some due holds."""

    shard: Shard


@dataclass(frozen=True, slots=True)
class SendUnits(Operation[Transfer | None]):
    """Take up to `units` free units out for the shard `target`; None if none is free.

    While the last transfer to that shard is away, returns that transfer and takes nothing. Raises PoolGated for a gated
    shard, unless the order database stores each transfer before it is received.
    """

    shard: Shard
    target: int
    units: int
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class ReceiveUnits(Operation[Received]):
    """Add what the shard lacks of the units that `source` has `sent` to it in total, up to transfer `number`.

    Raises PoolGated for a gated shard, unless the order database has stored the transfer.
    """

    shard: Shard
    source: int
    number: int
    sent: int
    epoch: int
    """The source's epoch when it said so: an earlier one than this shard has noted of it adds nothing."""
    is_stored: bool = False


@dataclass(frozen=True, slots=True)
class AcknowledgeUnits(Operation[None]):
    """Drop the note that transfer `number` of this `epoch` to the shard `target` is away: it has arrived."""

    shard: Shard
    target: int
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NoteEpoch(Operation[int]):
    """Note that the shard `source` is thawed in `epoch`, unless a later one was noted. Returns the one noted before."""

    shard: Shard
    source: int
    epoch: int
