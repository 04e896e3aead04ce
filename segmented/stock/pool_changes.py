"""Opening a pool, and changes of its stock and segments; with a gate, its order database has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from segmented import protocol as op
from segmented.errors import ChangeGated
from segmented.models import Assignment
from segmented.plans import perform, run_sync
from segmented.stock.opening import open_pool_plan, opened_as_asked
from segmented.stock.pool_books import PoolBooks
from segmented.stock.settings import checked_flag
from segmented.stock.sold_out_mark import returning

if TYPE_CHECKING:
    from collections.abc import Callable

    from segmented.errors import OrderMismatch
    from segmented.models import (
        AlreadyOpen,
        Assigned,
        Closed,
        Decided,
        Opened,
        Order,
        PoolClosed,
        Resized,
        Restocked,
        TooFew,
    )
    from segmented.plans import Plan
    from segmented.stock.pool_gate import PoolGate

AnswerT = TypeVar("AnswerT")


class PoolChanges(PoolBooks):
    """The opening of a pool, and the changes of its stock and segments."""

    _plain: Any = None
    gate: PoolGate[Any, Any] | None = None
    """The gate, whose order database decides the pool's orders; None: the pool decides them itself."""

    @property
    def plain(self) -> Self:
        """The pool without its gate, on which the gate's own steps work."""
        plain: Self = self if self._plain is None else self._plain
        return plain

    def _taken(
        self, orders: tuple[Order, ...], plan: Callable[[tuple[Order, ...]], Plan[list[AnswerT]]], *, partial: bool
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Take orders by a plan; with a gate, those that only its database knows get its decision."""
        if self.gate is None:
            return [*run_sync(plan(orders), self.store)]
        return self.gate.take_orders(self.plain, orders, lambda left: run_sync(plan(left), self.store), partial=partial)

    def _require_stored(self, change: str, *, stored: bool) -> None:
        if not checked_flag(stored, "stored") and self.state().gated:
            raise ChangeGated(self.sku, change)

    def open(
        self,
        *,
        stock: int,
        segments: int,
        gated: bool = False,
        epoch: int = 1,
        limit_per_customer: int | None = None,
        profile: str | None = None,
        queue: str | None = None,
        step: str | None = None,
    ) -> Opened | AlreadyOpen:
        """Open the pool; opening it again with the same numbers changes nothing and returns the existing pool.

        Raises PoolDiffers for a pool that stands with other numbers, or is closed.

        With `gated`, an outside authority such as an order database decides every order, so nothing expires before it
        has been asked. With `limit_per_customer` every order names its customer, who gets at most that many units.
        `profile` says when a change is acknowledged: "memory" (default), "replicated:N", "fsync", or "database"
        (default with `gated`). Raises InvalidInput if the server cannot keep to it. A pool with a `gate` is always
        gated: its rows are stored first; see `open_gated`. Raises ChangeGated for a gated pool, unless `gated` or a
        `gate` says that you know of its order database.

        `queue` and `step` (as `module:function`) name the workers that take submitted orders: those of that queue that
        have that step, and nobody else. Without them any worker does. `assign` changes them.
        """
        is_gated = gated if self.gate is None else True
        operation = self._settings.open(
            stock,
            segments,
            gated=is_gated,
            epoch=epoch,
            limit_per_customer=limit_per_customer,
            profile=profile,
            queue=queue,
            step=step,
        )
        if self.gate is None:
            answer = run_sync(open_pool_plan(operation), self.store)
        else:
            answer = self.gate.open_pool(
                self.plain,
                stock=stock,
                segments=segments,
                epoch=epoch,
                limit_per_customer=limit_per_customer,
                profile=profile,
                queue=queue,
                step=step,
            )
        return opened_as_asked(answer, operation, profile=profile)

    def restock(self, units: int, *, restock_id: str, stored: bool = False) -> Restocked | Closed:
        """Add units during the sale, once for each id. Raises ChangeMismatch if the id belongs to another change.

        In a gated pool, the order database must have `stored` the change (`restock_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.restock(units, restock_id)
        if self.gate is not None:
            return self.gate.restock_pool(self.plain, units, restock_id)
        self._require_stored("restock", stored=stored)
        return run_sync(returning(self._mark, perform(operation)), self.store)

    def withdraw(self, units: int, *, withdraw_id: str, stored: bool = False) -> Restocked | TooFew:
        """Remove free units during the sale, all or none, once for each id. Raises ChangeMismatch.

        In a gated pool, the order database must have `stored` the change (`withdraw_gated`); otherwise raises
        ChangeGated.
        """
        operation = self._settings.withdraw(units, withdraw_id)
        if self.gate is not None:
            return self.gate.withdraw_pool(self.plain, units, withdraw_id)
        self._require_stored("withdraw", stored=stored)
        return self.store.execute(operation)

    def resize(self, segments: int, *, stored: bool = False) -> Resized:
        """Change the number of segments during the sale, without a pause; free units are split evenly.

        A holder of a removed segment can finish undisturbed. In a gated pool, the order database must have `stored`
        rows for the new segments (`resize_gated`); otherwise raises ChangeGated.
        """
        operation = self._settings.resize(segments)
        if self.gate is not None:
            return self.gate.resize_pool(self.plain, segments)
        self._require_stored("resize", stored=stored)
        return self.store.execute(operation)

    def close(self) -> PoolClosed:
        """Refuse all new orders. Reserved orders can still be confirmed, cancelled, or expire.

        A gated pool can be closed without its gate, also while its order database is down.
        """
        operation = op.ClosePool(self.sku)
        if self.gate is not None:
            return self.gate.verified(self.plain, lambda: self.store.execute(operation))
        return self.store.execute(operation)

    def assign(self, *, queue: str | None, step: str | None) -> Assigned:
        """Name the queue and the step of the workers that take submitted orders from now on; None: any.

        Orders that a worker has begun before are finished by it. A gated pool can be assigned without its gate.
        """
        operation = op.AssignPool(self.sku, Assignment(queue, step))
        if self.gate is not None:
            return self.gate.assign_pool(self.plain, operation)
        return self.store.execute(operation)
