"""Operations on carts: the record of one decision, in the pool of the cart's first sku; and the hold of a line."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import Any, Final, Literal

from segmented.errors import CartGated, CartMismatch, CartUnknown, InvalidInput, PoolGated
from segmented.keys import cart_keys
from segmented.models import (
    PINNED_UNTIL_MS,
    Busy,
    Cart,
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
from segmented.models.orders import cart_mismatch
from segmented.protocol.base import Operation, Release, is_one
from segmented.protocol.pool import STATES, keys_of, kind_of
from segmented.protocol.wire import Call, Reply, always, plain_call, readable, script_call, text
from segmented.values import light_dataclass

CartMove = Literal["reserved", "refused", "cancelled", "expired", "confirmed"]
"""A state that a cart may be moved to."""
CART_STATES: Final[dict[str, CartState]] = {"o": "open", **STATES}  # type: ignore[dict-item]  # no letter stands for "returned"
RECORD: Final = re.compile(r"([a-z])\t[0-9]{1,18}\t([^\t\n]*)(?:\t[0-9a-f]*)?\n(.*)", re.DOTALL)
UNREADABLE: Final = (InvalidInput, LookupError, RecursionError, TypeError, ValueError)
"""Errors of a content that another program wrote."""
CART_LETTERS: Final = {state: letter for letter, state in CART_STATES.items()}
REFUSALS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (SoldOut, Busy, Decided, Closed, LimitReached)}


@light_dataclass(frozen=True, slots=True)
class OpenCart(Operation[CartRecord]):
    """Open a cart that expires `hold_ms` from now, or read a known one. Other content raises CartMismatch."""

    cart: Cart
    hold_ms: int

    def call(self) -> Call:
        cart = self.cart
        return script_call("open_cart", cart_keys(cart.home), cart.cart_id, self.hold_ms, cart.content)

    def answer(self, reply: Reply) -> CartRecord:
        cart = self.cart
        if text(reply[0]) == "mismatch":
            try:
                stored = cart_of(cart.cart_id, text(reply[1]))
            except UNREADABLE:
                raise CartMismatch(cart.home, cart.cart_id) from None
            raise cart_mismatch(cart, stored)
        return _record(cart.home, cart.cart_id, reply)

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class ReadCart(Operation[CartRecord]):
    """Read a cart. Raises CartUnknown."""

    home: str
    cart_id: str

    def call(self) -> Call:
        return script_call("read_cart", cart_keys(self.home), self.cart_id)

    def answer(self, reply: Reply) -> CartRecord:
        return _record(self.home, self.cart_id, reply)


@light_dataclass(frozen=True, slots=True)
class DecideCart(Release[CartRecord]):
    """Change a cart's state, if the change is still allowed. The first caller wins.

    An open cart may become reserved (expired instead, if its hold has ended), refused, cancelled or expired; a reserved
    one confirmed, cancelled or expired. A final state never changes. Raises CartGated if the home is gated, unless the
    change is `stored`; then an open cart may become confirmed, too.
    """

    home: str
    cart_id: str
    state: CartMove
    refusal: LineRefusal | None = None
    stored: bool = False
    """The order database of a gated home has stored, or voided, every line."""

    def call(self) -> Call:
        change = (CART_LETTERS[self.state], refusal_text(self.refusal), int(self.stored))
        return script_call("decide_cart", cart_keys(self.home), self.cart_id, *change)

    def answer(self, reply: Reply) -> CartRecord:
        return _record(self.home, self.cart_id, reply)

    acknowledges = always


@light_dataclass(frozen=True, slots=True)
class FinishCart(Release[bool]):
    """Note that a final decision is carried out in every line's pool; False if that was noted before."""

    home: str
    cart_id: str

    def call(self) -> Call:
        return plain_call("ZREM", cart_keys(self.home).unfinished, self.cart_id)

    answer = is_one


@light_dataclass(frozen=True, slots=True)
class ListDueCarts(Operation[tuple[CartRecord, ...]]):
    """Read up to `limit` carts that have expired, or are decided but not finished; oldest first, after `skip`."""

    home: str
    limit: int
    skip: int = 0

    def call(self) -> Call:
        return script_call("list_due_carts", cart_keys(self.home), self.limit, self.skip)

    def answer(self, reply: Reply) -> tuple[CartRecord, ...]:
        return tuple(_record(self.home, text(cart_id), found) for cart_id, found in reply[1:])


@light_dataclass(frozen=True, slots=True)
class ListCarts(Operation[UnfinishedCarts]):
    """Read up to `limit` unfinished carts, due or not, longest due first, and count all of them."""

    home: str
    limit: int

    def call(self) -> Call:
        return script_call("list_carts", cart_keys(self.home), self.limit)

    def answer(self, reply: Reply) -> UnfinishedCarts:
        carts = tuple(
            UnfinishedCart(_record(self.home, text(cart_id), found), int(due_in_ms))
            for cart_id, due_in_ms, found in reply[3:]
        )
        return UnfinishedCarts(carts, count=int(reply[1]), due_count=int(reply[2]))


@light_dataclass(frozen=True, slots=True)
class PinOrder(Operation[OrderState]):
    """Keep a reservation until it is confirmed or cancelled: its hold no longer expires. Returns the order's state."""

    sku: str
    order_id: str
    home: str
    """Home of its cart, noted in the record: a process that finds the order pinned reads the decision there."""

    def call(self) -> Call:
        return script_call("pin_order", keys_of(self.sku), self.order_id, PINNED_UNTIL_MS, self.home)

    def answer(self, reply: Reply) -> OrderState:
        if text(reply[0]) == "gated":
            raise PoolGated(self.sku, self.order_id, "store")
        kind_of(self.sku, reply, self.order_id)
        return STATES[text(reply[1])]


@light_dataclass(frozen=True, slots=True)
class InspectCarts(Operation[tuple[InspectedCart, ...]]):
    """Read the raw records of up to 1,000 carts in one step. Raises PoolMissing."""

    home: str
    cart_ids: tuple[str, ...]

    def call(self) -> Call:
        return script_call("inspect_carts", cart_keys(self.home), *self.cart_ids)

    def answer(self, reply: Reply) -> tuple[InspectedCart, ...]:
        found = zip(self.cart_ids, reply[1], reply[2], strict=True)
        return tuple(_inspected(self.home, cart_id, raw, is_unfinished=due is not None) for cart_id, raw, due in found)


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
    match text(reply[0]):
        case "gated":
            raise CartGated(home, cart_id)
        case "unknown":
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


def _inspected(home: str, cart_id: str, raw: Reply, *, is_unfinished: bool) -> InspectedCart:
    if raw is None:
        return InspectedCart(cart_id, is_kept=False, is_unfinished=is_unfinished)
    unreadable = InspectedCart(cart_id, is_kept=True, is_unfinished=is_unfinished)
    parts = RECORD.fullmatch(readable(raw))
    try:
        state, refusal, content = parts.groups() if parts else ("", "", "")
        cart = cart_of(cart_id, content)
        _refusal(refusal)
        found = replace(unreadable, cart=cart, state=CART_STATES[state])
    except UNREADABLE:
        return unreadable
    return found if (cart.home, cart.content) == (home, content) else unreadable
