# Written by `make sync` from async_pool_gate.py: change that module.
"""The interface of a pool's gate, for threads. `segmented.orders` has its implementation, `Gate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from segmented.errors import OrderMismatch, SegmentedError
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
        Settled,
        Shard,
        Superseded,
        TooFew,
    )
    from segmented.protocol import AssignPool, ChangeQuantity, ExtendHold, ReturnUnits
    from segmented.stock.opening import Opening
    from segmented.stock.sold import Sold

PoolT_contra = TypeVar("PoolT_contra", contravariant=True)
GrantT = TypeVar("GrantT")
AnswerT = TypeVar("AnswerT")

Ends: TypeAlias = "list[Settled | SegmentedError | None]"
"""An answer or a failure for each order, in their order."""


class PoolGate(Protocol[PoolT_contra, GrantT]):
    """The questions of a pool to its order database, for threads."""

    def open_pool(self, pool: PoolT_contra, opening: Opening) -> Opened | AlreadyOpen:
        """Store the segments' rows, and open the pool."""

    def verified(self, pool: PoolT_contra, ask: Callable[[], AnswerT]) -> AnswerT:
        """Ask the pool, once it was compared with the database if its server is another one."""

    def grant_order(
        self,
        pool: PoolT_contra,
        order: Order,
        ask: Callable[[], GrantT | Refusal],
        *,
        asked: int | None,
        timeout: float | None,
    ) -> GrantT | Refusal:
        """Ask for a grant, unless the database has decided the order: then return that decision."""

    def take_orders(
        self,
        pool: PoolT_contra,
        orders: Sequence[Order],
        ask: Callable[[tuple[Order, ...]], list[AnswerT]],
        *,
        partial: bool,
    ) -> list[AnswerT | Decided | OrderMismatch]:
        """Ask the pool to take orders, except for those that only the database knows: it has decided them."""

    def decision_on(self, pool: PoolT_contra, order_id: str) -> Settled | None:
        """Return the database's decision on an order, if it has one."""

    def confirm_grant(self, grant: GrantT, order: Order) -> Settled:
        """Store a granted order in the database, and confirm it in the pool."""

    def confirm_order(self, pool: PoolT_contra, order_id: str, holder_id: str | None) -> Settled:
        """Store a reserved order in the database, and confirm it in the pool."""

    def confirm_within(self, pool: PoolT_contra, order_id: str, transaction: Any) -> Sold[Any]:  # noqa: ANN401  # of SQLAlchemy
        """Store a reserved order in the database, within the caller's transaction."""

    def confirm_orders(self, pool: PoolT_contra, order_ids: Iterable[str]) -> Ends:
        """Store reserved orders in the database, and confirm them in the pool."""

    def cancel_order(self, pool: PoolT_contra, order_id: str, holder_id: str | None) -> Settled | Superseded:
        """Void an order in the database, and give its units back."""

    def cancel_orders(self, pool: PoolT_contra, order_ids: Iterable[str]) -> Ends:
        """Void orders in the database, and give their units back."""

    def sell_cart(self, pools: Sequence[PoolT_contra], cart: Cart) -> CartFate:
        """Store every line of a reserved cart, or void every line if one of them cannot be sold any more."""

    def void_cart(self, pools: Sequence[PoolT_contra], cart: Cart) -> CartFate:
        """Void every line of a cart, unless it is sold."""

    def end_cart(self, pools: Sequence[PoolT_contra], cart: Cart, *, is_sold: bool) -> list[Settled | SegmentedError]:
        """Tell the pools of a cart that it is sold, or void; returns an answer or a failure for each line."""

    def extend_order(self, pool: PoolT_contra, operation: ExtendHold) -> Reserved | Settled:
        """Lengthen an order's hold; if it has ended, return how the database has decided the order."""

    def change_order(self, pool: PoolT_contra, operation: ChangeQuantity) -> Reserved | Settled:
        """Give some of an order's units back, unless the database has decided it."""

    def return_order(self, pool: PoolT_contra, operation: ReturnUnits) -> Returned | Settled | None:
        """Give units of a sold order back, in the database first; None if it is not sold yet."""

    def expire_orders(self, pool: PoolT_contra, limit: int) -> tuple[Settled, ...]:
        """Void orders whose hold has expired, and give their units back."""

    def settle_due(self, pool: PoolT_contra) -> bool:
        """Do so for a caller that needs their units, a bounded number; return whether some holds have ended."""

    def restock_pool(self, pool: PoolT_contra, units: int, restock_id: str) -> Restocked | Closed:
        """Add units to both."""

    def withdraw_pool(self, pool: PoolT_contra, units: int, withdraw_id: str) -> Restocked | TooFew:
        """Remove free units from both."""

    def move_units(self, source: Shard, target: Shard, *, sent: int, epoch: int) -> bool:
        """Move units between the rows of two shards; False if the source must be rebuilt first."""

    def resize_pool(self, pool: PoolT_contra, segments: int) -> Resized:
        """Change the number of segments of both."""

    def assign_pool(self, pool: PoolT_contra, operation: AssignPool) -> Assigned:
        """Name the pool's workers, and keep the names in the database."""
