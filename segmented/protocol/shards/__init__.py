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

from typing import Any, Final

from redis.exceptions import ResponseError

from segmented.errors import PoolDrifted, StoreUnavailable, TransferGated
from segmented.keys import directory_copy, shard_keys
from segmented.models import Received, Shard, ShardDirectory, ShardFound, Transfer
from segmented.models.shards import parse_directory
from segmented.protocol.base import AnswerT_co, Operation, ignored
from segmented.protocol.pool import keys_of
from segmented.protocol.wire import (
    Call,
    Finish,
    Reply,
    Send,
    always,
    awaited,
    optional_number,
    plain_call,
    readable,
    replicas_wait,
    script_call,
    text,
)
from segmented.values import light_dataclass

REPLICA_MS: Final = 1_000
"""Timeout for a replica to acknowledge a transfer."""


@light_dataclass(frozen=True, slots=True)
class ReadDirectory(Operation[ShardDirectory | None]):
    """Read one copy of the directory of the pool `sku`."""

    sku: str
    copy: int

    def call(self) -> Call:
        return plain_call("GET", directory_copy(self.sku, self.copy))

    def answer(self, reply: Reply) -> ShardDirectory | None:
        if reply is None:
            return None
        state, _, content = text(reply).partition(" ")
        return _directory(self.sku, state, content)


@light_dataclass(frozen=True, slots=True)
class WriteDirectory(Operation[ShardDirectory | None]):
    """Write one copy of a directory, if there is none, or mark it open; None if a pool without shards exists.

    Returns the stored directory. An existing directory is never changed otherwise.
    """

    directory: ShardDirectory
    copy: int

    def call(self) -> Call:
        directory = self.directory
        beside = () if self.copy else shard_keys(directory.sku).listed()  # a pool of the sku in one hash slot
        keys = [directory_copy(directory.sku, self.copy), *beside]
        return script_call("write_directory", keys, directory.content, "open" if directory.is_open else "opening")

    def answer(self, reply: Reply) -> ShardDirectory | None:
        if text(reply[0]) == "one_slot":
            return None
        return _directory(self.directory.sku, text(reply[1]), text(reply[2]))


@light_dataclass(frozen=True, slots=True)
class LookAtShard(Operation[ShardFound]):
    """Read a shard's numbers, after expiring some due holds."""

    shard: Shard

    def call(self) -> Call:
        return script_call("look_at_shard", keys_of(self.shard))

    def answer(self, reply: Reply) -> ShardFound:
        flat = [int(value) for value in reply[5]]
        epoch = int(reply[7])
        away = tuple(sorted(Transfer("away", *(*flat[first : first + 4], epoch)) for first in range(0, len(flat), 4)))
        return ShardFound(
            shard=self.shard,
            available=int(reply[1]),
            reserved=int(reply[2]),
            away=away,
            is_more_due=text(reply[4]) == "1",
            increases=int(reply[3]),
            sequence=int(reply[6]),
            free_in_ms=optional_number(reply[8]),
        )


class _Transferring(Operation[AnswerT_co]):
    """A change that a replica, if there is one, must have: a failover would otherwise duplicate the units.

    Units whose sending is not acknowledged stay away until the next process completes the transfer.
    """

    __slots__ = ()
    shard: Shard

    def continued(self, answer: Any) -> Finish:
        (info,) = yield Send((("INFO", "replication"),))
        if isinstance(info, ResponseError):
            raise info
        if "state=online" not in readable(info):
            return answer
        if (yield from awaited(replicas_wait(1, REPLICA_MS))) < 1:
            raise StoreUnavailable(f"no replica of {self.shard!r} has acknowledged a transfer within {REPLICA_MS} ms")
        return answer


@light_dataclass(frozen=True, slots=True)
class SendUnits(_Transferring[Transfer | None]):
    """Take up to `units` free units out for the shard `target`; None if none is free.

    While the last transfer to that shard is away, returns that transfer and takes nothing. Raises PoolGated for a gated
    shard, unless the order database stores each transfer before it is received.
    """

    shard: Shard
    target: int
    units: int
    is_stored: bool = False

    def call(self) -> Call:
        return script_call("send_units", keys_of(self.shard), self.target, self.units, int(self.is_stored))

    def answer(self, reply: Reply) -> Transfer | None:
        if _kind_of(self.shard, reply) == "none":
            return None
        return Transfer("away", self.target, *map(int, reply[1:5]))

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class ReceiveUnits(_Transferring[Received]):
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

    def call(self) -> Call:
        numbers = (self.source, self.number, self.sent, self.epoch, int(self.is_stored))
        return script_call("receive_units", keys_of(self.shard), *numbers)

    def answer(self, reply: Reply) -> Received:
        if _kind_of(self.shard, reply) == "earlier":
            return Received(self.number, 0, int(reply[1]))
        return Received(self.number, int(reply[1]))

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class AcknowledgeUnits(Operation[None]):
    """Drop the note that transfer `number` of this `epoch` to the shard `target` is away: it has arrived."""

    shard: Shard
    target: int
    number: int
    epoch: int

    def call(self) -> Call:
        keys = shard_keys(self.shard)
        return script_call("acknowledge_units", [keys.transfers, keys.meta], self.target, self.number, self.epoch)

    answer = ignored


@light_dataclass(frozen=True, slots=True)
class NoteEpoch(_Transferring[int]):
    """Note that the shard `source` is thawed in `epoch`, unless a later one was noted. Returns the one noted before."""

    shard: Shard
    source: int
    epoch: int

    def call(self) -> Call:
        keys = shard_keys(self.shard)
        return script_call("note_epoch", [keys.meta, keys.transfers], self.source, self.epoch)

    def answer(self, reply: Reply) -> int:
        return int(reply[1])


def _directory(sku: str, state: str, content: str) -> ShardDirectory:
    try:
        is_open, is_archived = {"open": (True, False), "opening": (False, False), "archived": (False, True)}[state]
        return parse_directory(sku, content, is_open=is_open, is_archived=is_archived)
    except (KeyError, ValueError):
        raise PoolDrifted(sku) from None


def _kind_of(shard: str, reply: Reply) -> str:
    if text(reply[0]) == "gated":
        raise TransferGated(shard)
    return text(reply[0])
