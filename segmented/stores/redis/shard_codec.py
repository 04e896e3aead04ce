"""Pools in shards over the wire: the directory, and transfers between shards."""

from __future__ import annotations

from typing import Final

from segmented import operations as op
from segmented.errors import PoolDrifted, TransferSkipped
from segmented.keys import directory_keys, shard_keys
from segmented.models import Received, ShardDirectory, ShardFound, Transfer
from segmented.models.shards import parse_directory
from segmented.stores.redis.pool_codec import keys_of, kind_of
from segmented.stores.redis.wire import Call, Codec, Reply, plain_call, script_call, text


def _encode_read(operation: op.ReadDirectory) -> Call:
    return plain_call("GET", directory_keys(operation.sku, operation.copy).directory)


def _decode_read(operation: op.ReadDirectory, reply: Reply) -> ShardDirectory | None:
    if reply is None:
        return None
    state, _, content = text(reply).partition(" ")
    return _directory(operation.sku, state, content)


def _directory(sku: str, state: str, content: str) -> ShardDirectory:
    try:
        return parse_directory(sku, content, is_open={"open": True, "opening": False}[state])
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
    away = tuple(Transfer("away", *flat[first : first + 3]) for first in range(0, len(flat), 3))
    return ShardFound(
        shard=operation.shard,
        available=int(reply[1]),
        reserved=int(reply[2]),
        away=away,
        is_more_due=text(reply[4]) == "1",
        increases=int(reply[3]),
        sequence=int(reply[6]),
    )


def _encode_send(operation: op.SendUnits) -> Call:
    return script_call("send_units", keys_of(operation.shard), operation.target, operation.units)


def _decode_send(operation: op.SendUnits, reply: Reply) -> Transfer | None:
    if kind_of(operation.shard, reply) == "none":
        return None
    return Transfer("away", operation.target, int(reply[1]), int(reply[2]))


def _encode_receive(operation: op.ReceiveUnits) -> Call:
    return script_call("receive_units", keys_of(operation.shard), operation.source, operation.number, operation.units)


def _decode_receive(operation: op.ReceiveUnits, reply: Reply) -> Received:
    if kind_of(operation.shard, reply) == "skipped":
        raise TransferSkipped(operation.shard, operation.source, operation.number, int(reply[1]))
    return Received(operation.number, operation.units, replay=text(reply[1]) == "1")


def _encode_acknowledge(operation: op.AcknowledgeUnits) -> Call:
    return script_call("acknowledge_units", [shard_keys(operation.shard).transfers], operation.target, operation.number)


def _decode_acknowledge(_: op.AcknowledgeUnits, __: Reply) -> None:
    """Whether it was away or not, it is not now."""


SHARD_CODECS: Final = {
    op.ReadDirectory: Codec(_encode_read, _decode_read),
    op.WriteDirectory: Codec(_encode_write, _decode_write),
    op.LookAtShard: Codec(_encode_look, _decode_look),
    op.SendUnits: Codec(_encode_send, _decode_send),
    op.ReceiveUnits: Codec(_encode_receive, _decode_receive),
    op.AcknowledgeUnits: Codec(_encode_acknowledge, _decode_acknowledge),
}
