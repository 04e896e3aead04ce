"""The assignment of a pool over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import AssignedElsewhere
from segmented.keys import shard_keys
from segmented.models.pools import Assigned
from segmented.protocol.pool.foreign import pool_state
from segmented.protocol.pool.wire import keys_of, kind_of, sight_of_state
from segmented.protocol.wire import Call, Codec, always, plain_call, readable, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


def _encode_assign(operation: op.AssignPool) -> Call:
    return script_call("assign_pool", keys_of(operation.sku), *operation.assignment.texts)


def _decode_assign(operation: op.AssignPool, reply: Reply) -> Assigned:
    kind_of(operation.sku, reply)
    return Assigned(pool_state(operation.sku, reply[1]), replay=text(reply[2]) == "1")


def _encode_check(operation: op.CheckAssignment) -> Call:
    return plain_call("HMGET", shard_keys(operation.sku).meta, "queue", "step")


def _decode_check(operation: op.CheckAssignment, reply: Reply) -> None:
    queue, step = ("" if value is None else readable(value) for value in reply)
    if not operation.assignment.takes(queue or None, step or None):
        raise AssignedElsewhere(operation.sku, queue, step)


CODECS: Final = {
    op.AssignPool: Codec(_encode_assign, _decode_assign, acknowledges=always, sight=sight_of_state),
    op.CheckAssignment: Codec(_encode_check, _decode_check),
}
