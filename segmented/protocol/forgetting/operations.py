"""The operation that drops records of finished orders of an open pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from segmented.errors import InvalidInput
from segmented.protocol.base import Operation
from segmented.protocol.pool.operations import keys_of, kind_of
from segmented.protocol.wire import Call, script_call

if TYPE_CHECKING:
    from segmented.protocol.wire import Reply

Refused = Literal["not_gated", "not_trimmed"]


@dataclass(frozen=True, slots=True)
class Forgot:
    """The result of one step."""

    orders: int
    """Records that this step dropped."""
    units: int
    """Confirmed units of these."""
    judged: int
    """How many of the named orders this step has looked at, from the first one; the others need another step."""
    wait_ms: int
    """Milliseconds until records may be dropped, so that every process knows by then; 0: they may."""


@dataclass(frozen=True, slots=True)
class ForgetOrders(Operation[Forgot]):
    """Drop the records of up to 1,000 finished orders, each only if its last change is still the named one.

    Confirmed units of dropped records count as `lost` units: sold ones that the pool has no orders for. The first call
    drops nothing, and notes that the pool will forget: `notice_ms` later it may. A limit per customer goes on counting
    them. Raises InvalidInput for a pool without an order database, or whose ledger was not relayed and trimmed behind
    `up_to`.
    """

    sku: str
    up_to: int
    """The highest sequence number of a last change whose record may go."""
    notice_ms: int
    orders: tuple[tuple[str, int], ...] = ()
    """Order ids, each with the sequence number of its last change."""

    def call(self) -> Call:
        orders = [part for order_id, sequence in self.orders for part in (order_id, sequence)]
        return script_call("forget_orders", keys_of(self.sku), self.up_to, self.notice_ms, *orders)

    def answer(self, reply: Reply) -> Forgot:
        kind = kind_of(self.sku, reply)
        if kind == "waiting":
            return Forgot(0, 0, 0, int(reply[1]))
        if kind != "forgot":
            raise cannot_forget(self.sku, "not_gated" if kind == "not_gated" else "not_trimmed")
        return Forgot(int(reply[1]), int(reply[2]), int(reply[3]), 0)


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
