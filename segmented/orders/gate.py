"""The gate of a pool: `Pool(store, sku, gate=gate)` asks it, and sells nothing that its order database has not stored.

The steps are those of the functions in `sale`, `opening` and `changing`, which take the pool and the database.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from segmented.errors import ChangeDiverged, DatabaseUnavailable, SegmentedError, StoreUnavailable
from segmented.models import Settled
from segmented.models.orders import decided_as
from segmented.orders import by_id, carts, sale, within
from segmented.orders.answers import EpochChanged, Stored, TooFewUnsold
from segmented.orders.by_id import return_gated
from segmented.orders.database import OrderDatabase
from segmented.orders.forgetting import decided_before
from segmented.orders.opening import open_rows, resize_gated, restock_gated, withdraw_gated
from segmented.orders.verifying import when_verified
from segmented.stock.sold import Sold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from segmented.errors import OrderMismatch
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Cart,
        CartFate,
        Closed,
        Decided,
        Opened,
        Order,
        Refusal,
        Reserved,
        Resized,
        Restocked,
        Returned,
        Shard,
        Superseded,
        TooFew,
    )
    from segmented.protocol import AssignPool, ChangeQuantity, ExtendHold, ReturnUnits
    from segmented.stock import Grant, Pool
    from segmented.stock.settings import Opening

AnswerT = TypeVar("AnswerT")


class Gate(OrderDatabase):
    """The order database of gated pools. Thread-safe.

    Give it to the pool, `Pool(store, sku, gate=gate)`, and every call of the pool asks or tells it. Its own methods are
    single steps, for programs that combine them.
    """

    def open_pool(self, pool: Pool, opening: Opening) -> Opened | AlreadyOpen:
        """Store the segments' rows, and open the pool."""
        return open_rows(pool, self, opening)

    def verified(self, pool: Pool, ask: Callable[[], AnswerT]) -> AnswerT:
        """Ask the pool; compare it with the database first if its server is another one than before."""
        return when_verified(pool, self, ask)

    def grant_order(
        self,
        pool: Pool,
        order: Order,
        ask: Callable[[], Grant | Refusal],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> Grant | Refusal:
        """Ask for a grant, unless the database has decided the order: then the answer is that decision.

        The `timeout` of the grant does not bound the database's steps, which a thread cannot leave: the engine's does.
        """
        del timeout
        pool = sale.gated(pool, self)
        epoch = pool.epoch()
        before = decided_before(pool, self, order, epoch, asked=asked)
        if before is not None:
            return decided_as(before)
        return sale.undecided(pool, self, order, sale.asked(pool, self, ask), epoch)

    def take_orders(
        self, pool: Pool, orders: Sequence[Order], ask: Callable[[tuple[Order, ...]], list[AnswerT]], *, partial: bool
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take orders, except for those that only the database knows: it has decided them."""
        return sale.take_orders(pool, self, orders, ask, partial=partial)

    def decision_on(self, pool: Pool, order_id: str) -> Settled | None:
        """Return the database's decision on an order, if it has one."""
        return by_id.decision_on(self, pool, order_id)

    def confirm_grant(self, grant: Grant, order: Order) -> Settled:
        """Store a granted order under its fencing token, and confirm it in the pool.

        Raises GrantSuperseded if a later grant of the segment reached the database first: the units stay reserved.
        """
        return sale.finish_granted(grant.pool.plain, self, order, grant.handed_on())

    def confirm_order(self, pool: Pool, order_id: str, holder_id: str | None) -> Settled:
        """Store a reserved order, and confirm it in the pool; with a holder id only that holder's segment is freed."""
        return by_id.finish_by_id(pool, self, order_id, holder_id)

    def confirm_within(self, pool: Pool, order_id: str, transaction: object) -> Sold[Settled | None]:
        """Store a reserved order within the caller's transaction. Raises as `within.decide` does."""
        found, is_stored = within.begun(transaction), False
        for _ in range(sale.REBUILDS_MAX):
            asked = within.wanted(pool, self, order_id)
            answer = within.decide(found, self, pool.sku, asked, is_stored=is_stored)
            outcome = within.settle(pool, self, asked, answer)
            if outcome is not None:
                tell = partial(within.told, pool, self, asked)
                return Sold(order_id, outcome.state, outcome.quantity, tell, replay=outcome.replay)
            is_stored = isinstance(answer, within.Outcome)
        raise within.overtaken(pool.sku, order_id)

    def confirm_orders(self, pool: Pool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Do that with many orders, one after the other; returns an answer or a failure for each."""
        return [_attempt(partial(self.confirm_order, pool, order_id, None)) for order_id in order_ids]

    def cancel_order(self, pool: Pool, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Void an order, and give its units back; with a holder id only while that holder still has it."""
        return by_id.cancel_by_id(pool, self, order_id, holder_id)

    def cancel_orders(self, pool: Pool, order_ids: Iterable[str]) -> list[Settled | SegmentedError | None]:
        """Void many orders, one after the other; returns an answer or a failure for each."""
        return [_attempt(partial(by_id.cancel_by_id, pool, self, order_id, None)) for order_id in order_ids]

    def sell_cart(self, pools: Sequence[Pool], cart: Cart) -> CartFate:
        """Store every line of a reserved cart, or void every line if one of them cannot be sold any more."""
        return carts.sell_cart(pools, self, cart)

    def void_cart(self, pools: Sequence[Pool], cart: Cart) -> CartFate:
        """Void every line of a cart, unless it is sold."""
        return carts.void_cart(pools, self, cart)

    def end_cart(self, pools: Sequence[Pool], cart: Cart, *, is_sold: bool) -> list[Settled | SegmentedError]:
        """Tell the pools of a cart that it is sold, or void; returns an answer or a failure for each line."""
        return carts.end_cart(pools, self, cart, is_sold=is_sold)

    def extend_order(self, pool: Pool, operation: ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold; if it has ended, void the order, and give its units back."""
        return by_id.extend_by_id(pool, self, operation)

    def change_order(self, pool: Pool, operation: ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back, unless the database has decided it."""
        return by_id.change_by_id(pool, self, operation)

    def return_order(self, pool: Pool, operation: ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back, in the database first; None if it is not sold yet."""
        return return_gated(pool, self, operation)

    def expire_orders(self, pool: Pool, limit: int) -> tuple[Settled, ...]:
        """Give back the units of expired holds."""
        return sale.expire_voided(sale.gated(pool, self), self, limit=limit)

    def settle_due(self, pool: Pool) -> bool:
        """Settle expired holds for a caller that needs their units; return whether some have ended."""
        return sale.settle_due(pool, self)

    def restock_pool(self, pool: Pool, units: int, restock_id: str) -> Restocked | Closed:
        """Add units to the database and the pool."""
        return restock_gated(pool, self, units, restock_id=restock_id)

    def withdraw_pool(self, pool: Pool, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units from the pool and the database."""
        return withdraw_gated(pool, self, units, withdraw_id=withdraw_id)

    def move_units(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> bool:
        """Move units from one shard's rows to another's, all that the source has `sent` there in its `epoch`, once.

        Returns False if the source must be rebuilt: it has sent units that are sold, or is in an earlier epoch than its
        rows. Raises ChangeDiverged if the database has no rows for a shard, or is in an earlier epoch.
        """
        answer = self.transfers.move(source, target, sent=sent, epoch=epoch)
        if isinstance(answer, Stored):
            return True
        if isinstance(answer, TooFewUnsold) or (isinstance(answer, EpochChanged) and answer.epoch > epoch):
            return False
        detail = "the database has no rows for one of them"
        if isinstance(answer, EpochChanged):
            detail = f"the database is in epoch {answer.epoch}, the shard is in epoch {epoch}"
        raise ChangeDiverged(source, f"a transfer to shard {target.number}", detail)

    def resize_pool(self, pool: Pool, segments: int) -> Resized:
        """Change the number of segments."""
        return resize_gated(pool, self, segments)

    def assign_pool(self, pool: Pool, operation: AssignPool) -> Assigned:
        """Name the workers of the pool's submitted orders, and keep the names in the sale's row."""
        assigned = self.verified(pool, lambda: pool.store.execute(operation))
        self.stocking.note_terms(assigned.state)
        return assigned


def _attempt(ask: Callable[[], Settled | Superseded]) -> Settled | SegmentedError | None:
    try:
        answer = ask()
    except (DatabaseUnavailable, StoreUnavailable):
        raise
    except SegmentedError as error:
        return error
    return answer if isinstance(answer, Settled) else None
