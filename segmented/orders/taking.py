"""Reserve and submit orders of a gated pool: the database answers for orders that it has decided and the pool forgot.

A pool of a later epoch, or one that drops records, does not know all that it sold. Without this question it would take
units again for a sold order, or refuse it as sold out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from segmented.errors import OrderMismatch
from segmented.models import Decided, Reserved, Settled, SoldOut
from segmented.models.orders import decided_as
from segmented.orders.decided import decision_of, end_decided, may_know_more
from segmented.orders.forgetting import is_known_to_remember
from segmented.orders.sale import gated, is_due, settle_due
from segmented.orders.verifying import is_compared, when_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from segmented.models import Order
    from segmented.orders.database import OrderDatabase
    from segmented.stock import Pool

    Decisions = Mapping[int, Settled | OrderMismatch]
    """The database's decisions, by the place of the order; a mismatch takes its place."""

AnswerT = TypeVar("AnswerT")


def take_orders(
    pool: Pool,
    gate: OrderDatabase,
    orders: Sequence[Order],
    ask: Callable[[tuple[Order, ...]], list[AnswerT]],
    *,
    partial: bool,
) -> list[AnswerT | Decided | OrderMismatch]:
    """Ask the pool for orders, except for those that only the database knows. Returns an answer for each."""
    epoch, decided = decided_first(pool, gate, orders, partial=partial)
    left = left_over(orders, decided)
    said = when_verified(pool.plain, gate, lambda: ask(left)) if left else []
    due = due_among(left, said)
    if due and settle_due(pool, gate):
        said = asked_again(said, when_verified(pool.plain, gate, lambda: ask(due)))
    return checked_again(pool, gate, orders, merged(orders, decided, said), epoch, partial=partial)


def due_among(orders: Sequence[Order], said: Sequence[object]) -> tuple[Order, ...]:
    """Return the orders that were refused while holds have ended that only the database can decide."""
    return tuple(order for order, answer in zip(orders, said, strict=True) if is_due(answer))


def asked_again(said: Sequence[AnswerT], later: Sequence[AnswerT]) -> list[AnswerT]:
    """Return the answers, with later ones for the orders that `due_among` has returned."""
    others = iter(later)
    return [next(others) if is_due(answer) else answer for answer in said]


def decided_first(pool: Pool, gate: OrderDatabase, orders: Sequence[Order], *, partial: bool) -> tuple[int, Decisions]:
    """Return the pool's epoch, and the database's decisions on orders that the pool does not know."""
    pool = gated(pool, gate)
    epoch = pool.epoch()
    return epoch, _decided(pool, gate, orders, epoch, partial=partial)


def asks_first(pool: Pool, gate: OrderDatabase) -> bool:
    """Return whether `decided_first` may ask a server."""
    found = pool.last_state
    is_first = found is not None and found.gated and found.epoch == 1
    return not (is_first and is_compared(pool, gate) and is_known_to_remember(pool))


def left_over(orders: Sequence[Order], decided: Decisions) -> tuple[Order, ...]:
    """Return the orders that the pool is asked for."""
    return tuple(order for place, order in enumerate(orders) if place not in decided)


def merged(
    orders: Sequence[Order], decided: Decisions, said: Sequence[AnswerT]
) -> list[AnswerT | Decided | OrderMismatch]:
    """Return an answer for each order: the database's, or the pool's."""
    others = iter(said)
    return [_told(decided[place]) if place in decided else next(others) for place in range(len(orders))]


def is_of_another_epoch(answers: Sequence[object], epoch: int) -> bool:
    """Return whether the pool was rebuilt since it was asked for its epoch."""
    return _latest(answers, epoch) != epoch


def checked_again(
    pool: Pool,
    gate: OrderDatabase,
    orders: Sequence[Order],
    answers: list[AnswerT | Decided | OrderMismatch],
    epoch: int,
    *,
    partial: bool,
) -> list[AnswerT | Decided | OrderMismatch]:
    """Return the answers; if the pool is in a later epoch than it was, its units for sold orders go back."""
    if not is_of_another_epoch(answers, epoch):
        return answers
    pool = pool.plain
    later = pool.epoch(at_least=_latest(answers, epoch))
    decided = _decided(pool, gate, orders, later, partial=partial)
    settled = {orders[place].order_id: one for place, one in decided.items() if isinstance(one, Settled)}
    end_decided(pool, gate, settled)
    return [_told(decided[place]) if place in decided else answer for place, answer in enumerate(answers)]


def _told(decision: Settled | OrderMismatch) -> Decided | OrderMismatch:
    return decided_as(decision) if isinstance(decision, Settled) else decision


def _latest(answers: Sequence[object], epoch: int) -> int:
    return max((answer.epoch for answer in answers if isinstance(answer, Reserved | SoldOut)), default=epoch)


def _decided(pool: Pool, gate: OrderDatabase, orders: Sequence[Order], epoch: int, *, partial: bool) -> Decisions:
    found: dict[int, Settled | OrderMismatch] = {}
    if not may_know_more(pool, epoch):
        return found
    rows = gate.orders(pool.sku, [order.order_id for order in orders])
    for place, order in enumerate(orders):
        asked, row = order.quantity if partial else None, rows.get(order.order_id)
        try:
            before = decision_of(pool, gate, order, row, epoch, asked=asked, voided=True)
        except OrderMismatch as error:
            found[place] = error
        else:
            if before is not None:
                found[place] = before
    return found
