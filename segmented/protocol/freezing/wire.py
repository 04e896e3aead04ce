"""Frozen pools over the wire. Each Lua file starts with its script's contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from segmented import protocol as op
from segmented.errors import AnotherDatabase, InvalidInput, PoolNotFrozen, PoolNotGated, ThawGated
from segmented.keys import shard_keys
from segmented.models import Frozen, Thawed, Verified
from segmented.models.ids import plural
from segmented.protocol.pool.foreign import pool_state
from segmented.protocol.pool.wire import SCAN_COUNT, keys_of, kind_of
from segmented.protocol.wire import Call, Codec, plain_call, position, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply, Sight

LETTERS: Final = {"confirmed": "c", "cancelled": "x", "reserved": "r"}
UNITS_END: Final = 10**15
"""From here on, a number of units may not be exact in a script."""


def another_epoch(sku: str, epoch: int, found: int) -> InvalidInput:
    """Return the error for an epoch that is not the one it has to be."""
    message = f"pool {sku!r} is in epoch {found}, which does not fit epoch {epoch}: read its state and try again"
    return InvalidInput(message)


class TooManySold(InvalidInput):
    """More units of a frozen pool are sold and reserved than it ever had."""

    def __init__(self, sku: str, sold: int, stocked: int, reserved: int = 0) -> None:
        """Create the error with the pool and its units. Reserved orders can be cancelled, sold ones cannot."""
        more = f"{sold} {plural(sold, 'sold unit', 'is')}"
        if reserved:
            more = f"{sold} sold and {reserved} reserved units are"
        super().__init__(
            f"{more} more than the {stocked} {plural(stocked, 'unit')} that pool {sku!r} ever had: check the number, "
            "or give the units ever stocked with stocked=N, in the command --stocked N"
        )
        self.sku = sku
        self.sold = sold
        self.stocked = stocked
        self.reserved = reserved


def counted_before(sku: str) -> InvalidInput:
    """Return the error for a count of reserved units that another thaw has overtaken."""
    message = f"another thaw of pool {sku!r} cancels orders: read its state and try again"
    return InvalidInput(message)


def check_counts(operation: op.ThawPool) -> None:
    """Raise InvalidInput for numbers of units that no pool has."""
    for what, units in (("sold", operation.sold), ("stocked", operation.stocked)):
        if units is not None and (type(units) is not int or not 0 <= units < UNITS_END):
            message = f"{units!r} {what} units are not a number of units: give a whole number from 0"
            raise InvalidInput(message)


def _encode_freeze(operation: op.FreezePool) -> Call:
    return script_call("freeze_pool", keys_of(operation.sku), operation.epoch, operation.latest)


def _decode_freeze(operation: op.FreezePool, reply: Reply) -> Frozen:
    if text(reply[0]) == "late":
        raise another_epoch(operation.sku, operation.epoch, int(reply[1]))
    kind_of(operation.sku, reply)
    return Frozen(operation.sku, found=(int(reply[1]), int(reply[2])), seen=position(text(reply[3])))


def _encode_thaw(operation: op.ThawPool) -> Call:
    check_counts(operation)
    stocked = "" if operation.stocked is None else operation.stocked
    flags = ("1" if operation.is_stored else "0", "1" if operation.is_last else "0", *(operation.reserved or ("", "")))
    notes = [part for one in operation.transfers for part in (one.kind, one.other, one.number, one.units, one.epoch)]
    decided = [part for order_id, state in dict(operation.decided).items() for part in (order_id, LETTERS[state])]
    numbers = (operation.epoch, stocked, operation.sold, *flags, len(operation.transfers), *notes)
    return script_call("thaw_pool", keys_of(operation.sku), *numbers, *decided)


def _decode_thaw(operation: op.ThawPool, reply: Reply) -> Thawed | None:
    sku = operation.sku
    match text(reply[0]):
        case "sells":
            raise PoolNotFrozen(sku)
        case "gated":
            raise ThawGated(sku)
        case "not_gated":
            raise PoolNotGated(sku)
        case "late":
            raise another_epoch(sku, operation.epoch, int(reply[1]))
        case "too_many":
            raise TooManySold(sku, sold=operation.sold, stocked=int(reply[1]), reserved=int(reply[2]))
        case "counted_before":
            raise counted_before(sku)
        case "ending":
            return None
    kind_of(sku, reply)
    return Thawed(pool_state(sku, reply[1]), replay=text(reply[2]) == "1")


def _encode_recount(operation: op.RecountPool) -> Call:
    counted = (operation.reserved, operation.confirmed, operation.restocked, operation.withdrawn)
    head = (*counted, operation.segment_count, operation.sequence)
    return script_call("recount_pool", keys_of(operation.sku), *head, *operation.before)


def _decode_recount(operation: op.RecountPool, reply: Reply) -> bool:
    match text(reply[0]):
        case "sells":
            raise PoolNotFrozen(operation.sku)
        case "not_gated":
            raise PoolNotGated(operation.sku)
        case "outrun":
            return False
    kind_of(operation.sku, reply)
    return True


def _encode_verify(operation: op.VerifyPool) -> Call:
    numbers = (operation.epoch, operation.sequence, operation.turn, operation.sale_id)
    return script_call("verify_pool", keys_of(operation.sku), *numbers)


def _decode_verify(operation: op.VerifyPool, reply: Reply) -> Verified | str:
    match text(reply[0]):
        case "not_gated":
            raise PoolNotGated(operation.sku)
        case "another_sale":
            raise AnotherDatabase(operation.sku)
        case "late":
            raise another_epoch(operation.sku, operation.epoch, int(reply[1]))
        case "another":
            return text(reply[1])
    kind_of(operation.sku, reply)
    return Verified(operation.sku, replay=text(reply[1]) == "1")


def _sight_of_thawed(_: Reply, answer: Thawed | None) -> Sight | None:
    return None if answer is None else (answer.state.epoch, answer.state.sequence, 0)


def _encode_scan_holds(operation: op.ScanHolds) -> Call:
    return plain_call("ZSCAN", shard_keys(operation.sku).holds, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_holds(_: op.ScanHolds, reply: Reply) -> tuple[int, tuple[str, ...]]:
    cursor, found = reply
    pairs = found if found and isinstance(found[0], list) else zip(found[::2], found[1::2], strict=True)
    return int(cursor), tuple(text(order_id) for order_id, _ in pairs)


CODECS: Final = {
    op.FreezePool: Codec(_encode_freeze, _decode_freeze),
    op.VerifyPool: Codec(_encode_verify, _decode_verify),
    op.RecountPool: Codec(_encode_recount, _decode_recount),
    op.ThawPool: Codec(_encode_thaw, _decode_thaw, sight=_sight_of_thawed),
    op.ScanHolds: Codec(_encode_scan_holds, _decode_scan_holds),
}
