"""Every failure of the library, under one root. The class docstring is the default message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segmented.models import Refusal


class SegmentedError(Exception):
    """The operation failed."""

    def __init__(self, message: str | None = None) -> None:
        """Take one clear sentence, or the class docstring's first line."""
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class InvalidInput(SegmentedError):
    """The input is not usable."""


class StoreError(SegmentedError):
    """The store did not answer."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; whether the operation ran is unknown."""


class StoreRefused(StoreError):
    """The store refused the operation; nothing changed."""


class DatabaseUnavailable(StoreError):
    """The order database cannot be reached; whether the statement ran is unknown."""


class LeaseError(SegmentedError):
    """The lease is not usable."""


class LeaseLost(LeaseError):
    """The lease has lapsed or was taken away, so the work it protected must stop."""

    def __init__(self, name: str, holder_id: str) -> None:
        """Name the lock and the holder that lost it."""
        super().__init__(f"lease on {name!r} is lost: it lapsed or was taken away")
        self.name = name
        self.holder_id = holder_id


class AcquireTimeout(LeaseError):
    """The lock was not free before the deadline."""

    def __init__(self, name: str, timeout: float) -> None:
        """Name the lock and the seconds waited."""
        super().__init__(f"lock {name!r} was not free within {timeout:g} s")
        self.name = name
        self.timeout = timeout


class StockError(SegmentedError):
    """The stock pool cannot do this."""


class PoolMissing(StockError):
    """The pool is not open: it was never opened, or its keys vanished. It is never reopened silently."""

    def __init__(self, sku: str) -> None:
        """Name the pool."""
        super().__init__(f"pool {sku!r} is not open: it was never opened here, or its keys vanished")
        self.sku = sku


class PoolGated(StoreRefused):
    """The pool is gated: its order database must void the order before units are given back."""

    def __init__(self, sku: str, order_id: str) -> None:
        """Name the pool and the order."""
        super().__init__(f"pool {sku!r} is gated: its order database must void order {order_id!r} first")
        self.sku = sku
        self.order_id = order_id


class PoolNotGated(StockError):
    """The pool was opened without a gate, so no order database may decide its orders."""

    def __init__(self, sku: str) -> None:
        """Name the pool."""
        super().__init__(f"pool {sku!r} was opened without gated=True, so no order database may decide its orders")
        self.sku = sku


class PoolDiverged(StockError):
    """The pool and its order database disagree, so this order cannot be decided."""

    def __init__(self, sku: str, order_id: str, detail: str) -> None:
        """Name the pool, the order, and what each side says."""
        super().__init__(f"pool {sku!r} and its order database disagree about order {order_id!r}: {detail}")
        self.sku = sku
        self.order_id = order_id


class NotGranted(StockError):
    """The order was refused, so the body of the `with` statement did not run."""

    def __init__(self, refusal: Refusal) -> None:
        """Carry the answer that refused."""
        super().__init__(f"order {refusal.order_id!r} was not granted: {refusal.describe()}")
        self.refusal = refusal


class OrderMismatch(StockError):
    """An order id was used again with other content."""

    def __init__(self, order_id: str, detail: str = "") -> None:
        """Name the order and, where known, what differs."""
        super().__init__(f"order {order_id!r} exists with other content{': ' + detail if detail else ''}")
        self.order_id = order_id


class OrderUnknown(StockError):
    """The pool knows no such order."""

    def __init__(self, order_id: str) -> None:
        """Name the order."""
        super().__init__(f"order {order_id!r} is not known to the pool")
        self.order_id = order_id


class GrantSuperseded(StockError):
    """A later grant reached the order database first, so this holder must stop."""

    def __init__(self, order_id: str, fence: int) -> None:
        """Name the order and the fencing token that is newer."""
        super().__init__(f"grant for order {order_id!r} is superseded by fencing token {fence}")
        self.order_id = order_id
        self.fence = fence
