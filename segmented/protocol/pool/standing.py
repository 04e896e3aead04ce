"""Operations on one order that stands, by its id: its hold lengthened, units given back before or after the sale."""

from __future__ import annotations

from dataclasses import dataclass

from segmented.errors import ChangeMismatch, InvalidInput, OrderInWork, OrderQueued
from segmented.ledger_lines import parse_parts
from segmented.models import Reserved, Returned, Settled
from segmented.models.ids import plural
from segmented.protocol.base import Operation
from segmented.protocol.pool import keys_of, kind_of
from segmented.protocol.pool.orders import settled_line
from segmented.protocol.wire import Call, Reply, Sight, always, load_script, text


@dataclass(frozen=True, slots=True)
class ExtendHold(Operation[Reserved | Settled | None]):
    """Lengthen an order's hold to `hold_ms` from now, or later; None if it has ended and its units are not back yet."""

    sku: str
    order_id: str
    hold_ms: int

    def call(self) -> Call:
        return Call(load_script("extend_hold"), keys_of(self.sku), (self.order_id, self.hold_ms))

    def answer(self, reply: Reply) -> Reserved | Settled | None:
        kind = kind_of(self.sku, reply, self.order_id)
        return None if kind == "ended" else _standing(self.order_id, kind, reply)


@dataclass(frozen=True, slots=True)
class ChangeQuantity(Operation[Reserved | Settled]):
    """Let a reserved order keep `quantity` units, and give the others back. Raises InvalidInput if it has fewer."""

    sku: str
    order_id: str
    quantity: int

    def call(self) -> Call:
        return Call(load_script("change_quantity"), keys_of(self.sku), (self.order_id, self.quantity))

    def answer(self, reply: Reply) -> Reserved | Settled:
        kind = kind_of(self.sku, reply, self.order_id)
        if kind == "in_hand":
            raise OrderInWork(self.order_id)
        if kind == "fewer":
            has = int(reply[1])
            cure = f"not raise it to {self.quantity}: reserve the other {self.quantity - has} under a second order id"
            raise InvalidInput(
                f"order {self.order_id!r} has {has} {plural(has, 'unit')}, and a change can only lower that, {cure}"
            )
        return _standing(self.order_id, kind, reply, replay=kind != "changed" or text(reply[7]) == "1")

    acknowledges = always


@dataclass(frozen=True, slots=True)
class ReturnUnits(Operation[Returned | Settled | None]):
    """Give back units of a confirmed order, once for each return id. None: the order is reserved, not sold.

    A gated pool refuses unless its order database has stored the return, in this `epoch`; raises EpochEnded if the pool
    is in another one. Raises ChangeMismatch, and InvalidInput for more units than the order has.
    """

    sku: str
    order_id: str
    units: int
    return_id: str
    epoch: int | None = None
    customer_id: str | None = None
    """As the order database has it: for an order that the pool has no record of."""

    def call(self) -> Call:
        stored = ("" if self.epoch is None else self.epoch, self.customer_id or "")
        arguments = (self.order_id, self.units, self.return_id, *stored)
        return Call(load_script("return_units"), keys_of(self.sku), arguments)

    def answer(self, reply: Reply) -> Returned | Settled | None:
        kind = kind_of(self.sku, reply, self.order_id)
        match kind:
            case "mismatch":
                raise ChangeMismatch(self.sku, self.return_id)
            case "in_cart":
                raise OrderInWork(self.order_id)
            case "fewer":
                raise too_many_returned(self.order_id, self.units, int(reply[1]))
            case "reserved":
                return None
            case "returned":
                kept, sequence, replay = int(reply[1]), int(reply[2]), text(reply[3]) == "1"
                return Returned(self.order_id, self.return_id, self.units, kept, sequence, replay)
        ended = _standing(self.order_id, kind, reply)
        assert isinstance(ended, Settled)  # the script has no other answer
        return ended

    def sight(self, reply: Reply, answer: object) -> Sight:
        return (int(reply[4]), int(reply[2]), 0) if isinstance(answer, Returned) else (0, 0, 0)

    def acknowledges(self, *, is_gated: bool) -> bool:
        return not is_gated


def too_many_returned(order_id: str, units: int, sold: int) -> InvalidInput:
    """Return the error for a return of more units than an order has."""
    message = f"{units} {plural(units, 'unit')} of order {order_id!r} cannot be returned: {sold} of it are sold"
    return InvalidInput(message)


def _standing(order_id: str, kind: str, reply: Reply, *, replay: bool = True) -> Reserved | Settled:
    """Read what an order has, or how it has ended."""
    if kind == "queued":
        raise OrderQueued(order_id)
    if kind == "settled":
        _, *fields = text(reply[1]).split("\t")
        return settled_line(order_id, fields)
    quantity, segment, parts = int(reply[1]), int(reply[2]), text(reply[3])
    found = parse_parts(parts, segment=segment, quantity=quantity)
    return Reserved(order_id, quantity, segment, found, int(reply[6]), int(reply[4]), replay, int(reply[5]))
