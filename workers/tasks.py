"""The tasks. Each is one call of the library an order; an order may arrive twice, also at once, and has one effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from segmented.errors import DatabaseUnavailable, SegmentedError, StoreUnavailable
from segmented.models import Busy, Order, SoldOut
from segmented.orders import sale
from workers.app import app, settings
from workers.connections import connections

if TYPE_CHECKING:
    from celery import Task

RETRIES_MAX: Final = 5
RETRY_SECONDS_MAX: Final = 10


class StillBusy(SegmentedError):
    """No segment was free, or the order's own lease lived on, for as long as a task may wait."""


PUT_OFF: Final = (StillBusy, StoreUnavailable, DatabaseUnavailable)
"""What another time may cure. After the last retry the order is undecided; its units, if any, stay held for it."""


@app.task(bind=True, name="workers.take_order", max_retries=RETRIES_MAX)
def take_order(self: Task[Any, Any], sku: str, order_id: str, quantity: int, customer_id: str | None = None) -> str:
    """Grant a segment, store the order in the database under its lock, confirm. Returns the order's state.

    A refusal is kept, so that a second delivery gets the same answer.
    """
    try:
        return _take(sku, Order(order_id, quantity, customer_id))
    except PUT_OFF as error:
        raise self.retry(exc=error, countdown=_pause(self)) from error


@app.task(bind=True, name="workers.take_orders", max_retries=RETRIES_MAX)
def take_orders(self: Task[Any, Any], sku: str, orders: list[tuple[str, int, str | None]]) -> dict[str, str]:
    """Take orders that share a message, one after the other, each as `take_order` does. Returns their states.

    A message costs more than an order does. What cannot be taken now is put off together with all that follow it; an
    order that can never be taken fails the task once the others are done.
    """
    states: dict[str, str] = {}
    failure: SegmentedError | None = None
    for index, (order_id, quantity, customer_id) in enumerate(orders):
        try:
            states[order_id] = _take(sku, Order(order_id, quantity, customer_id))
        except PUT_OFF as error:
            raise self.retry(args=(sku, orders[index:]), exc=error, countdown=_pause(self)) from error
        except SegmentedError as error:
            failure = error
    if failure is not None:
        raise failure
    return states


def _take(sku: str, order: Order) -> str:
    shared = connections()
    answer = sale.take_order(shared.pool(sku), shared.gate, order, timeout=settings.segment_wait, keep_refusal=True)
    if isinstance(answer, Busy):
        raise StillBusy
    return "refused" if isinstance(answer, SoldOut) else answer.state


def _pause(task: Task[Any, Any]) -> int:
    """Return the seconds until the next attempt: 1, 2, 4 and so on."""
    return min(1 << int(task.request.retries), RETRY_SECONDS_MAX)
