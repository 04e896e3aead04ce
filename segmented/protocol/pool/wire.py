"""Stock pools over the wire: the pool as a whole. Each Lua file starts with its script's contract."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import (
    AssignedElsewhere,
    ChangeMismatch,
    EpochEnded,
    InvalidInput,
    OrderUnknown,
    PoolDrifted,
    PoolGated,
    PoolInShards,
    PoolVanished,
    StoreRefused,
)
from segmented.keys import KEPT_MAX, cart_keys, shard_keys
from segmented.ledger_lines import entries_of, parse_parts
from segmented.models import (
    AlreadyOpen,
    Closed,
    LedgerEntry,
    Opened,
    OrderRecord,
    OrderState,
    PoolClosed,
    PoolState,
    Resized,
    Restocked,
    TooFew,
)
from segmented.models.ids import counted, plural
from segmented.models.pools import LedgerStep
from segmented.models.profiles import DATABASE, MEMORY, pool_profile
from segmented.models.shards import no_keys_of
from segmented.protocol.pool.foreign import NAMES, moment, pool_state
from segmented.protocol.wire import Call, Codec, always, optional_number, plain_call, readable, script_call, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from segmented.protocol.wire import Finish, Reply, Sight

SCAN_COUNT: Final = 1_000
EVEN: Final = ("even", b"even")
"""Stands for the units of segments that were just split evenly, as text and as bytes."""
STATES: Final[dict[str, OrderState]] = {
    "r": "reserved",
    "s": "confirmed",
    "c": "confirmed",
    "v": "cancelled",
    "x": "cancelled",
    "e": "expired",
    "f": "refused",
}
"""What callers learn, by the scripts' abbreviations. An order that an earlier epoch sold is sold (`s`).

The last abbreviation of a state is the one that is written.
"""
NOT_WAITED_FOR: Final = frozenset({str(MEMORY), str(DATABASE)})
"""Profiles whose changes are acknowledged by the script alone, as it returns."""


@lru_cache(KEPT_MAX)
def keys_of(sku: str) -> tuple[str, ...]:
    """Return KEYS of every pool script; cached, because each call needs them."""
    return tuple(shard_keys(sku).listed())


def kind_of(sku: str, reply: Reply, order_id: str = "") -> str:
    """Return the kind of the answer, and raise for failures."""
    kind = text(reply[0])
    if kind == "missing":
        raise no_keys_of(sku)
    if kind == "elsewhere":
        raise AssignedElsewhere(sku, readable(reply[1]), readable(reply[2]))
    if kind == "unknown":
        raise OrderUnknown(order_id)
    if kind == "drifted":
        raise PoolDrifted(sku)
    if kind == "gated":
        raise PoolGated(sku, order_id or None)
    if kind == "late":
        raise EpochEnded(sku, int(reply[1]))
    return kind


def sight_of_state(_: Reply, answer: Opened | AlreadyOpen | Resized | PoolClosed | PoolState) -> Sight:
    """Return what the state of a pool tells of its progress; its changes may be lost before they are acknowledged."""
    state = answer if isinstance(answer, PoolState) else answer.state
    return state.epoch, state.sequence if state.profile in NOT_WAITED_FOR else 0, 0


def _sight_of_change(reply: Reply, answer: Restocked | Closed | TooFew) -> Sight | None:
    return (int(reply[5]), answer.sequence, 0) if isinstance(answer, Restocked) else None


# --- opening, reading, changing ---


def _encode_open(operation: op.OpenPool) -> Call:
    gated = "1" if operation.gated else "0"
    numbers = (operation.stock, operation.segment_count, gated, operation.epoch, operation.limit_per_customer or 0)
    profile = operation.profile or pool_profile(operation.sku, None, gated=operation.gated)
    kept = cart_keys(operation.sku)
    place = shard_keys(operation.sku)
    keys = [*keys_of(operation.sku), kept.carts, kept.unfinished, place.directory]
    return script_call("open_pool", keys, *numbers, str(profile), operation.sale_id, *operation.assignment.texts)


def _decode_open(operation: op.OpenPool, reply: Reply) -> Opened | AlreadyOpen:
    kind = text(reply[0])
    if kind == "remains":
        message = f"pool {operation.sku!r} lost some of its keys; opening it again could sell its units twice"
        raise StoreRefused(message)
    if kind == "in_shards":
        raise PoolInShards(operation.sku)
    if kind == "vanished":
        raise PoolVanished(operation.sku, int(reply[1]))
    state = _state(operation.sku, reply[1])
    return Opened(state) if kind == "opened" else AlreadyOpen(state)


def _encode_read(operation: op.ReadPool) -> Call:
    return script_call("read_pool", keys_of(operation.sku))


def _decode_read(operation: op.ReadPool, reply: Reply) -> PoolState:
    return _state(operation.sku, reply)


def _state(sku: str, reply: Reply) -> PoolState:
    kind_of(sku, reply)
    return pool_state(sku, reply)


def order_record(order_id: str, raw: Reply, hold_until_ms: int | None) -> OrderRecord:
    """Read a record."""
    fields = text(raw).split("\t")
    state, quantity, segment, sequence = fields[0], int(fields[1]), optional_number(fields[2]), int(fields[3])
    parts, customer, asked, holder, fence, home = (*fields[4:], "", "", "", "", "", "")[:6]
    return OrderRecord(
        order_id=order_id,
        state=STATES[state],
        quantity=quantity,
        segment=-1 if segment is None else segment,
        parts=parse_parts(parts, segment=segment, quantity=quantity),
        holder_id=holder or None,
        fencing_token=int(fence) if fence else None,
        hold_until_ms=hold_until_ms,
        customer_id=customer or None,
        sequence=sequence,
        asked=int(asked) if asked else quantity,
        cart_home=home or None,
    )


def _encode_read_orders(operation: op.ReadOrders) -> Call:
    return script_call("read_orders", keys_of(operation.sku), *operation.order_ids)


def _decode_read_orders(operation: op.ReadOrders, reply: Reply) -> tuple[OrderRecord | None, ...]:
    found = zip(operation.order_ids, reply[1], reply[2], strict=False)  # maybe of the first orders only
    return tuple(
        None if raw is None else order_record(order_id, raw, None if until is None else moment(until))
        for order_id, raw, until in found
    )


def _read_more_orders(operation: op.ReadOrders, answers: tuple[OrderRecord | None, ...]) -> Finish:
    """Read the records that one page was too short for."""
    while left := operation.order_ids[len(answers) :]:
        answers += yield replace(operation, order_ids=left)
    return answers


def _encode_scan_orders(operation: op.ScanOrders) -> Call:
    return plain_call("HSCAN", shard_keys(operation.sku).orders, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_orders(_: op.ScanOrders, reply: Reply) -> tuple[int, tuple[OrderRecord, ...]]:
    cursor, found = reply
    pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
    return int(cursor), tuple(order_record(text(order_id), raw, None) for order_id, raw in pairs)


def _encode_read_ledger(operation: op.ReadLedger | op.ReadSteps) -> Call:
    epoch = "" if operation.epoch is None else operation.epoch
    return script_call("read_ledger", keys_of(operation.sku), operation.after, operation.limit, epoch)


def _decode_read_ledger(operation: op.ReadLedger, reply: Reply) -> tuple[LedgerEntry, ...]:
    found: list[LedgerEntry] = []
    for step in _steps(operation.sku, reply):
        with suppress(ValueError):  # another program's entry; the audit reports the missing one of the pool
            found += entries_of(step)
    return tuple(found)


def _decode_read_steps(operation: op.ReadSteps, reply: Reply) -> tuple[LedgerStep, ...]:
    return tuple(_steps(operation.sku, reply))


def _steps(sku: str, reply: Reply) -> Iterator[LedgerStep]:
    kind_of(sku, reply)
    for entry_id, flat in reply[1]:
        epoch, _, sequence = text(entry_id).partition("-")
        found: dict[str, Any] = {readable(flat[index]): readable(flat[index + 1]) for index in range(0, len(flat), 2)}
        with suppress(KeyError, ValueError):  # another program's entry
            at_us = int(found["at_us"])
            yield LedgerStep(int(epoch), int(sequence), found["kind"], at_us, found["lines"], found["chain"])


def _encode_list_due(operation: op.ListDue) -> Call:
    return script_call("list_due", keys_of(operation.sku), operation.limit)


def _decode_list_due(operation: op.ListDue, reply: Reply) -> tuple[str, ...]:
    kind_of(operation.sku, reply)
    return tuple(text(order_id) for order_id in reply[1:])


def _encode_restock(operation: op.Restock | op.Withdraw) -> Call:
    kind = "restocked" if isinstance(operation, op.Restock) else "withdrawn"
    epoch = "" if operation.epoch is None else operation.epoch
    return script_call("restock", keys_of(operation.sku), operation.change_id, kind, operation.units, epoch)


def too_many_units(sku: str, units: int, left: int) -> InvalidInput:
    """Return the error for a restock that the pool's numbers cannot count."""
    message = (
        f"{counted(units, 'unit', 'is')} too many to restock {sku!r} by: with what it was given before, {left:,} more "
        f"{plural(left, 'is')} possible"
    )
    return InvalidInput(message)


def _restocked(operation: op.Restock | op.Withdraw, reply: Reply) -> Restocked | None:
    kind = text(reply[0])
    if kind == "mismatch":
        raise ChangeMismatch(operation.sku, operation.change_id)
    if kind == "full":
        raise too_many_units(operation.sku, operation.units, int(reply[1]))
    if kind_of(operation.sku, reply) != "done":
        return None
    units, sequence, available = int(reply[1]), int(reply[2]), int(reply[3])
    return Restocked(operation.change_id, units, sequence, available, replay=text(reply[4]) == "1")


def _decode_restock(operation: op.Restock, reply: Reply) -> Restocked | Closed:
    return _restocked(operation, reply) or Closed(operation.change_id)


def _decode_withdraw(operation: op.Withdraw, reply: Reply) -> Restocked | TooFew:
    return _restocked(operation, reply) or TooFew(operation.change_id, operation.units, int(reply[1]))


def _encode_resize(operation: op.Resize) -> Call:
    return script_call("resize", keys_of(operation.sku), operation.segment_count)


def _decode_resize(operation: op.Resize, reply: Reply) -> Resized:
    kind_of(operation.sku, reply)
    state, place = list(reply[1]), len(NAMES) + 1
    if state[place] in EVEN:
        base, extra = divmod(int(state[1 + NAMES.index("available")]), operation.segment_count)
        units = (base + (segment < extra) for segment in range(operation.segment_count))
        state[place] = [number for pair in enumerate(units) for number in pair]
    return Resized(_state(operation.sku, state), replay=text(reply[2]) == "1")


def _encode_close(operation: op.ClosePool) -> Call:
    return script_call("close_pool", keys_of(operation.sku))


def _decode_close(operation: op.ClosePool, reply: Reply) -> PoolClosed:
    kind_of(operation.sku, reply)
    return PoolClosed(_state(operation.sku, reply[1]), replay=text(reply[2]) == "1")


CODECS: Final = {
    op.OpenPool: Codec(_encode_open, _decode_open, sight=sight_of_state),
    op.ReadPool: Codec(_encode_read, _decode_read, sight=sight_of_state),
    op.ListDue: Codec(_encode_list_due, _decode_list_due),
    op.ReadOrders: Codec(_encode_read_orders, _decode_read_orders, finish=_read_more_orders),
    op.ScanOrders: Codec(_encode_scan_orders, _decode_scan_orders),
    op.ReadLedger: Codec(_encode_read_ledger, _decode_read_ledger),
    op.ReadSteps: Codec(_encode_read_ledger, _decode_read_steps),
    op.Restock: Codec(_encode_restock, _decode_restock, acknowledges=always, sight=_sight_of_change),
    op.Withdraw: Codec(_encode_restock, _decode_withdraw, acknowledges=always, sight=_sight_of_change),
    op.Resize: Codec(_encode_resize, _decode_resize, acknowledges=always, sight=sight_of_state),
    op.ClosePool: Codec(_encode_close, _decode_close, acknowledges=always, sight=sight_of_state),
}
