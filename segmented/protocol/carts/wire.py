"""Carts over the wire. Each Lua file starts with its script's contract."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from segmented import protocol as op
from segmented.errors import CartGated, CartMismatch, CartUnknown, InvalidInput, PoolGated
from segmented.keys import cart_keys, shard_keys
from segmented.models import (
    PINNED_UNTIL_MS,
    Busy,
    CartRecord,
    CartState,
    Closed,
    Decided,
    InspectedCart,
    LimitReached,
    LineRefusal,
    OrderState,
    SoldOut,
    UnfinishedCart,
    UnfinishedCarts,
    cart_of,
)
from segmented.models.carts import mismatch_of
from segmented.protocol.audit.wire import foreign_text, pairs_in
from segmented.protocol.pool.foreign import moment
from segmented.protocol.pool.wire import SCAN_COUNT, STATES, keys_of, kind_of
from segmented.protocol.wire import Call, Codec, always, plain_call, script_call, text

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

CART_STATES: Final[dict[str, CartState]] = {"o": "open", **STATES}
RECORD: Final = re.compile(r"([a-z])\t[0-9]{1,18}\t([^\t\n]*)(?:\t[0-9a-f]*)?\n(.*)", re.DOTALL)
UNREADABLE: Final = (InvalidInput, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a content that another program wrote."""
LETTERS: Final = {state: letter for letter, state in CART_STATES.items()}
REFUSALS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (SoldOut, Busy, Decided, Closed, LimitReached)}


def refusal_text(refusal: LineRefusal | None) -> str:
    """Return the text of a refusal, empty for none."""
    if refusal is None:
        return ""
    kept = [refusal.sku, type(refusal.answer).__name__, asdict(refusal.answer)]
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def _refusal(raw: str) -> LineRefusal | None:
    if not raw:
        return None
    sku, kind, kept = json.loads(raw)
    return LineRefusal(sku, REFUSALS[kind](**kept))


def _record(home: str, cart_id: str, reply: Reply) -> CartRecord:
    kind = kind_of(home, reply) if text(reply[0]) not in {"unknown", "gated"} else text(reply[0])
    if kind == "gated":
        raise CartGated(home, cart_id)
    if kind == "unknown":
        raise CartUnknown(home, cart_id)
    state, left_ms, finished, refusal, content, replay = (text(part) for part in reply[1:7])
    return CartRecord(
        cart=cart_of(cart_id, content),
        state=CART_STATES[state],
        left_ms=int(left_ms),
        is_finished=finished == "1",
        refusal=_refusal(refusal),
        replay=replay == "1",
    )


def _encode_open(operation: op.OpenCart) -> Call:
    cart = operation.cart
    return script_call("open_cart", cart_keys(cart.home).listed(), cart.cart_id, operation.hold_ms, cart.content)


def _decode_open(operation: op.OpenCart, reply: Reply) -> CartRecord:
    cart = operation.cart
    if text(reply[0]) == "mismatch":
        try:
            stored = cart_of(cart.cart_id, text(reply[1]))
        except UNREADABLE:
            raise CartMismatch(cart.home, cart.cart_id) from None
        raise mismatch_of(cart, stored)
    return _record(cart.home, cart.cart_id, reply)


def _encode_read(operation: op.ReadCart) -> Call:
    return script_call("read_cart", cart_keys(operation.home).listed(), operation.cart_id)


def _decode_read(operation: op.ReadCart | op.DecideCart, reply: Reply) -> CartRecord:
    return _record(operation.home, operation.cart_id, reply)


def _encode_decide(operation: op.DecideCart) -> Call:
    letter, stored = LETTERS[operation.state], "1" if operation.stored else "0"
    arguments = (operation.cart_id, letter, refusal_text(operation.refusal), stored)
    return script_call("decide_cart", cart_keys(operation.home).listed(), *arguments)


def _encode_finish(operation: op.FinishCart) -> Call:
    return plain_call("ZREM", cart_keys(operation.home).unfinished, operation.cart_id)


def _decode_finish(_: op.FinishCart, reply: Reply) -> bool:
    return int(reply) == 1


def _encode_list_due(operation: op.ListDueCarts) -> Call:
    return script_call("list_due_carts", cart_keys(operation.home).listed(), operation.limit, operation.skip)


def _decode_list_due(operation: op.ListDueCarts, reply: Reply) -> tuple[CartRecord, ...]:
    kind_of(operation.home, reply)
    return tuple(_record(operation.home, text(cart_id), found) for cart_id, found in reply[1:])


def _encode_list(operation: op.ListCarts) -> Call:
    return script_call("list_carts", cart_keys(operation.home).listed(), operation.limit)


def _decode_list(operation: op.ListCarts, reply: Reply) -> UnfinishedCarts:
    kind_of(operation.home, reply)
    carts = tuple(
        UnfinishedCart(_record(operation.home, text(cart_id), found), int(due_in_ms))
        for cart_id, due_in_ms, found in reply[3:]
    )
    return UnfinishedCarts(carts, count=int(reply[1]), due_count=int(reply[2]))


def _encode_pin(operation: op.PinOrder) -> Call:
    return script_call("pin_order", keys_of(operation.sku), operation.order_id, PINNED_UNTIL_MS, operation.home)


def _decode_pin(operation: op.PinOrder, reply: Reply) -> OrderState:
    if text(reply[0]) == "gated":
        raise PoolGated(operation.sku, operation.order_id, "store")
    kind_of(operation.sku, reply, operation.order_id)
    return STATES[text(reply[1])]


# --- for the audit ---


def _encode_scan(operation: op.ScanCarts) -> Call:
    keys = cart_keys(operation.home)
    command, key = ("HSCAN", keys.carts) if operation.key == "carts" else ("ZSCAN", keys.unfinished)
    return plain_call(command, key, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan(_: op.ScanCarts, reply: Reply) -> tuple[int, tuple[str, ...]]:
    return int(reply[0]), tuple(cart_id for cart_id, _ in pairs_in(reply[1]))


def _encode_inspect(operation: op.InspectCarts) -> Call:
    return script_call("inspect_carts", cart_keys(operation.home).listed(), *operation.cart_ids)


def _decode_inspect(operation: op.InspectCarts, reply: Reply) -> tuple[InspectedCart, ...]:
    kind_of(operation.home, reply)
    found = zip(operation.cart_ids, reply[1], reply[2], strict=True)
    return tuple(_inspected(operation.home, cart_id, raw, is_unfinished=due is not None) for cart_id, raw, due in found)


def _inspected(home: str, cart_id: str, raw: Reply, *, is_unfinished: bool) -> InspectedCart:
    if raw is None:
        return InspectedCart(cart_id, is_kept=False, is_unfinished=is_unfinished)
    unreadable = InspectedCart(cart_id, is_kept=True, is_unfinished=is_unfinished)
    parts = RECORD.fullmatch(foreign_text(raw))
    try:
        state, refusal, content = parts.groups() if parts else ("", "", "")
        cart = cart_of(cart_id, content)
        _refusal(refusal)
        found = replace(unreadable, cart=cart, state=CART_STATES[state])
    except UNREADABLE:
        return unreadable
    return found if (cart.home, cart.content) == (home, content) else unreadable


def _encode_scan_pinned(operation: op.ScanPinned) -> Call:
    return plain_call("ZSCAN", shard_keys(operation.sku).holds, operation.cursor, "COUNT", SCAN_COUNT)


def _decode_scan_pinned(_: op.ScanPinned, reply: Reply) -> tuple[int, tuple[str, ...]]:
    found = pairs_in(reply[1])
    return int(reply[0]), tuple(order_id for order_id, until in found if moment(until) == PINNED_UNTIL_MS)


CODECS: Final = {
    op.OpenCart: Codec(_encode_open, _decode_open, acknowledges=always),
    op.ReadCart: Codec(_encode_read, _decode_read),
    op.DecideCart: Codec(_encode_decide, _decode_read, acknowledges=always),
    op.FinishCart: Codec(_encode_finish, _decode_finish),
    op.ListDueCarts: Codec(_encode_list_due, _decode_list_due),
    op.ListCarts: Codec(_encode_list, _decode_list),
    op.PinOrder: Codec(_encode_pin, _decode_pin),
    op.ScanCarts: Codec(_encode_scan, _decode_scan),
    op.InspectCarts: Codec(_encode_inspect, _decode_inspect),
    op.ScanPinned: Codec(_encode_scan_pinned, _decode_scan_pinned),
}
