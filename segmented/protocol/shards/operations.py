"""Operations on pools in shards: the directory, a look at one shard, and transfers between two.

The source takes units out for a target, remembers them as away, and says how many it has sent there in all
(`SendUnits`); the target puts in what it lacks of that sum (`ReceiveUnits`); then the source forgets that they are away
(`AcknowledgeUnits`). A source has one transfer to a target at a time, and numbers them. So any process can finish one,
none can finish it twice, a message that comes late changes nothing, and what a target lost comes in with the next one.
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
    """Tell which hash slots each master of a cluster serves; nothing for a server that is in none."""


@dataclass(frozen=True, slots=True)
class ReadDirectory(Operation[ShardDirectory | None]):
    """Read one copy of the directory of the pool `sku`."""

    sku: str
    copy: int


@dataclass(frozen=True, slots=True)
class WriteDirectory(Operation[ShardDirectory | None]):
    """Write one copy of a directory, if there is none, or mark it open; None when a pool without shards is there.

    Returns what is kept then. A directory that is there is never changed otherwise.
    """

    directory: ShardDirectory
    copy: int


@dataclass(frozen=True, slots=True)
class LookAtShard(Operation[ShardFound]):
    """Tell what a shard has, after some lapsed holds were given back."""

    shard: Shard


@dataclass(frozen=True, slots=True)
class SendUnits(Operation[Transfer | None]):
    """Take up to `units` free units out for the shard `target`; None when there are none.

    As long as the last transfer to that shard is away, it is answered again and nothing is taken.
    """

    shard: Shard
    target: int
    units: int


@dataclass(frozen=True, slots=True)
class ReceiveUnits(Operation[Received]):
    """Put in what the shard lacks of the units that `source` has `sent` to it in all, up to transfer `number`."""

    shard: Shard
    source: int
    number: int
    sent: int


@dataclass(frozen=True, slots=True)
class AcknowledgeUnits(Operation[None]):
    """Forget that transfer `number` to the shard `target` is away: it has arrived."""

    shard: Shard
    target: int
    number: int
