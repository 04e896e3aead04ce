"""Pools in shards over the wire: the directory, and transfers between shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from redis.exceptions import ResponseError

from segmented import protocol as op
from segmented.errors import PoolDrifted, StoreUnavailable, TransferGated
from segmented.keys import directory_keys, shard_keys
from segmented.models import Received, ShardDirectory, ShardFound, Transfer
from segmented.models.shards import parse_directory
from segmented.protocol.acknowledging import awaited, replicas_wait
from segmented.protocol.pool.wire import keys_of, kind_of
from segmented.protocol.wire import (
    Call,
    Codec,
    Exchange,
    Send,
    always,
    optional_number,
    plain_call,
    readable,
    script_call,
    text,
)

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

AnswerT = TypeVar("AnswerT")

REPLICA_MS: Final = 1_000
"""Timeout for a replica to acknowledge a transfer."""


def _encode_read(operation: op.ReadDirectory) -> Call:
    return plain_call("GET", directory_keys(operation.sku, operation.copy).directory)


def _decode_read(operation: op.ReadDirectory, reply: Reply) -> ShardDirectory | None:
    if reply is None:
        return None
    state, _, content = text(reply).partition(" ")
    return _directory(operation.sku, state, content)


def _directory(sku: str, state: str, content: str) -> ShardDirectory:
    try:
        is_open, is_archived = {"open": (True, False), "opening": (False, False), "archived": (False, True)}[state]
        return parse_directory(sku, content, is_open=is_open, is_archived=is_archived)
    except (KeyError, ValueError):
        raise PoolDrifted(sku) from None


def _encode_write(operation: op.WriteDirectory) -> Call:
    directory = operation.directory
    keys = directory_keys(directory.sku, operation.copy).listed()
    return script_call("write_directory", keys, directory.content, "open" if directory.is_open else "opening")


def _decode_write(operation: op.WriteDirectory, reply: Reply) -> ShardDirectory | None:
    if text(reply[0]) == "one_slot":
        return None
    return _directory(operation.directory.sku, text(reply[1]), text(reply[2]))


def _encode_look(operation: op.LookAtShard) -> Call:
    return script_call("look_at_shard", keys_of(operation.shard))


def _decode_look(operation: op.LookAtShard, reply: Reply) -> ShardFound:
    kind_of(operation.shard, reply)
    flat = [int(value) for value in reply[5]]
    epoch = int(reply[7])
    away = tuple(sorted(Transfer("away", *(*flat[first : first + 4], epoch)) for first in range(0, len(flat), 4)))
    return ShardFound(
        shard=operation.shard,
        available=int(reply[1]),
        reserved=int(reply[2]),
        away=away,
        is_more_due=text(reply[4]) == "1",
        increases=int(reply[3]),
        sequence=int(reply[6]),
        free_in_ms=optional_number(reply[8]),
    )


def _encode_send(operation: op.SendUnits) -> Call:
    return script_call(
        "send_units", keys_of(operation.shard), operation.target, operation.units, int(operation.is_stored)
    )


def _decode_send(operation: op.SendUnits, reply: Reply) -> Transfer | None:
    if _kind_of(operation.shard, reply) == "none":
        return None
    return Transfer("away", operation.target, *map(int, reply[1:5]))


def _encode_receive(operation: op.ReceiveUnits) -> Call:
    numbers = (operation.source, operation.number, operation.sent, operation.epoch, int(operation.is_stored))
    return script_call("receive_units", keys_of(operation.shard), *numbers)


def _decode_receive(operation: op.ReceiveUnits, reply: Reply) -> Received:
    if _kind_of(operation.shard, reply) == "earlier":
        return Received(operation.number, 0, int(reply[1]))
    return Received(operation.number, int(reply[1]))


def _kind_of(shard: str, reply: Reply) -> str:
    if text(reply[0]) == "gated":
        raise TransferGated(shard)
    return kind_of(shard, reply)


def _encode_acknowledge(operation: op.AcknowledgeUnits) -> Call:
    keys = shard_keys(operation.shard)
    numbers = (operation.target, operation.number, operation.epoch)
    return script_call("acknowledge_units", [keys.transfers, keys.meta], *numbers)


def _decode_acknowledge(_: op.AcknowledgeUnits, __: Reply) -> None:
    """Ignore whether the transfer was away: it is not any more."""


def _encode_note_epoch(operation: op.NoteEpoch) -> Call:
    keys = shard_keys(operation.shard)
    return script_call("note_epoch", [keys.meta, keys.transfers], operation.source, operation.epoch)


def _decode_note_epoch(operation: op.NoteEpoch, reply: Reply) -> int:
    kind_of(operation.shard, reply)
    return int(reply[1])


# --- replicas ---


def _await_replica(operation: op.SendUnits | op.ReceiveUnits | op.NoteEpoch, answer: AnswerT) -> Exchange[AnswerT]:
    """Wait until a replica, if there is one, acknowledges the writes: a failover would otherwise duplicate the units.

    Units whose sending is not acknowledged stay away until the next process completes the transfer.
    """
    (info,) = yield Send((("INFO", "replication"),), patience=0.0)
    if isinstance(info, ResponseError):
        raise info
    if "state=online" not in readable(info):
        return answer
    if (yield from awaited(replicas_wait(1, REPLICA_MS))) < 1:
        message = f"no replica of {operation.shard!r} has acknowledged a transfer within {REPLICA_MS} ms"
        raise StoreUnavailable(message)
    return answer


CODECS: Final = {
    op.ReadDirectory: Codec(_encode_read, _decode_read),
    op.WriteDirectory: Codec(_encode_write, _decode_write),
    op.LookAtShard: Codec(_encode_look, _decode_look),
    op.SendUnits: Codec(_encode_send, _decode_send, finish=_await_replica, acknowledges=always),
    op.ReceiveUnits: Codec(_encode_receive, _decode_receive, finish=_await_replica, acknowledges=always),
    op.AcknowledgeUnits: Codec(_encode_acknowledge, _decode_acknowledge),
    op.NoteEpoch: Codec(_encode_note_epoch, _decode_note_epoch, finish=_await_replica),
}
