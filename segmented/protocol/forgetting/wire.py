"""Forgetting over the wire, and the errors of pools that cannot forget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.protocol.forgetting.operations import Forgot
from segmented.protocol.pool.wire import keys_of, kind_of
from segmented.protocol.wire import Call, Codec, script_call

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

Refused = Literal["not_gated", "not_trimmed"]


def cannot_forget(sku: str, reason: Refused) -> InvalidInput:
    """Return the error for a pool whose records cannot go."""
    why = {
        "not_gated": "keeps its records: it has no order database, and nothing else could answer a repeat of an order",
        "not_trimmed": (
            "keeps its records: its ledger was not relayed and trimmed behind them; "
            "use 'segmented pool relay' with --trim-keep"
        ),
    }[reason]
    return InvalidInput(f"pool {sku!r} {why}")


def _encode(operation: op.ForgetOrders) -> Call:
    orders = [part for order_id, sequence in operation.orders for part in (order_id, sequence)]
    return script_call("forget_orders", keys_of(operation.sku), operation.up_to, operation.notice_ms, *orders)


def _decode(operation: op.ForgetOrders, reply: Reply) -> Forgot:
    kind = kind_of(operation.sku, reply)
    if kind == "waiting":
        return Forgot(0, 0, 0, int(reply[1]))
    if kind != "forgot":
        raise cannot_forget(operation.sku, "not_gated" if kind == "not_gated" else "not_trimmed")
    return Forgot(int(reply[1]), int(reply[2]), int(reply[3]), 0)


CODECS: Final = {op.ForgetOrders: Codec(_encode, _decode)}
