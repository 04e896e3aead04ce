"""The note of the relay over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import LedgerDiverged
from segmented.protocol.pool.wire import keys_of, kind_of
from segmented.protocol.wire import Call, Codec, script_call

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply


def _encode(operation: op.NoteRelayed) -> Call:
    return script_call("note_relayed", keys_of(operation.sku), *(operation.relayed or ("", "")))


def _decode(operation: op.NoteRelayed, reply: Reply) -> tuple[int, int]:
    kind = kind_of(operation.sku, reply)
    found = int(reply[1]), int(reply[2])
    if kind != "relayed":
        raise LedgerDiverged(operation.sku, relayed=operation.relayed, found=found, is_behind=kind == "behind")
    return found


CODECS: Final = {op.NoteRelayed: Codec(_encode, _decode)}
