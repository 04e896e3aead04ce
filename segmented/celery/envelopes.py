"""The message that carries submitted orders. Publishers write it; workers validate and read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from segmented.errors import InvalidInput
from segmented.models import ORDER_ID_BYTES_MAX, check_id, checked_pool_name, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK: Final = "segmented.take_envelope"
VERSION: Final = 1
ORDERS_MAX: Final = 1_000
FIELDS: Final = frozenset({"v", "sku", "orders"})


@dataclass(frozen=True, slots=True)
class Envelope:
    """Orders of one pool, or of one shard of a pool."""

    sku: str
    order_ids: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        """Return the message's argument, of plain types only."""
        return {"v": VERSION, "sku": self.sku, "orders": list(self.order_ids)}


def read_envelope(parts: Sequence[object], named: dict[str, object]) -> Envelope:
    """Read a message's arguments. Raises InvalidInput, with one sentence, for anything that is not an envelope."""
    body: Any = parts[0] if len(parts) == 1 and not named else None
    if not isinstance(body, dict):
        message = f"a message of {TASK} has one argument, an object: this one has {shortened((list(parts), named))}"
        raise InvalidInput(message)
    version, orders = body.get("v"), body.get("orders")
    if type(version) is not int or version < 1:
        message = f"the envelope has no version: {shortened(body)}"
        raise InvalidInput(message)
    if version > VERSION:
        message = f"the envelope has version {version}, and this worker reads up to {VERSION}: upgrade workers first"
        raise InvalidInput(message)
    if set(body) != FIELDS or not isinstance(orders, list):
        message = f"the envelope must have {', '.join(sorted(FIELDS))}, and orders in a list: {shortened(body)}"
        raise InvalidInput(message)
    if not 1 <= len(orders) <= ORDERS_MAX:
        message = f"the envelope has {len(orders):,} orders: 1 to {ORDERS_MAX:,} are possible"
        raise InvalidInput(message)
    sku = checked_pool_name(body["sku"])
    for order_id in orders:
        check_id(order_id, "order id", bytes_max=ORDER_ID_BYTES_MAX)
    return Envelope(sku, tuple(orders))
