"""All orders of a pool, each once, in bounded pages.

A scan of the server may give an id twice while the sale runs, so the ids are collected first, in a temporary file when
they are many, and the records are read after that. An order that arrives meanwhile may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from segmented import protocol as op
from segmented.errors import InvalidInput
from segmented.models.orders import OrderState
from segmented.plans import Plan, perform
from segmented.stock.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from segmented.models import OrderRecord

STATES: Final[tuple[OrderState, ...]] = get_args(OrderState)


def checked_state(state: OrderState | None) -> OrderState | None:
    """Return the state of the orders to list, or None for all. Raises InvalidInput for a state that no order has."""
    if state is not None and state not in STATES:
        raise InvalidInput(f"state={state!r} is not one of {', '.join(map(repr, STATES))}")
    return state


def ids_plan(sku: str) -> Plan[Spill]:
    """Collect the ids of all orders. Raises PoolMissing."""
    ids, cursor = Spill((yield from perform(op.ReadPool(sku))).order_count), 0
    while True:
        cursor, page = yield from perform(op.ScanKey(sku, "orders", cursor))
        ids.add("", dict(page))
        if not cursor:
            return ids


def reads(sku: str, ids: Spill) -> Iterator[op.ReadOrders]:
    """Yield the operations that read the orders, up to 1,000 with each."""
    for part in range(ids.part_count):
        own = tuple(dict.fromkeys(order_id for _, order_id in ids.read(part)))
        for first in range(0, len(own), op.BATCH_MAX):
            yield op.ReadOrders(sku, own[first : first + op.BATCH_MAX])


def chosen(records: Iterable[OrderRecord | None], state: OrderState | None) -> Iterator[OrderRecord]:
    """Yield the records that are in `state`, or all if it is None."""
    return (one for one in records if one is not None and state in {None, one.state})
