"""The historical lock's plain commands over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented.keys import lock_keys
from segmented.protocol import DeleteValue, GetSet, GetValue, SetNx
from segmented.protocol.wire import Call, Codec, plain_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


def _encode_set_nx(operation: SetNx) -> Call:
    return plain_call("SETNX", lock_keys(operation.name).lock, operation.value)


def _encode_get(operation: GetValue) -> Call:
    return plain_call("GET", lock_keys(operation.name).lock)


def _encode_get_set(operation: GetSet) -> Call:
    return plain_call("GETSET", lock_keys(operation.name).lock, operation.value)


def _encode_delete(operation: DeleteValue) -> Call:
    return plain_call("DEL", lock_keys(operation.name).lock)


def _decode_flag(_: SetNx | DeleteValue, reply: Reply) -> bool:
    return int(reply) == 1


def _decode_value(_: GetValue | GetSet, reply: Reply) -> str:
    return "" if reply is None else text(reply)


CODECS: Final = {
    SetNx: Codec(_encode_set_nx, _decode_flag),
    GetValue: Codec(_encode_get, _decode_value),
    GetSet: Codec(_encode_get_set, _decode_value),
    DeleteValue: Codec(_encode_delete, _decode_flag),
}
