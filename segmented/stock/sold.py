"""The answer of a confirm within the caller's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

from segmented.models.orders import OrderState

ToldT = TypeVar("ToldT")
SoldState = OrderState | Literal["unknown"]
"""How a webhook finds its order: confirmed, ended otherwise, or unknown to the pool and its order database."""


class Sold(Generic[ToldT]):
    """State of an order in a transaction. True in a condition if the order is sold once the transaction commits."""

    def __init__(
        self, order_id: str, state: SoldState, quantity: int, tell: Callable[[], ToldT], *, replay: bool
    ) -> None:
        self.order_id = order_id
        self.state = state
        self.quantity = quantity
        """Units that the order has; 0 if it is unknown."""
        self.replay = replay
        """True if an earlier call has decided the order: what belongs to it was stored then."""
        self._tell = tell

    def tell(self) -> ToldT:
        """Tell the pool after the commit. Returns how the order ended there; None if the transaction stored nothing.

        If nobody does, the order is confirmed in the pool when its hold ends: the workers' expiry, or `pool.expire`,
        finds it sold. Safe to repeat, and of no effect after a rollback: the units stay reserved.
        """
        return self._tell()

    def __bool__(self) -> bool:
        """Return whether the order is sold."""
        return self.state == "confirmed"

    def __repr__(self) -> str:
        return f"Sold({self.order_id!r}, {self.state}, quantity={self.quantity}, replay={self.replay})"
